// Which of the last frames decide: the window as a film strip, over it the mean weight, below it every head's weights.

import { Surface, font, rem } from "./canvas.js";
import { fixed } from "./dom.js";
import { colours } from "./theme.js";

export class Attention {
  constructor(canvas) {
    this.surface = new Surface(canvas, (c, w, h) => this.draw(c, w, h), 90);
    this.clear();
  }

  clear() {
    this.neurons = null;
    this.film = null;
    this.head = 0;
    // Frames that are hidden under what if (how many decisions ago), and what is painted over all of them.
    this.hidden = new Set();
    this.patches = [];
    this.surface.touch();
  }

  setHidden(hidden) {
    this.hidden = hidden;
    this.surface.touch();
  }

  // film: the very frames of the window, in the order of time; null where one is not there.
  show(neurons, head, film) {
    Object.assign(this, { neurons, head, film });
    this.surface.touch();
  }

  draw(c, width, height) {
    const u = rem();
    const left = 4.4 * u;
    c.font = font(0.82);
    c.fillStyle = colours.dim;
    c.textBaseline = "middle";
    const n = this.neurons;
    if (!n?.has("weights")) return;
    const keys = n.keys;
    const each = (width - left) / Math.max(keys, 4);
    const bars = 1.7 * u;
    const strip = Math.min(2.6 * u, each);
    const rows = bars + strip + 0.35 * u;
    const foot = height - 1.3 * u;
    const start = width - each * keys;
    ["weight", "frame", `${n.heads} heads`].forEach((text, i) => {
      c.textAlign = "left";
      c.fillText(text, 0, [bars * 0.6, bars + strip / 2, (rows + foot) / 2][i]);
    });
    this.mean(c, n, start, each, bars, u);
    this.frames(c, keys, start, each, bars, strip);
    this.heat(c, n, start, each, rows, foot);
    c.fillStyle = colours.dim;
    c.font = font(0.78);
    c.textBaseline = "alphabetic";
    this.ages(c, n, start, each, width, height - 0.25 * u, left);
  }

  // How old each frame was at the decision, as far as there is room: the newest and the oldest always.
  ages(c, n, start, each, width, y, left) {
    const { keys } = n;
    const age = (key) => fixed(n.age(key), 2);
    c.textAlign = "right";
    const newest = n.age(keys - 1) < 0.005 ? "now" : `${age(keys - 1)} s ago`;
    c.fillText(newest, width, y);
    c.textAlign = "left";
    const oldest = keys === 1 ? "only this frame" : `${age(0)} s ago`;
    const from = keys === 1 ? left : start;
    c.fillText(oldest, from, y);
    c.textAlign = "center";
    const room = c.measureText("0.00").width + rem();
    let free = from + c.measureText(oldest).width + room / 2;
    const end = width - c.measureText(newest).width - room / 2;
    for (let key = 1; key < keys - 1; key++) {
      const x = start + (key + 0.5) * each;
      if (x < free || x > end) continue;
      c.fillText(age(key), x, y);
      free = x + room;
    }
  }

  mean(c, n, start, each, bars, u) {
    const mean = n.meanWeights();
    const top = Math.max(...mean, 1e-6);
    const best = mean.indexOf(Math.max(...mean));
    mean.forEach((w, key) => {
      const h = Math.max(1, (w / top) * (bars - 0.2 * u));
      c.fillStyle = key === best ? colours.policy : colours.dim;
      c.globalAlpha = key === best ? 1 : 0.55;
      c.fillRect(start + key * each + 1, bars - h, Math.max(1, each - 2), h);
    });
    c.globalAlpha = 1;
  }

  frames(c, keys, start, each, top, strip) {
    c.imageSmoothingEnabled = true;
    for (let key = 0; key < keys; key++) {
      const picture = this.film?.[key];
      const shape = picture?.width ? picture.width / picture.height : 1;
      const wide = Math.max(1, Math.min(each, strip * shape) - 2);
      const x = start + key * each + (each - wide) / 2;
      if (picture?.width) c.drawImage(picture, x, top + 2, wide, strip - 2);
      else {
        c.fillStyle = colours.sunk;
        c.fillRect(x, top + 2, wide, strip - 2);
      }
      c.fillStyle = "rgb(128 128 128)";
      for (const { left, top: above, right, bottom } of this.patches) c.fillRect(x + left * wide, top + 2 + above * (strip - 2), (right - left) * wide, (bottom - above) * (strip - 2));
      if (this.hidden.has(keys - 1 - key)) {
        c.fillStyle = colours.card;
        c.globalAlpha = 0.75;
        c.fillRect(x, top + 2, wide, strip - 2);
        c.globalAlpha = 1;
        c.strokeStyle = colours.alert;
        c.lineWidth = 2;
        c.beginPath();
        c.moveTo(x, top + 2);
        c.lineTo(x + wide, top + strip);
        c.moveTo(x + wide, top + 2);
        c.lineTo(x, top + strip);
        c.stroke();
      }
    }
  }

  heat(c, n, start, each, top, bottom) {
    const h = (bottom - top) / n.heads;
    let most = 1e-6;
    for (let head = 0; head < n.heads; head++) for (let key = 0; key < n.keys; key++) most = Math.max(most, n.weight(head, key));
    c.fillStyle = colours.sunk;
    c.fillRect(start, top, each * n.keys, bottom - top);
    c.fillStyle = colours.policy;
    for (let head = 0; head < n.heads; head++) {
      for (let key = 0; key < n.keys; key++) {
        c.globalAlpha = n.weight(head, key) / most;
        c.fillRect(start + key * each, top + head * h, each - 0.5, Math.max(1, h - 0.5));
      }
    }
    c.globalAlpha = 1;
    c.strokeStyle = colours.ink;
    c.lineWidth = 1;
    c.strokeRect(start - 0.5, top + this.head * h - 0.5, each * n.keys + 0.5, h + 0.5);
  }
}
