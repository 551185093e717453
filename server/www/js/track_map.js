// Where the car is, from above: the line it has driven on this track, coloured where policy and expert disagree.

import { Surface, font, rem } from "./canvas.js";
import { $, fixed, known, percent, put } from "./dom.js";
import { colours } from "./theme.js";

export class TrackMap {
  constructor(canvas) {
    this.canvas = canvas;
    this.card = canvas.closest(".card");
    this.surface = new Surface(canvas, (c, w, h) => this.draw(c, w, h), 90);
    this.clear();
  }

  clear() {
    this.ring = null;
    this.row = null;
    this.card.hidden = true;
  }

  show(ring, row) {
    this.ring = ring;
    this.row = row;
    if (this.card.hidden === known(row.x_m)) {
      this.card.hidden = !known(row.x_m);
      this.surface.fit();
    }
    if (this.card.hidden) return;
    put($("map-note"), known(row.progress) ? `${percent(row.progress)} driven in ${fixed(row.t_s, 1)} s` : "the line driven so far");
    this.surface.touch();
  }

  // Rows of the episode that is shown, oldest first.
  bounds() {
    const { ring, row } = this;
    let end = ring.length;
    while (end > 0 && ring.at(end - 1, "episode") !== row.episode) end--;
    let first = end;
    while (first > 0 && ring.at(first - 1, "episode") === row.episode) first--;
    const box = [Infinity, Infinity, -Infinity, -Infinity];
    for (let i = first; i < end; i++) {
      const [x, y] = [ring.at(i, "x_m"), ring.at(i, "y_m")];
      if (!known(x) || !known(y)) continue;
      box[0] = Math.min(box[0], x);
      box[1] = Math.min(box[1], y);
      box[2] = Math.max(box[2], x);
      box[3] = Math.max(box[3], y);
    }
    return { first, end, box };
  }

  draw(c, width, height) {
    if (!this.row || this.card.hidden) return;
    const u = rem();
    const { first, end, box } = this.bounds();
    if (box[0] > box[2]) return;
    const span = Math.max(box[2] - box[0], box[3] - box[1], 40);
    const scale = (Math.min(width, height) - 2.4 * u) / span;
    const [cx, cy] = [(box[0] + box[2]) / 2, (box[1] + box[3]) / 2];
    const at = (x, y) => [width / 2 + (x - cx) * scale, height / 2 - (y - cy) * scale];
    this.line(c, first, end, at, u);
    this.car(c, at, u);
    this.yardstick(c, scale, height, u);
  }

  line(c, first, end, at, u) {
    c.lineCap = c.lineJoin = "round";
    let before = null;
    for (let i = first; i < end; i++) {
      const [x, y] = [this.ring.at(i, "x_m"), this.ring.at(i, "y_m")];
      if (!known(x) || !known(y)) {
        before = null;
        continue;
      }
      const here = at(x, y);
      if (before) {
        const differs = disagrees(this.ring, i);
        c.strokeStyle = this.ring.at(i, "person") ? colours.person : differs ? colours.expert : colours.policy;
        c.lineWidth = (differs ? 0.34 : 0.18) * u;
        c.beginPath();
        c.moveTo(...before);
        c.lineTo(...here);
        c.stroke();
      }
      before = here;
    }
  }

  car(c, at, u) {
    const { x_m: x, y_m: y, heading_rad: heading } = this.row;
    if (!known(x) || !known(y)) return;
    c.save();
    c.translate(...at(x, y));
    c.rotate(-(known(heading) ? heading : 0));
    c.fillStyle = colours.ink;
    c.strokeStyle = colours.card;
    c.lineWidth = 0.12 * u;
    c.beginPath();
    if (known(heading)) {
      c.moveTo(0.75 * u, 0);
      c.lineTo(-0.5 * u, 0.45 * u);
      c.lineTo(-0.25 * u, 0);
      c.lineTo(-0.5 * u, -0.45 * u);
      c.closePath();
    } else c.arc(0, 0, 0.45 * u, 0, 2 * Math.PI);
    c.fill();
    c.stroke();
    c.restore();
  }

  yardstick(c, scale, height, u) {
    const metres = [5, 10, 20, 50, 100, 200, 500, 1000].find((m) => m * scale > 2.5 * u) ?? 2000;
    c.fillStyle = colours.dim;
    c.fillRect(0, height - 0.3 * u, metres * scale, 0.12 * u);
    c.font = font(0.78);
    c.textAlign = "left";
    c.textBaseline = "alphabetic";
    c.fillText(`${metres} m`, 0, height - 0.55 * u);
  }
}

// Whether the expert would have done something else than what was driven.
export function disagrees(ring, i) {
  const [choice, expert] = [ring.at(i, "choice"), ring.at(i, "expert_choice")];
  if (known(choice) && known(expert)) return choice !== expert;
  return Math.abs(ring.at(i, "steering") - ring.at(i, "expert_steering")) >= 0.1;
}
