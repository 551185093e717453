// Strip charts on one shared time axis, with one reading line through all of them.

import { drawAxis } from "./axis.js";
import { Surface, font, rem } from "./canvas.js";
import { offsetTellsMore, rewarded } from "./decision_panel.js";
import { known } from "./dom.js";
import { colours } from "./theme.js";
import { sideOf, turn } from "./words.js";
import { drawLine, extent } from "./line.js";

const digits = (n) => (v) => (known(v) ? v.toFixed(n) : "–");

const RETURN = { name: "return", range: (s) => [Math.min(0, s.min("episode_return")), Math.max(10, s.max("episode_return") * 1.1)], text: (r) => digits(0)(r.episode_return),
  series: [{ column: "episode_return", colour: "driven", main: true }] };
// Where the world says how far from the middle of the road the car is, this tells more than the return.
const OFFSET = { name: "lane offset", unit: "m", zero: true, text: (r) => sideOf(r.lane_offset_m),
  range: (s) => { const side = Math.max(1.5, 1.1 * s.max("lane_offset_m"), -1.1 * s.min("lane_offset_m")); return [-side, side]; },
  series: [{ column: "lane_offset_m", colour: "driven", main: true }] };

const STRIPS = [
  { name: "steering", range: () => [-1.1, 1.1], zero: true, ends: ["right", "left"], text: (r) => turn(r.steering),
    series: [{ column: "expert_steering", colour: "expert", dash: true, step: true }, { column: "policy_steering", colour: "policy", step: true }, { column: "steering", colour: "person", step: true, when: 1 }, { column: "steering", colour: "policy", step: true, main: true, when: 0 }] },
  { name: "pedals", range: () => [-1.1, 1.1], zero: true, ends: ["throttle", "brake"],
    text: (r) => (r.brake > 0 ? `brake ${digits(2)(r.brake)}` : known(r.throttle) ? `gas ${digits(2)(r.throttle)}` : "–"),
    series: [{ column: "throttle", colour: "go", step: true, fill: true }, { column: "brake", colour: "stop", step: true, fill: true, sign: -1 }] },
  { name: "speed", unit: "m/s", range: (s) => [0, Math.max(10, s.max("speed_mps") * 1.1)], text: (r) => digits(1)(r.speed_mps),
    series: [{ column: "speed_mps", colour: "driven", main: true }] },
  RETURN,
  { name: "decision", unit: "ms", line: "budget_ms", text: (r) => `${digits(1)(r.decision_ms)} ms`,
    range: (s) => [0, decisionTop(s.max("decision_ms"), s.last("budget_ms"))],
    series: [{ column: "decision_ms", colour: "policy", main: true, late: true, sparse: true }] },
];

// The budget stays in view, and one very late decision does not squash the others: it is cut off at the top.
function decisionTop(slowest, budget) {
  return known(budget) ? budget * (slowest > budget ? Math.min(3, (1.15 * slowest) / budget) : 1.2) : Math.max(1, slowest * 1.2);
}

const COLUMNS = ["clock_s", "episode", "steering", "throttle", "brake", "speed_mps", "lane_offset_m", "episode_return", "decision_ms", "budget_ms"];

export class StripCharts {
  constructor(canvas) {
    this.surface = new Surface(canvas, (c, w, h) => this.draw(c, w, h));
    this.view = null;
    this.reading = NaN;
    this.onSeek = null;
    // Colour of what came of the driving, where somebody else drove than decides here.
    this.driven = "policy";
    canvas.addEventListener("pointermove", (e) => this.read(this.timeAt(e.offsetX)));
    canvas.addEventListener("pointerleave", () => this.read(NaN));
    canvas.addEventListener("blur", () => this.read(NaN));
    canvas.addEventListener("click", (e) => this.onSeek?.(this.timeAt(e.offsetX)));
    canvas.addEventListener("keydown", (e) => this.key(e));
  }

  // view: {ring, other, t0, t1, now, live, events}
  show(view) {
    this.view = view;
    this.surface.touch();
  }

  read(t) {
    if (Object.is(t, this.reading)) return;
    this.reading = t;
    this.surface.touch();
  }

  key(press) {
    if (!this.view || !this.view.live || !["ArrowLeft", "ArrowRight", "Escape"].includes(press.key)) return;
    press.preventDefault();
    if (press.key === "Escape") return this.read(NaN);
    const from = known(this.reading) ? this.reading : this.view.t1;
    this.read(Math.max(this.view.t0, Math.min(this.view.t1, from + (press.key === "ArrowLeft" ? -0.2 : 0.2))));
  }

  timeAt(x) {
    if (!this.view) return NaN;
    const { t0, t1 } = this.view;
    const t = t0 + ((x - this.left) / (this.right - this.left)) * (t1 - t0);
    return t >= t0 - 0.5 && t <= t1 + 0.5 ? Math.max(t0, Math.min(t1, t)) : NaN;
  }

  draw(c, width, height) {
    const u = rem();
    this.left = 6.7 * u;
    this.right = width - 6.4 * u;
    const bottom = height - 1.5 * u;
    const view = this.view;
    const at = (name) => view?.ring.at(view.ring.length - 1, name);
    const last = { lane_offset_m: at("lane_offset_m"), choice: at("choice"), episode_return: at("episode_return") };
    const strips = STRIPS.map((strip) => (strip === RETURN && offsetTellsMore(last) ? OFFSET : strip)).filter((strip) => strip !== RETURN || rewarded(last));
    const each = bottom / strips.length;
    const x = view ? (t) => this.left + ((t - view.t0) / (view.t1 - view.t0)) * (this.right - this.left) : null;
    if (view) drawAxis(c, x, [view.t0, view.t1], bottom, view.live ? { origin: view.now, named: "now" } : {});
    strips.forEach((strip, i) => this.strip(c, strip, i * each + 0.28 * u, (i + 1) * each - 0.28 * u, x, u));
    if (view) this.marks(c, x, bottom);
  }

  strip(c, strip, top, bottom, x, u) {
    c.fillStyle = colours.ink;
    c.font = font(0.9, 600);
    c.textAlign = "left";
    c.textBaseline = "middle";
    const middle = (top + bottom) / 2;
    // Where a strip is too low for two lines, one line says it all; the ends of the axis go last.
    const low = bottom - top < 2.3 * u;
    const name = low && strip.unit ? `${strip.name} ${strip.unit}` : strip.name;
    c.fillText(name, 0, middle);
    this.nameWidth = c.measureText(name).width;
    c.font = font(0.76);
    c.fillStyle = colours.dim;
    if (strip.unit && !low) c.fillText(strip.unit, 0, middle + 1.05 * u);
    c.textAlign = "right";
    const view = this.view;
    if (!view) return;
    const scope = extent(view.ring, view.t0, view.t1);
    const [lo, hi] = strip.range(view.other ? scope.with(extent(view.other, view.t0, view.t1)) : scope);
    const y = (v) => bottom - ((v - lo) / (hi - lo)) * (bottom - top);
    const ends = strip.ends ?? [hi.toFixed(0), lo.toFixed(0)];
    this.ends(c, ends, top, bottom, u);
    c.save();
    c.beginPath();
    c.rect(this.left, top - 3, this.right - this.left + 2, bottom - top + 6);
    c.clip();
    c.strokeStyle = colours.line;
    c.lineWidth = 1;
    for (const base of strip.zero ? [0] : [lo]) {
      c.beginPath();
      c.moveTo(this.left, y(base));
      c.lineTo(this.right, y(base));
      c.stroke();
    }
    if (strip.line) this.budget(c, scope.last(strip.line), y);
    for (const series of strip.series) {
      if (view.other && series.main) drawLine(c, view.other, { ...series, colour: "other" }, view, x, y, u);
      drawLine(c, view.ring, series.colour === "driven" ? { ...series, colour: this.driven } : series, view, x, y, u, top);
    }
    c.restore();
    this.value(c, strip, middle, u);
  }

  // The ends of a strip's axis, where they run into nothing: not into each other, nor into the name beside them.
  ends(c, [upper, lower], top, bottom, u) {
    const beside = Math.max(c.measureText(upper).width, c.measureText(lower).width);
    const free = this.left - 0.4 * u - beside > this.nameWidth + 0.4 * u;
    if (bottom - top < (free ? 1.7 : 3) * u) return;
    c.fillText(upper, this.left - 0.4 * u, top + 0.4 * u);
    c.fillText(lower, this.left - 0.4 * u, bottom - 0.4 * u);
  }

  budget(c, value, y) {
    if (!known(value)) return;
    c.save();
    c.strokeStyle = colours.ink;
    c.setLineDash([5, 4]);
    c.beginPath();
    c.moveTo(this.left, y(value));
    c.lineTo(this.right, y(value));
    c.stroke();
    c.restore();
  }

  value(c, strip, middle, u) {
    const { ring, other, t1, now } = this.view;
    const at = known(this.reading) ? this.reading : Math.min(now, t1);
    c.textAlign = "left";
    c.font = font(0.95, 650);
    c.fillStyle = colours.ink;
    c.fillText(strip.text(rowAt(ring, at)), this.right + 0.5 * u, middle - (other ? 0.55 * u : 0));
    if (!other) return;
    c.fillStyle = colours.other;
    c.fillText(strip.text(rowAt(other, at)), this.right + 0.5 * u, middle + 0.6 * u);
  }

  marks(c, x, bottom) {
    const { t0, t1, now, live, events } = this.view;
    const line = (t, colour, dash, width = 1) => {
      if (!(t >= t0 && t <= t1)) return;
      c.save();
      c.strokeStyle = colour;
      c.lineWidth = width;
      c.setLineDash(dash);
      c.beginPath();
      c.moveTo(x(t), 0);
      c.lineTo(x(t), bottom);
      c.stroke();
      c.restore();
    };
    for (const event of events) {
      line(event.clock_s, event.weight === "alert" ? colours.alert : colours.dim, [2, 3], event.weight === "alert" ? 1.5 : 1);
    }
    if (!live) line(now, colours.ink, [], 1.5);
    line(this.reading, colours.dim, [], 1);
  }
}

export function rowAt(ring, t) {
  const i = ring.upTo(t);
  return Object.fromEntries(COLUMNS.map((name) => [name, ring.at(i, name)]));
}
