// A layer over the picture: paint over a part of it by dragging (or by keys), and see which part a decision hangs on.

import { Surface, font, rem } from "./canvas.js";
import { drawOcclusion } from "./occlusion.js";
import { colours } from "./theme.js";

const CELLS = 12;
// A drag shorter than this share of the picture is a click: one cell of the grid.
const LEAST = 0.02;

export class PatchLayer {
  // frame: the FrameView below; acts: paint(box)
  constructor(canvas, frame, acts) {
    this.canvas = canvas;
    this.frame = frame;
    this.acts = acts;
    this.patches = [];
    this.map = null;
    this.drag = null;
    this.cursor = null;
    this.surface = new Surface(canvas, (c) => this.draw(c));
    canvas.addEventListener("pointerdown", (touch) => this.down(touch));
    canvas.addEventListener("pointermove", (touch) => this.drag && this.move(touch));
    canvas.addEventListener("pointerup", () => this.up());
    canvas.addEventListener("pointercancel", () => this.cancel());
    canvas.addEventListener("keydown", (press) => this.key(press));
    canvas.addEventListener("focus", () => this.surface.touch());
    canvas.addEventListener("blur", () => { this.cursor = null; this.surface.touch(); });
  }

  show(on) {
    this.canvas.hidden = !on;
    if (on) this.surface.fit();
  }

  // patches: edits of the kind paint; map: what the decision hangs on, as `readOcclusion` gives it, or null.
  set(patches, map) {
    this.patches = patches;
    this.map = map;
    this.surface.touch();
  }

  place(touch) {
    const [x, y, w, h] = this.frame.box;
    const box = this.canvas.getBoundingClientRect();
    const clamp = (v) => Math.max(0, Math.min(1, v));
    return [clamp((touch.clientX - box.left - x) / w), clamp((touch.clientY - box.top - y) / h)];
  }

  down(touch) {
    if (!this.frame.box || touch.button > 0) return;
    touch.preventDefault();
    this.canvas.setPointerCapture(touch.pointerId);
    const at = this.place(touch);
    this.drag = [at, at];
  }

  move(touch) {
    this.drag[1] = this.place(touch);
    this.surface.touch();
  }

  up() {
    if (!this.drag) return;
    const [[x0, y0], [x1, y1]] = this.drag;
    this.drag = null;
    let box = { left: Math.min(x0, x1), top: Math.min(y0, y1), right: Math.max(x0, x1), bottom: Math.max(y0, y1) };
    if (box.right - box.left < LEAST || box.bottom - box.top < LEAST) {
      const cell = (v) => Math.min(CELLS - 1, Math.floor(v * CELLS));
      box = this.cells(cell(x0), cell(y0), 1, 1);
    }
    this.acts.paint(rounded(box));
    this.surface.touch();
  }

  cancel() {
    this.drag = null;
    this.surface.touch();
  }

  cells(x, y, w, h) {
    return { left: x / CELLS, top: y / CELLS, right: (x + w) / CELLS, bottom: (y + h) / CELLS };
  }

  // Arrows move a frame of cells, with shift they widen it, Enter paints it.
  key(press) {
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[press.key];
    if (!step && press.key !== "Enter") return;
    press.preventDefault();
    press.stopPropagation();
    this.cursor ??= { x: 5, y: 6, w: 2, h: 2 };
    const { cursor } = this;
    if (press.key === "Enter") this.acts.paint(rounded(this.cells(cursor.x, cursor.y, cursor.w, cursor.h)));
    else if (press.shiftKey) {
      cursor.w = Math.max(1, Math.min(CELLS - cursor.x, cursor.w + step[0]));
      cursor.h = Math.max(1, Math.min(CELLS - cursor.y, cursor.h + step[1]));
    } else {
      cursor.x = Math.max(0, Math.min(CELLS - cursor.w, cursor.x + step[0]));
      cursor.y = Math.max(0, Math.min(CELLS - cursor.h, cursor.y + step[1]));
    }
    this.surface.touch();
  }

  draw(c) {
    if (!this.frame.box) return;
    if (this.map) this.heat(c);
    for (const patch of this.patches) this.patch(c, patch);
    if (this.drag) {
      const [[x0, y0], [x1, y1]] = this.drag;
      this.outline(c, { left: Math.min(x0, x1), top: Math.min(y0, y1), right: Math.max(x0, x1), bottom: Math.max(y0, y1) });
    }
    if (this.cursor) this.outline(c, this.cells(this.cursor.x, this.cursor.y, this.cursor.w, this.cursor.h));
  }

  rect({ left, top, right, bottom }) {
    const [x, y, w, h] = this.frame.box;
    return [x + left * w, y + top * h, (right - left) * w, (bottom - top) * h];
  }

  patch(c, patch) {
    const box = this.rect(patch);
    c.fillStyle = patch.level === null ? "rgb(120 150 110)" : `rgb(${patch.level} ${patch.level} ${patch.level})`;
    c.fillRect(...box);
    c.strokeStyle = "#fff";
    c.lineWidth = 1;
    c.setLineDash([4, 3]);
    c.strokeRect(box[0] + 0.5, box[1] + 0.5, box[2] - 1, box[3] - 1);
    c.setLineDash([]);
  }

  outline(c, part) {
    const box = this.rect(part);
    c.fillStyle = "rgb(128 128 128 / 60%)";
    c.fillRect(...box);
    c.strokeStyle = colours.policy;
    c.lineWidth = 2;
    c.strokeRect(...box);
  }

  heat(c) {
    const u = rem();
    drawOcclusion(c, this.map, this.frame.box);
    const [x, y, w, h] = this.frame.box;
    c.font = font(0.8, 600);
    c.textAlign = "left";
    c.textBaseline = "alphabetic";
    c.lineWidth = 3;
    c.strokeStyle = "#000";
    c.fillStyle = "#fff";
    const { supports, opposes, strongest } = this.map.key;
    const text = `orange ${supports}, blue ${opposes}; ${strongest}`;
    c.strokeText(text, x + 0.5 * u, y + h - 0.6 * u, w - u);
    c.fillText(text, x + 0.5 * u, y + h - 0.6 * u, w - u);
  }
}

function rounded(box) {
  return Object.fromEntries(Object.entries(box).map(([name, v]) => [name, Math.round(v * 1000) / 1000]));
}
