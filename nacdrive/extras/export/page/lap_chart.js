// The whole lap at a glance: steering over time, and the line that was driven, from above.

import { drawAxis } from "/js/axis.js";
import { Surface, font, rem, yardstick } from "/js/canvas.js";
import { $, canvas, known } from "/js/dom.js";
import { Polyline } from "/js/line.js";
import { MapView } from "/js/map_view.js";
import { colours } from "/js/theme.js";
import { sameDecision } from "./lap.js";

const LEAST_STEERING = 0.2; // of the steering: a straight road is no noise
const LEAST_METRES = 20; // that the map shows at any rate

export class LapChart {
  constructor(lap) {
    this.lap = lap;
    this.at = 0;
    this.tried = null;
    this.left = 0; // ends of the axis, in pixels
    this.right = 0;
    // A bend is not cut off.
    this.reach = lap.steering.reduce((most, v) => Math.max(most, Math.abs(v)), LEAST_STEERING);
    this.map = lap.x_m ? new LapMap(canvas("map"), lap) : null;
    this.surface = new Surface(canvas("strip"), (c, w, h) => this.draw(c, w, h));
  }

  // at: the frame that is shown; tried: decisions of the whole lap under edits, or null.
  show(at, tried) {
    Object.assign(this, { at, tried });
    $("key-edited").hidden = !tried;
    this.surface.touch();
    this.map?.show(at, tried ?? this.lap.plain);
  }

  get span() {
    const { t_s, length } = this.lap;
    return t_s[length - 1] - t_s[0] || 1;
  }

  draw(c, width, height) {
    const { lap, tried } = this;
    const u = rem();
    [this.left, this.right] = [2.7 * u, width - 1.2 * u];
    const [top, bottom] = [1.3 * u, height - 1.5 * u];
    const x = (t) => this.left + ((t - lap.t_s[0]) / this.span) * (this.right - this.left);
    const y = (v) => (top + bottom) / 2 - ((bottom - top) / 2) * Math.min(1, Math.max(-1, v / this.reach));
    const [first, last] = [lap.t_s[0], lap.t_s[lap.length - 1]];
    drawAxis(c, x, [first, last], bottom);
    c.font = font(0.82);
    c.fillStyle = colours.dim;
    c.textAlign = "left";
    c.textBaseline = "middle";
    c.fillText("right", 0, y(this.reach) + 0.4 * u);
    c.fillText("left", 0, y(-this.reach) - 0.4 * u);
    c.fillStyle = colours.line;
    c.fillRect(this.left, Math.round(y(0)), this.right - this.left, 1);
    const line = (value, colour, width, dash = []) => {
      c.strokeStyle = colour;
      c.lineWidth = width;
      c.lineJoin = "round";
      c.setLineDash(dash);
      const path = new Polyline(c);
      for (let i = 0; i < lap.length; i++) {
        const v = value(i);
        known(v) ? path.to(x(lap.t_s[i]), y(v)) : path.lift();
      }
      c.stroke();
      c.setLineDash([]);
    };
    line((i) => lap.steering[i], colours.expert, 0.1 * u, [0.28 * u, 0.2 * u]);
    line((i) => lap.plain[i] && lap.lean(lap.plain[i]), colours.policy, 0.13 * u);
    if (tried) line((i) => lap.lean(tried[i]), colours.other, 0.13 * u);
    c.fillStyle = colours.alert;
    const judged = tried ?? lap.plain;
    for (let i = 0; i < lap.length; i++) if (differs(lap, judged, i)) c.fillRect(x(lap.t_s[i]) - 1, 3, 2, 9);
    c.fillStyle = colours.ink;
    c.fillRect(x(lap.t_s[this.at]) - 1, 0, 2, bottom);
  }

  // The frame at a place of the line over time, given in pixels from the chart's left end.
  frameAt(pixels) {
    const { t_s, length } = this.lap;
    const t = t_s[0] + ((pixels - this.left) / (this.right - this.left)) * this.span;
    const i = t_s.findIndex((s) => s >= t);
    return i < 0 ? length - 1 : i;
  }
}

class LapMap extends MapView {
  constructor(canvas, lap) {
    super(canvas, 0);
    this.lap = lap;
    this.at = 0;
    this.judged = lap.plain;
  }

  // judged: of each frame the decision that is held against what was driven, or null.
  show(at, judged) {
    Object.assign(this, { at, judged });
    this.surface.touch();
  }

  /** @override */
  draw(c, width, height) {
    const { lap } = this;
    const u = rem();
    const driven = lap.x_m.map((x, i) => [x, lap.y_m[i]]);
    const [unedited, edited] = [lap.ghost?.unedited ?? [], lap.ghost?.edited ?? []].map((line) => line.map(({ x_m, y_m }) => [x_m, y_m]));
    const fitted = this.fit([...driven, ...edited, ...unedited], [width, height], [2.4 * u, 2.4 * u], LEAST_METRES);
    if (!fitted) return;
    const { at, scale } = fitted;
    c.lineCap = "round";
    this.road(c, lap.road, at, colours.line);
    this.path(c, driven, at, { colour: colours.policy, width: 0.14 * u });
    for (let i = 1; i < lap.length; i++) {
      if (differs(lap, this.judged, i)) this.path(c, driven.slice(i - 1, i + 1), at, { colour: colours.alert, width: 0.28 * u });
    }
    this.path(c, unedited, at, { colour: colours.ink, width: 0.11 * u, dash: [0.22 * u, 0.3 * u] });
    this.path(c, edited, at, { colour: colours.stop, width: 0.22 * u });
    const disc = ([x, y], colour) => {
      if (!known(x) || !known(y)) return;
      c.fillStyle = colour;
      c.beginPath();
      c.arc(...at(x, y), 0.36 * u, 0, 2 * Math.PI);
      c.fill();
    };
    const ghost = lap.ghostAt(this.at);
    if (ghost) disc([ghost.x_m, ghost.y_m], colours.stop);
    disc(driven[this.at], colours.ink);
    yardstick(c, scale, height, u);
  }
}

function differs(lap, judged, i) {
  return judged[i] && !sameDecision(judged[i], lap.driven(i));
}
