// The current view as a PNG: the canvases where they stand, the words around them as text.

import { colours } from "./theme.js";

const TEXT = "h2, .title, .pill, .verb, .sure, .agree span, .meter span, .meter output, .choice span, .choice output, .numbers dt, .numbers dd, .where dt, .where dd, .events li span, .top h1";

export function snapshot() {
  const scale = devicePixelRatio || 1;
  const canvas = document.createElement("canvas");
  canvas.width = Math.round(document.documentElement.clientWidth * scale);
  canvas.height = Math.round(document.documentElement.scrollHeight * scale);
  const c = canvas.getContext("2d");
  c.scale(scale, scale);
  c.translate(scrollX, scrollY);
  c.fillStyle = colours.bg;
  c.fillRect(-scrollX, -scrollY, canvas.width, canvas.height);
  for (const box of document.querySelectorAll(".card, .track, .fill, .pill, .choice .mark, .agree .mark, .needle")) paintBox(c, box);
  for (const source of document.querySelectorAll("canvas")) {
    const r = source.getBoundingClientRect();
    if (r.width) c.drawImage(source, r.x, r.y, r.width, r.height);
  }
  for (const element of document.querySelectorAll(TEXT)) paintText(c, element);
  return canvas;
}

function paintBox(c, box) {
  const style = getComputedStyle(box);
  const r = box.getBoundingClientRect();
  if (style.visibility === "hidden" || !r.width) return;
  c.fillStyle = style.backgroundColor;
  c.beginPath();
  if (box.matches(".mark, .needle")) {
    c.moveTo(r.x + r.width / 2, r.y);
    c.lineTo(r.right, r.y + r.height / 2);
    c.lineTo(r.x + r.width / 2, r.bottom);
    c.lineTo(r.x, r.y + r.height / 2);
  } else {
    c.roundRect(r.x, r.y, r.width, r.height, Math.min(parseFloat(style.borderRadius) || 0, r.height / 2));
  }
  c.fill();
}

function paintText(c, element) {
  const clip = element.closest(".events")?.getBoundingClientRect();
  for (const node of element.childNodes) {
    const holder = node.nodeType === Node.TEXT_NODE ? element : node.matches?.("b, small, span") ? node : null;
    if (!holder || !node.textContent.trim() || (holder !== element && holder.matches(TEXT))) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const r = range.getBoundingClientRect();
    if (!r.width || (clip && (r.y < clip.y || r.bottom > clip.bottom))) continue;
    const style = getComputedStyle(holder);
    c.font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
    c.fillStyle = style.color;
    c.textBaseline = "middle";
    c.fillText(node.textContent.trim(), r.x, r.y + r.height / 2);
  }
}

export function savePng() {
  snapshot().toBlob((blob) => save(blob, `nacdrive-${new Date().toISOString().slice(0, 19).replaceAll(":", "")}.png`));
}

export function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
