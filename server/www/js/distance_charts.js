// Strips over the distance: what each contestant did at the same place. The pointer, a click or the arrow keys pick a place.

import { drawAxis } from "./axis.js";
import { Surface, font, rem } from "./canvas.js";
import { fixed, known } from "./dom.js";
import { colourOf } from "./lane_cards.js";
import { Polyline } from "./line.js";
import { colours } from "./theme.js";

const DASHES = [[], [0.7, 0.3], [0.2, 0.25], [1.1, 0.3, 0.2, 0.3], [0.45, 0.45], [1.6, 0.4]];
const CHARTS_REST_MS = 120;
// Arrow keys move by this share of what is shown.
const STEP = 1 / 200;

const digits = (n) => (v) => (known(v) ? v.toFixed(n) : "–");
const STRIPS = [
  { name: "delta", unit: "s", zero: true, ends: ["ahead", "behind"], least: 0.2, symmetric: true, text: (v) => (known(v) ? `${v < 0 ? "−" : "+"}${Math.abs(v).toFixed(2)}` : "–"), delta: true, byTime: false },
  { name: "return", column: "episode_return", least: 10, text: digits(0), byTime: true },
  { name: "speed", unit: "m/s", column: "speed_mps", least: 10, text: digits(1) },
  { name: "steering", column: "steering", ends: ["right", "left"], zero: true, least: 1, symmetric: true, text: digits(2), step: true },
  { name: "lane offset", unit: "m", column: "lane_offset_m", ends: ["right", "left"], zero: true, least: 1.5, symmetric: true, text: digits(1) },
];

export class DistanceCharts {
  // acts: look(place or NaN), keep(place or NaN).
  constructor(canvas, acts) {
    this.canvas = canvas;
    this.acts = acts;
    this.race = null;
    this.place = NaN;
    this.kept = false;
    this.surface = new Surface(canvas, (c, w, h) => this.draw(c, w, h), CHARTS_REST_MS);
    canvas.addEventListener("pointermove", (e) => acts.look(this.placeAt(e.offsetX)));
    canvas.addEventListener("pointerleave", () => acts.look(NaN));
    canvas.addEventListener("click", (e) => acts.keep(this.placeAt(e.offsetX)));
    canvas.addEventListener("keydown", (e) => this.key(e));
  }

  // place: where all are compared; kept: whether a person has chosen it.
  show(race, place, kept) {
    Object.assign(this, { race, place, kept });
    this.canvas.setAttribute("aria-valuemax", this.end.toFixed(0));
    if (known(place)) this.canvas.setAttribute("aria-valuenow", place.toFixed(1));
    this.canvas.setAttribute("aria-valuetext", known(place) ? this.describe(place) : "no place yet");
    this.surface.touch();
  }

  get end() {
    return Math.max(this.race?.furthest ?? 0, this.race?.byTime ? 1 : 20);
  }

  // In words, for those who do not see the lines.
  describe(place) {
    const { race } = this;
    const parts = race.lanes.map((lane) => {
      const i = lane.index_at(place, race.byTime);
      const speed = lane.at(i, "speed_mps");
      return i < 0 ? `${lane.name}: not there` : `${lane.name}: ${fixed(lane.at(i, "t_s"), 1)} s${known(speed) ? `, ${speed.toFixed(1)} m/s` : ""}`;
    });
    return `${place.toFixed(0)} ${race.byTime ? "s" : "m"}; ${parts.join("; ")}`;
  }

  placeAt(x) {
    if (!this.race || !(this.right > this.left)) return NaN;
    const place = ((x - this.left) / (this.right - this.left)) * this.end;
    return place < -0.02 * this.end || place > 1.02 * this.end ? NaN : Math.max(0, Math.min(this.race.furthest, place));
  }

  key(press) {
    const steps = { ArrowLeft: -1, ArrowRight: 1, PageUp: 10, PageDown: -10 }[press.key];
    if (press.key === "Escape") return this.acts.keep(NaN);
    if (!this.race) return;
    let place = NaN;
    if (steps) place = (known(this.place) ? this.place : this.end) + steps * STEP * this.end;
    if (press.key === "Home") place = 0;
    if (press.key === "End") place = this.race.furthest;
    if (!known(place)) return;
    press.preventDefault();
    this.acts.keep(Math.max(0, Math.min(this.race.furthest, place)));
  }

  draw(c, width, height) {
    const { race } = this;
    if (!race) return;
    const u = rem();
    this.left = 5.9 * u;
    this.right = width - 0.6 * u - Math.min(5.4 * u, width * 0.2);
    const bottom = height - 1.6 * u;
    const strips = STRIPS.filter((strip) => this.fits(strip));
    const each = bottom / strips.length;
    const x = (place) => this.left + (place / this.end) * (this.right - this.left);
    drawAxis(c, x, [0, this.end], bottom, { unit: race.byTime ? "s" : "m" });
    strips.forEach((strip, k) => this.strip(c, strip, k * each + 0.35 * u, (k + 1) * each - 0.35 * u, x, u));
    if (known(this.place)) {
      c.strokeStyle = this.kept ? colours.policy : colours.dim;
      c.lineWidth = this.kept ? 2 : 1;
      c.beginPath();
      c.moveTo(x(this.place), 0);
      c.lineTo(x(this.place), bottom);
      c.stroke();
    }
  }

  fits(strip) {
    if (strip.byTime !== undefined && strip.byTime !== this.race.byTime) return false;
    return strip.delta || this.race.lanes.some((lane) => known(lane.last(strip.column)));
  }

  // Points [place, value] of a lane, no more than there are pixels for.
  points(strip, lane) {
    const { race } = this;
    const every = Math.max(1, Math.floor(lane.length / (2 * (this.right - this.left))));
    const points = [];
    for (let i = 0; i < lane.length; i += every) {
      const place = race.byTime ? lane.at(i, "t_s") : lane.reach[i];
      // Ahead is above the line: positive where contestant 1 came later.
      points.push([place, strip.delta ? race.lanes[0].timeAt(place) - lane.timeAt(place) : lane.at(i, strip.column)]);
    }
    return points;
  }

  strip(c, strip, top, bottom, x, u) {
    const lines = this.race.lanes.map((lane) => this.points(strip, lane));
    let [low, high] = [strip.symmetric ? -strip.least : 0, strip.least];
    for (const line of lines) {
      for (const [, v] of line) {
        if (!known(v)) continue;
        high = Math.max(high, v * 1.08);
        low = Math.min(low, v * 1.08);
      }
    }
    if (strip.symmetric) [low, high] = [-Math.max(high, -low), Math.max(high, -low)];
    const y = (v) => bottom - ((v - low) / (high - low)) * (bottom - top);
    c.fillStyle = colours.ink;
    c.font = font(0.86, 600);
    c.textAlign = "right";
    c.textBaseline = "middle";
    const middle = (top + bottom) / 2;
    const roomy = bottom - top > 3.6 * u;
    c.fillText(strip.name, this.left - 0.6 * u, roomy && strip.ends ? middle - 0.2 * u : middle);
    c.fillStyle = colours.dim;
    c.font = font(0.76);
    if (strip.unit && !(roomy && strip.ends)) c.fillText(strip.unit, this.left - 0.6 * u, middle + 1.05 * u);
    else if (strip.unit) c.fillText(strip.unit, this.left - 0.6 * u, middle + 0.8 * u);
    if (strip.ends && roomy) {
      c.fillText(strip.ends[0], this.left - 0.6 * u, top + 0.4 * u);
      c.fillText(strip.ends[1], this.left - 0.6 * u, bottom - 0.4 * u);
    }
    if (strip.zero) {
      c.strokeStyle = colours.dim;
      c.lineWidth = 1;
      c.setLineDash([2, 3]);
      c.beginPath();
      c.moveTo(this.left, y(0));
      c.lineTo(this.right, y(0));
      c.stroke();
      c.setLineDash([]);
    }
    lines.forEach((line, k) => this.line(c, line, k, x, y, strip, u));
    this.values(c, strip, top, bottom, u);
  }

  line(c, points, index, x, y, strip, u) {
    c.strokeStyle = colours[colourOf(index)];
    c.lineWidth = 0.13 * u;
    c.setLineDash(DASHES[index].map((length) => length * u));
    const line = new Polyline(c, { step: strip.step });
    for (const [place, v] of points) known(v) ? line.to(x(place), y(v)) : line.lift();
    c.stroke();
    c.setLineDash([]);
  }

  // What each has at the place that is compared, on the right, one below the other.
  values(c, strip, top, bottom, u) {
    const { race } = this;
    const count = race.lanes.length;
    const each = Math.min(1.15 * u, (bottom - top) / count);
    c.textAlign = "left";
    c.textBaseline = "middle";
    c.font = font(Math.min(0.84, each / u), 600);
    const first = (top + bottom) / 2 - ((count - 1) * each) / 2;
    race.lanes.forEach((lane, k) => {
      const i = known(this.place) ? lane.index_at(this.place, race.byTime) : lane.length - 1;
      const value = i < 0 ? NaN : strip.delta ? race.lanes[0].timeAt(this.place) - lane.timeAt(this.place) : lane.at(i, strip.column);
      c.fillStyle = colours[colourOf(k)];
      c.fillText(`${k + 1}  ${strip.text(value)}`, this.right + 0.6 * u, first + k * each);
    });
  }
}
