// A map of places in metres: what the map of one drive and that of several lanes have in common.

import { Surface } from "./canvas.js";
import { known } from "./dom.js";
import { Polyline } from "./line.js";

// The next line through [x, y] on a canvas, broken where a place is not known.
function trace(line, points, at) {
  for (const [x, y] of points) known(x) && known(y) ? line.to(...at(x, y)) : line.lift();
  line.lift();
}

export class MapView {
  constructor(canvas, restMs) {
    this.canvas = canvas;
    this.card = canvas.closest(".card");
    this.surface = new Surface(canvas, (c, w, h) => this.draw(c, w, h), restMs);
  }

  /** @param {CanvasRenderingContext2D} _c */
  draw(_c, _width, _height) {}

  // How places come to lie on the canvas so that all of these [x, y] are seen with so much room around; least: metres that
  // are shown at any rate. Null where no place is known.
  fit(points, [width, height], [across, down], least) {
    const box = [Infinity, Infinity, -Infinity, -Infinity];
    for (const [x, y] of points) {
      if (!known(x) || !known(y)) continue;
      box[0] = Math.min(box[0], x);
      box[1] = Math.min(box[1], y);
      box[2] = Math.max(box[2], x);
      box[3] = Math.max(box[3], y);
    }
    if (box[0] > box[2]) return null;
    const scale = Math.min((width - across) / Math.max(box[2] - box[0], least), (height - down) / Math.max(box[3] - box[1], least));
    const [cx, cy] = [(box[0] + box[2]) / 2, (box[1] + box[3]) / 2];
    const at = (x, y) => [width / 2 + (x - cx) * scale, height / 2 - (y - cy) * scale];
    return { at, scale };
  }

  // The road between its two edges, closed lines of [x, y]; null where nobody knows it.
  road(c, edges, at, colour) {
    if (!edges) return;
    c.save();
    c.fillStyle = colour;
    const line = new Polyline(c);
    for (const edge of edges) {
      trace(line, edge, at);
      c.closePath();
    }
    c.fill("evenodd");
    c.restore();
  }

  // A line through [x, y], broken where a place is not known.
  path(c, points, at, { colour, width, alpha = 1, dash = [] }) {
    c.save();
    c.strokeStyle = colour;
    c.lineWidth = width;
    c.lineJoin = "round";
    c.globalAlpha = alpha;
    c.setLineDash(dash);
    trace(new Polyline(c), points, at);
    c.stroke();
    c.restore();
  }
}
