// What lies over the picture while a patch is being painted.

import { canvas } from "/js/dom.js";

export class Overlay {
  // painting(): whether a finger paints now; paint({left, top, right, bottom}): a patch is done, in shares of the picture.
  constructor(painting, paint) {
    this.painting = painting;
    this.paint = paint;
    this.bind();
  }

  bind() {
    const overlay = canvas("overlay");
    let from = null;
    const place = (event) => {
      const box = overlay.getBoundingClientRect();
      const within = (v) => Math.min(1, Math.max(0, v));
      return [within((event.clientX - box.x) / box.width), within((event.clientY - box.y) / box.height)];
    };
    /** @type {(one: number[], other: number[]) => {x: number, y: number, w: number, h: number}} */
    const rectangle = ([a, b], [c, d]) => ({ x: Math.min(a, c), y: Math.min(b, d), w: Math.abs(a - c), h: Math.abs(b - d) });
    overlay.addEventListener("pointerdown", (event) => {
      if (!this.painting()) return;
      from = place(event);
      overlay.setPointerCapture(event.pointerId);
      event.preventDefault();
    });
    overlay.addEventListener("pointermove", (event) => {
      if (!from) return;
      const { x, y, w, h } = rectangle(from, place(event));
      const pen = overlay.getContext("2d");
      pen.clearRect(0, 0, overlay.width, overlay.height);
      pen.fillStyle = "rgb(128 128 128 / 85%)";
      pen.fillRect(x * overlay.width, y * overlay.height, w * overlay.width, h * overlay.height);
    });
    const end = (event) => {
      if (!from) return;
      const { x, y, w, h } = rectangle(from, place(event));
      from = null;
      this.clear();
      const rounded = (v) => Math.round(v * 1000) / 1000;
      if (event.type === "pointerup" && w * h > 0.0005) this.paint({ left: rounded(x), top: rounded(y), right: rounded(x + w), bottom: rounded(y + h) });
    };
    overlay.addEventListener("pointerup", end);
    overlay.addEventListener("pointercancel", end);
  }

  clear() {
    const overlay = canvas("overlay");
    overlay.getContext("2d").clearRect(0, 0, overlay.width, overlay.height);
  }
}
