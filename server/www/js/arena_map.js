// The track from above with the lines of all contestants: their cars at one simulated time, rings where they are compared.

import { font, rem, Surface, yardstick } from "./canvas.js";
import { known } from "./dom.js";
import { colourOf } from "./lane_cards.js";
import { colours } from "./theme.js";

const REST_MS = 120;

export class ArenaMap {
  constructor(canvas) {
    this.card = canvas.closest(".card");
    this.surface = new Surface(canvas, (c, w, h) => this.draw(c, w, h), REST_MS);
    this.race = null;
    this.t = NaN;
    this.rows = null;
  }

  // t: simulated time of the cars; rows: of each contestant the row that is compared.
  show(race, t, rows) {
    Object.assign(this, { race, t, rows });
    this.card.hidden = !race.lanes.some((lane) => known(lane.last("x_m")));
    if (!this.card.hidden) this.surface.touch();
  }

  draw(c, width, height) {
    const { race } = this;
    if (!race) return;
    const u = rem();
    const box = bounds(race.lanes);
    if (!box) return;
    const room = [width - 2.4 * u, height - 3 * u];
    const scale = Math.min(room[0] / Math.max(box.width, 10), room[1] / Math.max(box.height, 10));
    const at = (x, y) => [width / 2 + (x - box.x) * scale, height / 2 - 0.4 * u - (y - box.y) * scale];
    for (const lane of race.lanes) this.line(c, lane, at, u);
    if (this.rows) race.lanes.forEach((lane, k) => this.rows[k] >= 0 && this.ring(c, lane, this.rows[k], at, u));
    // The leader lies on top.
    for (const lane of race.order(this.t).reverse()) this.car(c, lane, lane.indexOfTime(this.t), at, u);
    yardstick(c, scale, height, u);
  }

  line(c, lane, at, u) {
    const every = Math.max(1, Math.floor(lane.length / 3000));
    c.strokeStyle = colours[colourOf(lane.index)];
    c.lineWidth = 0.16 * u;
    c.globalAlpha = 0.75;
    c.lineJoin = "round";
    c.beginPath();
    let open = false;
    for (let i = 0; i < lane.length; i += every) {
      const [x, y] = [lane.at(i, "x_m"), lane.at(i, "y_m")];
      if (known(x) && known(y)) c[open ? "lineTo" : "moveTo"](...at(x, y));
      open = known(x) && known(y);
    }
    c.stroke();
    c.globalAlpha = 1;
  }

  ring(c, lane, i, at, u) {
    const [x, y] = [lane.at(i, "x_m"), lane.at(i, "y_m")];
    if (!known(x) || !known(y)) return;
    c.strokeStyle = colours[colourOf(lane.index)];
    c.lineWidth = 0.16 * u;
    c.beginPath();
    c.arc(...at(x, y), 0.5 * u, 0, 2 * Math.PI);
    c.stroke();
  }

  car(c, lane, i, at, u) {
    const [x, y] = [lane.at(i, "x_m"), lane.at(i, "y_m")];
    if (!known(x) || !known(y)) return;
    const [px, py] = at(x, y);
    c.beginPath();
    c.arc(px, py, 0.62 * u, 0, 2 * Math.PI);
    c.fillStyle = colours[colourOf(lane.index)];
    c.strokeStyle = colours.card;
    c.lineWidth = 0.14 * u;
    c.fill();
    c.stroke();
    const heading = lane.at(i, "heading_rad");
    if (known(heading)) {
      c.strokeStyle = colours[colourOf(lane.index)];
      c.lineWidth = 0.2 * u;
      c.beginPath();
      c.moveTo(px + 0.62 * u * Math.cos(heading), py - 0.62 * u * Math.sin(heading));
      c.lineTo(px + 1.1 * u * Math.cos(heading), py - 1.1 * u * Math.sin(heading));
      c.stroke();
    }
    c.fillStyle = colours.card;
    c.font = font(0.76, 700);
    c.textAlign = "center";
    c.textBaseline = "middle";
    c.fillText(`${lane.index + 1}`, px, py + 0.03 * u);
  }
}

function bounds(lanes) {
  let [x0, x1, y0, y1] = [Infinity, -Infinity, Infinity, -Infinity];
  for (const lane of lanes) {
    for (let i = 0; i < lane.length; i++) {
      const [x, y] = [lane.at(i, "x_m"), lane.at(i, "y_m")];
      if (!known(x) || !known(y)) continue;
      [x0, x1, y0, y1] = [Math.min(x0, x), Math.max(x1, x), Math.min(y0, y), Math.max(y1, y)];
    }
  }
  return x1 < x0 ? null : { x: (x0 + x1) / 2, y: (y0 + y1) / 2, width: x1 - x0, height: y1 - y0 };
}
