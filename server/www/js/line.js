// Lines of charts and maps, and the extremes of what is in view.

import { known } from "./dom.js";
import { colours } from "./theme.js";

// A line that grows point by point, in pixels; a new one begins the canvas's path anew, which is then stroked or filled.
export class Polyline {
  /**
   * @param {CanvasRenderingContext2D} c
   * @param {{step?: boolean, base?: number}} [shape] step: a point's height holds up to the next one; base: each stretch is
   *   closed along this height, to be filled
   */
  constructor(c, { step = false, base = NaN } = {}) {
    this.c = c;
    this.step = step;
    this.base = base;
    this.open = false;
    this.start = 0; // of this stretch
    this.x = 0;
    this.y = 0;
    c.beginPath();
  }

  to(x, y) {
    const { c, open } = this;
    if (open) {
      if (this.step) c.lineTo(x, this.y);
      c.lineTo(x, y);
    } else if (known(this.base)) {
      c.moveTo(x, this.base);
      c.lineTo(x, y);
    } else c.moveTo(x, y);
    if (!open) this.start = x;
    this.open = true;
    this.x = x;
    this.y = y;
  }

  // The stretch ends here: the next point begins another.
  lift() {
    if (this.open && known(this.base)) {
      this.c.lineTo(this.x, this.base);
      this.c.lineTo(this.start, this.base);
    }
    this.open = false;
  }
}

// Smallest, largest and last known value of a column between two times.
export function extent(ring, t0, t1) {
  const first = ring.from(t0);
  const end = ring.from(t1 + 1e-6);
  const fold = (name, better) => {
    let best = NaN;
    for (let i = first; i < end; i++) {
      const v = ring.at(i, name);
      if (known(v) && !(better(best, v))) best = v;
    }
    return known(best) ? best : 0;
  };
  const scope = {
    max: (name) => fold(name, (best, v) => best >= v),
    min: (name) => fold(name, (best, v) => best <= v),
    last: (name) => {
      for (let i = end - 1; i >= first; i--) if (known(ring.at(i, name))) return ring.at(i, name);
      return NaN;
    },
    with: (other) => ({
      ...scope,
      max: (name) => Math.max(scope.max(name), other.max(name)),
      min: (name) => Math.min(scope.min(name), other.min(name)),
    }),
  };
  return scope;
}

export function drawLine(c, ring, series, { t0, t1 }, x, y, unit, top = 0) {
  const sign = series.sign ?? 1;
  const first = Math.max(0, ring.from(t0) - 1);
  const end = Math.min(ring.length, ring.from(t1 + 1e-6) + 1);
  c.save();
  c.strokeStyle = colours[series.colour];
  c.lineWidth = Math.max(1.4, unit * 0.13);
  c.lineJoin = "round";
  if (series.dash) c.setLineDash([unit * 0.4, unit * 0.28]);
  const line = new Polyline(c, { step: series.step, base: series.fill ? y(0) : NaN });
  let episode = NaN;
  for (let i = first; i < end; i++) {
    // when: 0 or 1 for the stretches in which the policy or a person drives.
    const shown = series.when === undefined || (ring.at(i, "person") || 0) === series.when;
    const v = shown ? ring.at(i, series.column) * sign : NaN;
    const fresh = ring.at(i, "episode") !== episode;
    episode = ring.at(i, "episode");
    // Of a sparse series, what is not known is passed over: the line goes on at the next value.
    if (fresh || (!known(v) && !series.sparse)) line.lift();
    if (known(v)) line.to(x(ring.at(i, "clock_s")), y(v));
  }
  if (series.fill) {
    line.lift();
    c.globalAlpha = 0.55;
    c.fillStyle = colours[series.colour];
    c.fill();
  } else {
    c.stroke();
  }
  if (series.late) late(c, ring, first, end, x, y, unit, top);
  c.restore();
}

// A triangle wherever a decision was missed.
function late(c, ring, first, end, x, y, unit, top) {
  c.fillStyle = colours.alert;
  for (let i = first; i < end; i++) {
    const v = ring.at(i, "decision_ms");
    if (!(ring.at(i, "missed") > ring.at(i - 1, "missed"))) continue;
    const s = unit * 0.3;
    const px = x(ring.at(i, "clock_s"));
    const py = Math.max(top + s, y(v));
    c.beginPath();
    c.moveTo(px - s, py + s);
    c.lineTo(px + s, py + s);
    c.lineTo(px, py - s);
    c.fill();
  }
}
