// What the network sees, and beside it where it looked last.

import { Surface, font, rem } from "./canvas.js";
import { $, put } from "./dom.js";
import { colours } from "./theme.js";

// Black over purple and orange to yellow (inferno, thinned out): readable on grey road and green grass alike.
const RAMP = [[20, 11, 52], [85, 15, 109], [159, 42, 99], [212, 72, 66], [245, 125, 21], [250, 193, 39], [252, 255, 164]];
const INSET = 0.3;

function ramp(v) {
  const x = v * (RAMP.length - 1);
  const i = Math.min(RAMP.length - 2, Math.floor(x));
  return RAMP[i].map((c, k) => c + (RAMP[i + 1][k] - c) * (x - i));
}

const TABLE = new Uint32Array(new Uint8Array(Array.from({ length: 256 }, (_, v) => [...ramp(v / 255), Math.min(205, v * 1.1)]).flat()).buffer);

export class FrameView {
  constructor(canvas) {
    this.surface = new Surface(canvas, (c, w, h) => this.draw(c, w, h));
    this.overlay = false;
    // Whether only what reaches the network is drawn, in its own resolution.
    this.onlyInput = false;
    // Where the picture stands on the canvas: [x, y, width, height].
    /** @type {[number, number, number, number]} */
    this.box = null;
    // Filters of the picture: [name, amount, unit].
    this.look = [];
    this.describe(null);
  }

  // input: {rows, masked, size, colours}; null where no network is known.
  describe(input) {
    this.input = input;
    this.frame = null;
    this.looked = null;
    $("input-switch").hidden = !input || !this.reduces;
    this.surface.touch();
  }

  // Whether the network gets less than the camera's picture.
  get reduces() {
    const { rows, masked, size, frame } = this.input;
    return Boolean(masked) || rows[0] > 0 || rows[1] < frame[0] || size[0] !== frame[0] || size[1] !== frame[1];
  }

  // looked: {frame, map, t_s}, a saliency map and the very frame that it belongs to.
  show(frame, t_s, looked) {
    this.frame?.close();
    this.frame = frame;
    this.t_s = t_s;
    this.looked = looked && this.compose(looked);
    put($("frame-note"), this.caption());
    this.surface.touch();
  }

  caption() {
    const { width, height } = this.frame;
    if (!this.input) return `the camera's picture, ${width} × ${height}`;
    const { rows, masked, size, colours: space } = this.input;
    if (rows[0] === 0 && rows[1] === height && size[0] === height && size[1] === width) {
      return `what the network sees, ${width} × ${height}${masked ? ", but for the dimmed rows" : ""}`;
    }
    return `the network sees the framed part as ${size[1]} × ${size[0]}${space === "RGB" ? "" : ` ${space}`}; camera ${width} × ${height}`;
  }

  // What is to say of the saliency, where it is wanted.
  note() {
    if (!this.overlay || !this.looked) return "";
    const age = this.t_s - this.looked.t_s;
    return `Grad-CAM, last convolution, ${age > 0.001 ? `of ${age.toFixed(2)} s ago (small: now)` : "of this frame"}; not a reason`;
  }

  // edits: of the kinds dim and blur; the picture is shown as the network gets it under them.
  setLook(edits) {
    this.look = edits.map((edit) => (edit.kind === "dim" ? ["brightness", edit.factor, ""] : ["blur", edit.sigma, "px"]));
    this.surface.touch();
  }

  setOverlay(on) {
    this.overlay = on;
    if (!on) this.looked = null;
    this.surface.touch();
  }

  setOnlyInput(on) {
    this.onlyInput = on;
    this.surface.touch();
  }

  // Frame and map in one picture: they are never apart, nor is either with another's.
  compose({ frame, map: { data, shape: [height, width] }, t_s }) {
    const heat = new OffscreenCanvas(width, height);
    const image = new ImageData(width, height);
    const pixels = new Uint32Array(image.data.buffer);
    for (let i = 0; i < data.length; i++) pixels[i] = TABLE[data[i]];
    heat.getContext("2d").putImageData(image, 0, 0);
    const scale = Math.max(1, Math.floor(640 / frame.width));
    const picture = new OffscreenCanvas(frame.width * scale, frame.height * scale);
    const c = picture.getContext("2d");
    c.imageSmoothingEnabled = false;
    c.drawImage(frame, 0, 0, picture.width, picture.height);
    c.imageSmoothingEnabled = true;
    c.drawImage(heat, 0, 0, picture.width, picture.height);
    frame.close();
    return { picture, t_s };
  }

  draw(c, width, height) {
    if (!this.frame?.width) return;
    const main = this.overlay && this.looked ? this.looked.picture : this.onlyInput ? this.networkView() : this.frame;
    const scale = Math.min(width / main.width, height / main.height);
    const [w, h] = [main.width * scale, main.height * scale];
    this.box = [(width - w) / 2, (height - h) / 2, w, h];
    const { box } = this;
    c.imageSmoothingEnabled = main !== this.frame ? false : this.frame.width > 320;
    // A blur is so many pixels of the camera, which may be larger or smaller here.
    if (this.look.length) c.filter = this.look.map(([name, v, unit]) => `${name}(${unit ? v * (w / main.width) : v}${unit})`).join(" ");
    c.drawImage(main, ...box);
    c.filter = "none";
    if (main === this.frame) this.dimUnseen(c, ...box);
    if (this.looked && main === this.looked.picture) this.legend(c, box);
  }

  // What the network gets: rows cut off or blackened, resized; blown up again, so that its pixels can be seen.
  networkView() {
    const { rows: [first, last], masked, size, frame } = this.input;
    const view = new OffscreenCanvas(size[1], size[0]);
    const c = view.getContext("2d");
    const unit = this.frame.height / frame[0];
    c.drawImage(this.frame, 0, first * unit, this.frame.width, (last - first) * unit, 0, 0, size[1], size[0]);
    if (masked) c.fillRect(0, ((masked[0] - first) * size[0]) / (last - first), size[1], ((masked[1] - masked[0]) * size[0]) / (last - first));
    return view;
  }

  dimUnseen(c, x, y, w, h) {
    if (!this.input || !this.reduces) return;
    const { rows: [first, last], masked, frame: [all] } = this.input;
    const at = (row) => y + (row / all) * h;
    c.fillStyle = "rgb(10 16 22 / 55%)";
    c.fillRect(x, y, w, at(first) - y);
    c.fillRect(x, at(last), w, y + h - at(last));
    if (masked) c.fillRect(x, at(masked[0]), w, at(masked[1]) - at(masked[0]));
    if (first > 0 || last < all) {
      c.strokeStyle = "#fff";
      c.lineWidth = 1.5;
      c.strokeRect(x + 1, at(first), w - 2, at(last) - at(first));
    }
  }

  legend(c, [x, y, w, h]) {
    const u = rem();
    const bar = 4.5 * u;
    for (let i = 0; i < 40; i++) {
      c.fillStyle = `rgb(${ramp(i / 39).map(Math.round).join()})`;
      c.fillRect(x + 0.5 * u + (i * bar) / 40, y + h - 1.1 * u, bar / 40 + 0.5, 0.55 * u);
    }
    c.font = font(0.76, 600);
    c.fillStyle = "#fff";
    c.textBaseline = "alphabetic";
    c.textAlign = "left";
    c.shadowColor = "#000";
    c.shadowBlur = 3;
    c.fillText("less   more", x + 0.5 * u, y + h - 1.35 * u);
    c.shadowBlur = 0;
    if (Math.abs(this.t_s - this.looked.t_s) < 1e-3) return;
    const small = [w * INSET, ((w * INSET) / this.frame.width) * this.frame.height];
    const corner = [x + w - small[0] - 0.4 * u, y + h - small[1] - 0.4 * u];
    c.imageSmoothingEnabled = this.frame.width > 320;
    c.drawImage(this.frame, ...corner, ...small);
    c.strokeStyle = colours.card;
    c.lineWidth = 2;
    c.strokeRect(...corner, ...small);
  }
}
