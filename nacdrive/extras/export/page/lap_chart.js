// The whole lap at a glance: steering over time, and the line that was driven, from above.

import { $ } from "/js/dom.js";
import { sameDecision } from "./lap.js";

const GUTTER = 38; // pixels beside the lap's lines, for words

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

export class LapChart {
  constructor(lap) {
    this.lap = lap;
    this.largest = null;
  }

  // at: the frame that is shown; tried: decisions of the whole lap under edits, or null.
  draw(at, tried) {
    const { lap } = this;
    const [pen, w, h] = this.sized($("strip"));
    if (!w) return;
    const [first, span] = [lap.t_s[0], lap.t_s[lap.length - 1] - lap.t_s[0] || 1];
    const x = (i) => GUTTER + ((lap.t_s[i] - first) / span) * (w - GUTTER - 6);
    const top = 20;
    const y = (v) => top + (h - top - 22) * (0.5 + 0.5 * Math.min(1, Math.max(-1, v / this.reach)));
    pen.font = "12px system-ui, sans-serif";
    pen.fillStyle = colour("dim");
    pen.fillText("left", 0, y(-this.reach) + 9);
    pen.fillText("right", 0, y(this.reach));
    pen.fillText("0 s", GUTTER, h - 4);
    pen.textAlign = "right";
    pen.fillText(`${span.toFixed(0)} s`, w - 6, h - 4);
    pen.textAlign = "left";
    pen.fillStyle = colour("line");
    pen.fillRect(GUTTER, y(0), w - GUTTER - 6, 1);
    const line = (value, name, width, dash = []) => {
      pen.strokeStyle = colour(name);
      pen.lineWidth = width;
      pen.setLineDash(dash);
      pen.lineJoin = "round";
      pen.beginPath();
      let drawing = false;
      for (let i = 0; i < lap.length; i++) {
        const v = value(i);
        if (v === null) drawing = false;
        else drawing ? pen.lineTo(x(i), y(v)) : pen.moveTo(x(i), y(v));
        drawing = v !== null;
      }
      pen.stroke();
      pen.setLineDash([]);
    };
    line((i) => lap.steering[i], "expert", 1.4, [4, 3]);
    line((i) => (lap.plain[i] ? lap.lean(lap.plain[i]) : null), "policy", 1.8);
    if (tried) line((i) => lap.lean(tried[i]), "other", 1.8);
    pen.fillStyle = colour("alert");
    const judged = tried ?? lap.plain;
    for (let i = 0; i < lap.length; i++) if (judged[i] && !sameDecision(judged[i], lap.driven(i))) pen.fillRect(x(i) - 1, 3, 2, 9);
    pen.fillStyle = colour("ink");
    pen.fillRect(x(at) - 1, 0, 2, h);
    $("key-edited").hidden = !tried;
    this.drawMap(at, judged);
  }

  // The frame at a place of the line over time, given in pixels from its left end.
  frameAt(pixels, width) {
    const { t_s, length } = this.lap;
    const t = t_s[0] + ((pixels - GUTTER) / (width - GUTTER - 6)) * (t_s[length - 1] - t_s[0]);
    const i = t_s.findIndex((s) => s >= t);
    return i < 0 ? length - 1 : i;
  }

  // Round the largest steering up, so that a straight road is no noise and a bend is not cut off.
  get reach() {
    return (this.largest ??= Math.max(0.2, ...this.lap.steering.map(Math.abs)));
  }

  drawMap(shown, judged) {
    const { lap } = this;
    if (!lap.x_m) return;
    const [pen, w, h] = this.sized($("map"));
    const ghosts = [lap.ghost?.unedited ?? [], lap.ghost?.edited ?? []].map((line) => line.map(({ x_m, y_m }) => [x_m, y_m]));
    const driven = lap.x_m.map((x, i) => [x, lap.y_m[i]]);
    const known = ([x]) => x !== null;
    const all = [...driven, ...ghosts.flat()].filter(known);
    const [xs, ys] = [all.map(([x]) => x), all.map(([, y]) => y)];
    const [left, right, low, high] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
    const scale = Math.min((w - 20) / Math.max(right - left, 20), (h - 20) / Math.max(high - low, 20));
    const at = ([x, y]) => [w / 2 + (x - (left + right) / 2) * scale, h / 2 - (y - (low + high) / 2) * scale];
    pen.lineCap = pen.lineJoin = "round";
    const trace = (points) => {
      let open = false;
      for (const point of points) {
        if (known(point)) pen[open ? "lineTo" : "moveTo"](...at(point));
        open = known(point);
      }
    };
    if (lap.road) {
      pen.fillStyle = colour("line");
      pen.beginPath();
      for (const edge of lap.road) {
        trace(edge);
        pen.closePath();
      }
      pen.fill("evenodd");
    }
    const stroke = (points, name, width, dash = []) => {
      pen.strokeStyle = colour(name);
      pen.lineWidth = width;
      pen.setLineDash(dash);
      pen.beginPath();
      trace(points);
      pen.stroke();
      pen.setLineDash([]);
    };
    stroke(driven, "policy", 2);
    for (let i = 1; i < lap.length; i++) {
      if (judged[i] && !sameDecision(judged[i], lap.driven(i))) stroke(driven.slice(i - 1, i + 1), "alert", 4);
    }
    stroke(ghosts[0], "ink", 1.5, [3, 4]);
    stroke(ghosts[1], "stop", 3);
    const disc = (point, name) => {
      pen.fillStyle = colour(name);
      pen.beginPath();
      pen.arc(...at(point), 5, 0, 2 * Math.PI);
      pen.fill();
    };
    const ghost = lap.ghostAt(shown);
    if (ghost) disc([ghost.x_m, ghost.y_m], "stop");
    if (known(driven[shown])) disc(driven[shown], "ink");
  }

  sized(canvas) {
    const scale = devicePixelRatio || 1;
    const { clientWidth: w, clientHeight: h } = canvas;
    if (canvas.width !== Math.round(w * scale) || canvas.height !== Math.round(h * scale)) [canvas.width, canvas.height] = [w * scale, h * scale];
    const pen = canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, w, h);
    return [pen, w, h];
  }
}
