// A canvas as sharp as the screen, redrawn at most once per frame and only when something has changed.

import { colours } from "./theme.js";

const dirty = new Set();
let asked = false;

function flush(now) {
  asked = false;
  for (const surface of [...dirty]) {
    if (now - surface.painted < surface.restMs) continue;
    dirty.delete(surface);
    surface.painted = now;
    surface.paint();
  }
  if (dirty.size) ask();
}

function ask() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(flush);
}

export class Surface {
  // restMs: the least time between two paintings, for what the eye need not follow at full rate.
  constructor(canvas, draw, restMs = 0) {
    this.restMs = restMs;
    // Called when the canvas has another size.
    this.layout = null;
    this.painted = -Infinity;
    this.canvas = canvas;
    this.draw = draw;
    this.context = canvas.getContext("2d");
    this.width = 0;
    this.height = 0;
    new ResizeObserver(() => this.fit()).observe(canvas.parentElement.classList.contains("decision") ? canvas : canvas.parentElement);
    this.fit();
  }

  fit() {
    const box = this.canvas.getBoundingClientRect();
    const scale = devicePixelRatio || 1;
    const width = Math.max(1, Math.round(box.width * scale));
    const height = Math.max(1, Math.round(box.height * scale));
    if (this.canvas.width !== width || this.canvas.height !== height) {
      this.canvas.width = width;
      this.canvas.height = height;
    }
    this.width = box.width;
    this.height = box.height;
    this.context.setTransform(scale, 0, 0, scale, 0, 0);
    size = NaN;
    this.layout?.();
    this.painted = -Infinity;
    this.touch();
  }

  touch() {
    dirty.add(this);
    ask();
  }

  paint() {
    if (this.width < 2) return;
    this.context.clearRect(0, 0, this.width, this.height);
    this.draw(this.context, this.width, this.height);
  }
}

// Size of 1rem in pixels, so that canvas text grows with the page.
export function rem() {
  if (Number.isNaN(size)) size = parseFloat(getComputedStyle(document.documentElement).fontSize);
  return size;
}

let size = NaN;

export function font(size, weight = 400) {
  return `${weight} ${(size * rem()).toFixed(1)}px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif`;
}

// How long some round number of metres is on a map, in its lower left corner; scale: pixels per metre.
export function yardstick(c, scale, height, u) {
  const metres = [5, 10, 20, 50, 100, 200, 500, 1000].find((m) => m * scale > 2.5 * u) ?? 2000;
  c.fillStyle = colours.dim;
  c.fillRect(0, height - 0.3 * u, metres * scale, 0.12 * u);
  c.font = font(0.78);
  c.textAlign = "left";
  c.textBaseline = "alphabetic";
  c.fillText(`${metres} m`, 0, height - 0.55 * u);
}
