// The track from above with the lines of all contestants: their cars at one simulated time, rings where they are compared.

import { font, rem, yardstick } from "./canvas.js";
import { known } from "./dom.js";
import { colourOf } from "./lane_cards.js";
import { MapView } from "./map_view.js";
import { colours } from "./theme.js";

const MAP_REST_MS = 120;

const places = (lane) => {
  const every = Math.max(1, Math.floor(lane.length / 3000));
  return Array.from({ length: Math.ceil(lane.length / every) }, (_, k) => [lane.at(k * every, "x_m"), lane.at(k * every, "y_m")]);
};

export class ArenaMap extends MapView {
  constructor(canvas) {
    super(canvas, MAP_REST_MS);
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
    const lines = race.lanes.map(places);
    const fitted = this.fit(lines.flat(), [width, height], [2.4 * u, 3 * u], 10);
    if (!fitted) return;
    const { at, scale } = fitted;
    lines.forEach((line, k) => this.path(c, line, at, { colour: colours[colourOf(k)], width: 0.16 * u, alpha: 0.75 }));
    if (this.rows) race.lanes.forEach((lane, k) => this.rows[k] >= 0 && this.ring(c, lane, this.rows[k], at, u));
    // The leader lies on top.
    for (const lane of race.order(this.t).reverse()) this.car(c, lane, lane.indexOfTime(this.t), at, u);
    yardstick(c, scale, height, u);
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
