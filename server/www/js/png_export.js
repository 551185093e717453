// The current view as a PNG: the canvases where they stand, the words around them as text.

import { colours } from "./theme.js";

const BOXES = ".card, .card button, .edits li, .track, .fill, .was, .pill, .badge, .choice .mark, .agree .mark, .needle";
// Over the pictures.
const LABELS = ".end-card, .curtain";

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
  for (const source of /** @type {NodeListOf<HTMLCanvasElement | HTMLImageElement>} */ (document.querySelectorAll("canvas, .card img"))) {
    const r = source.getBoundingClientRect();
    if (r.width) c.drawImage(source, r.x, r.y, r.width, r.height);
  }
  for (const box of document.querySelectorAll(LABELS)) paintBox(c, box);
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

// What can be seen of a piece of text, each word where it stands on its line; sliders, switches and what is cut off are
// left out.
function paintText(c, node) {
  const holder = node.parentElement;
  if (!node.data.trim() || !holder.closest(".top, .card") || holder.closest(".switch, .top button, noscript, option")) return;
  const seen = visibleBox(holder);
  const style = getComputedStyle(holder);
  c.font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
  c.fillStyle = style.color;
  c.textBaseline = "middle";
  c.letterSpacing = style.letterSpacing === "normal" ? "0px" : style.letterSpacing;
  const range = document.createRange();
  for (const word of node.data.matchAll(/\S+/g)) {
    range.setStart(node, word.index);
    range.setEnd(node, word.index + word[0].length);
    const r = range.getBoundingClientRect();
    if (r.width && r.left >= seen.left - 1 && r.right <= seen.right + 1 && r.top >= seen.top - 1 && r.bottom <= seen.bottom + 1) {
      c.fillText(word[0], r.x, r.y + r.height / 2);
    }
  }
}

// What those around an element leave to be seen of it.
function visibleBox(element) {
  const box = { left: -Infinity, right: Infinity, top: -Infinity, bottom: Infinity };
  for (let around = element; around; around = around.parentElement) {
    const { overflowX, overflowY } = getComputedStyle(around);
    const r = around.getBoundingClientRect();
    if (overflowX !== "visible") [box.left, box.right] = [Math.max(box.left, r.left), Math.min(box.right, r.right)];
    if (overflowY !== "visible") [box.top, box.bottom] = [Math.max(box.top, r.top), Math.min(box.bottom, r.bottom)];
  }
  return box;
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
