// What the network sees, and over it where it looks.

import { Surface } from "./canvas.js";

// Black over purple and orange to yellow (inferno, thinned out): readable on grey road and green grass alike.
const RAMP = [[20, 11, 52], [85, 15, 109], [159, 42, 99], [212, 72, 66], [245, 125, 21], [250, 193, 39], [252, 255, 164]];

function ramp(v) {
  const x = v * (RAMP.length - 1);
  const i = Math.min(RAMP.length - 2, Math.floor(x));
  return RAMP[i].map((c, k) => c + (RAMP[i + 1][k] - c) * (x - i));
}

const TABLE = new Uint32Array(new Uint8Array(Array.from({ length: 256 }, (_, v) => [...ramp(v / 255), Math.min(205, v * 1.1)]).flat()).buffer);

export class FrameView {
  constructor(canvas) {
    this.surface = new Surface(canvas, (c, w, h) => this.draw(c, w, h));
    this.heat = new OffscreenCanvas(1, 1);
    this.frame = null;
    this.overlay = false;
    this.saliency = null;
  }

  show(frame, saliency) {
    this.frame = frame;
    this.saliency = saliency ?? this.saliency;
    if (this.overlay && saliency) this.keep(saliency);
    this.surface.touch();
  }

  setOverlay(on) {
    this.overlay = on;
    if (on && this.saliency) this.keep(this.saliency);
    this.surface.touch();
  }

  clear() {
    this.frame = null;
    this.saliency = null;
    this.surface.touch();
  }

  keep({ data, shape: [height, width] }) {
    if (this.heat.width !== width || this.heat.height !== height) this.heat = new OffscreenCanvas(width, height);
    const context = this.heat.getContext("2d");
    const image = context.createImageData(width, height);
    const pixels = new Uint32Array(image.data.buffer);
    for (let i = 0; i < data.length; i++) pixels[i] = TABLE[data[i]];
    context.putImageData(image, 0, 0);
  }

  draw(context, width, height) {
    // A bitmap that was closed meanwhile has no width.
    if (!this.frame?.width) return;
    const scale = Math.min(width / this.frame.width, height / this.frame.height);
    const w = this.frame.width * scale;
    const h = this.frame.height * scale;
    const box = [(width - w) / 2, (height - h) / 2, w, h];
    context.imageSmoothingEnabled = this.frame.width > 320;
    context.drawImage(this.frame, ...box);
    if (this.overlay && this.saliency) {
      context.imageSmoothingEnabled = true;
      context.drawImage(this.heat, ...box);
    }
  }
}
