// The current view as a PNG: the canvases where they stand, the words around them as text.

import { colours } from "./theme.js";

const BOXES = ".card, .track, .fill, .pill, .choice .mark, .agree .mark, .needle, .heads [aria-pressed=true]";

export function drawPage() {
  const scale = devicePixelRatio || 1;
  const canvas = document.createElement("canvas");
  canvas.width = Math.round(document.documentElement.clientWidth * scale);
  canvas.height = Math.round(document.documentElement.scrollHeight * scale);
  const c = canvas.getContext("2d");
  c.scale(scale, scale);
  c.translate(scrollX, scrollY);
  c.fillStyle = colours.bg;
  c.fillRect(-scrollX, -scrollY, canvas.width, canvas.height);
  for (const box of document.querySelectorAll(BOXES)) paintBox(c, box);
  for (const source of document.querySelectorAll("canvas")) {
    const r = source.getBoundingClientRect();
    if (r.width) c.drawImage(source, r.x, r.y, r.width, r.height);
  }
  for (const line of document.querySelectorAll(".legend .line")) paintLine(c, line);
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) paintText(c, walker.currentNode);
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

function paintLine(c, line) {
  const style = getComputedStyle(line);
  const r = line.getBoundingClientRect();
  if (!r.width) return;
  c.save();
  c.strokeStyle = style.borderTopColor;
  c.lineWidth = parseFloat(style.borderTopWidth);
  c.setLineDash(style.borderTopStyle === "dashed" ? [c.lineWidth * 3, c.lineWidth * 2] : []);
  c.beginPath();
  c.moveTo(r.x, r.y + r.height / 2);
  c.lineTo(r.right, r.y + r.height / 2);
  c.stroke();
  c.restore();
}

// What can be seen of a piece of text; controls and what has scrolled out of sight are left out.
function paintText(c, node) {
  const holder = node.parentElement;
  if (!node.data.trim() || !holder.closest(".top, .card") || holder.closest(".switch, .top button, noscript")) return;
  const range = document.createRange();
  range.selectNodeContents(node);
  const r = range.getBoundingClientRect();
  const clip = holder.closest(".events")?.getBoundingClientRect();
  if (!r.width || (clip && (r.y < clip.y || r.bottom > clip.bottom))) return;
  const style = getComputedStyle(holder);
  c.font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
  c.fillStyle = style.color;
  c.textBaseline = "middle";
  c.fillText(node.data.trim(), r.x, r.y + r.height / 2);
}

export function savePng() {
  drawPage().toBlob((blob) => save(blob, `nacdrive-${new Date().toISOString().slice(0, 19).replaceAll(":", "")}.png`));
}

export function save(blob, name) {
  const address = URL.createObjectURL(blob);
  download(address, name);
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

// Saves what lies at an address; an empty name keeps the server's.
export function download(address, name = "") {
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
}
