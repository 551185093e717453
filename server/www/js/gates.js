// phi, omega, t and the logit of every head: a bar at the mean as the attention weighs it, a whisker over the window.

import { Surface, font, rem } from "./canvas.js";
import { colours } from "./theme.js";

const PANELS = [
  { name: "phi", label: "φ", what: "target", range: [0, 1] },
  { name: "omega", label: "ω", what: "rate 1/s", range: null },
  { name: "rho", label: "ρ", what: "decay", range: null },
  { name: "t", label: "t", what: "time gate", range: [0, 1] },
  { name: "logits", label: "logit", what: "attention", range: null },
];

// Where the circuit reads the key alone, its target is bounded by tanh, and time is the key's age.
const OF_KEYS = { phi: { range: [-1, 1] }, t: { label: "lag", what: "in usual gaps", range: null } };
const FORGET = 0.03;

export class Gates {
  constructor(canvas) {
    this.ranges = {};
    this.surface = new Surface(canvas, (c, w, h) => this.draw(c, w, h), 90);
    this.neurons = null;
    this.head = 0;
  }

  clear() {
    this.ranges = {};
    this.neurons = null;
    this.surface.touch();
  }

  show(neurons, head) {
    this.neurons = neurons;
    this.head = head;
    this.surface.touch();
  }

  draw(c, width, height) {
    if (!this.neurons) return;
    const u = rem();
    const gap = 1.1 * u;
    const shown = PANELS.filter((panel) => this.neurons.has(panel.name));
    const each = (width - gap * (shown.length - 1)) / Math.max(1, shown.length);
    shown.forEach((panel, i) => this.panel(c, { ...panel, ...(this.neurons.has("rho") ? OF_KEYS[panel.name] : {}) }, i * (each + gap), each, height, u));
  }

  panel(c, panel, left, width, height, u) {
    const n = this.neurons;
    const all = Array.from({ length: n.heads }, (_, head) => n.summary(panel.name, head));
    const [lo, hi] = panel.range ?? this.grown(panel.name, all);
    const top = 1.6 * u;
    const bottom = height - 0.4 * u;
    const y = (v) => bottom - ((v - lo) / (hi - lo || 1)) * (bottom - top);
    c.textBaseline = "alphabetic";
    c.textAlign = "left";
    c.font = font(0.95, 650);
    c.fillStyle = colours.ink;
    c.fillText(panel.label, left, 0.95 * u);
    const after = left + c.measureText(panel.label).width + 0.4 * u;
    c.font = font(0.78);
    c.fillStyle = colours.dim;
    if (width > 8 * u) c.fillText(panel.what, after, 0.95 * u);
    c.textAlign = "right";
    c.fillText(hi.toFixed(hi < 10 ? 1 : 0), left + width, 0.95 * u);
    c.fillStyle = colours.line;
    c.fillRect(left, bottom, width, 1);
    const step = width / n.heads;
    all.forEach((s, head) => {
      if (!s) return;
      const x = left + head * step;
      const chosen = head === this.head;
      c.fillStyle = chosen ? colours.policy : colours.dim;
      c.globalAlpha = chosen ? 1 : 0.45;
      c.fillRect(x + 0.5, y(s.mean), Math.max(1, step - 1.5), Math.max(1, bottom - y(s.mean)));
      c.globalAlpha = 1;
      c.strokeStyle = colours.ink;
      c.lineWidth = 1;
      c.beginPath();
      c.moveTo(x + step / 2, y(s.lo));
      c.lineTo(x + step / 2, y(s.hi));
      c.stroke();
    });
  }

  // An axis that grows at once and shrinks slowly: bars do not jump, and one outlier does not flatten them for good.
  grown(name, all) {
    const present = all.filter(Boolean);
    const [lo, hi] = this.ranges[name] ?? [0, 0.1];
    const least = Math.min(0, ...present.map((s) => s.lo));
    const most = Math.max(0.1, ...present.map((s) => s.hi));
    this.ranges[name] = [Math.min(least, lo + (least - lo) * FORGET), Math.max(most, hi + (most - hi) * FORGET)];
    return this.ranges[name];
  }
}
