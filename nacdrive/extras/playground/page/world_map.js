// The field with its road as one picture, from which the camera takes its own.

import { emptyPicture, fillConvex, FRACTION, roundEven } from "./raster.js";
import { PLAYFIELD } from "./track.js";

export const MAP_SCALE = 3; // pixels in a metre
const GRASS = PLAYFIELD / 20; // side of a square of lighter grass
const [FIELD_COLOUR, GRASS_COLOUR] = [[102, 204, 102], [102, 230, 102]];
const LOSS = 2; // levels that the official picture's down-scaling takes from every channel

/** @param {number[]} colour */
export const shownColour = (colour) => colour.map((level) => Math.max(level - LOSS, 0));

function emptyField() {
  const half = PLAYFIELD * MAP_SCALE;
  const side = Math.round(2 * half);
  const field = emptyPicture(side, side);
  const edge = (/** @type {number} */ k) => Math.round(half + k * GRASS * MAP_SCALE);
  const rows = [FIELD_COLOUR, GRASS_COLOUR].map(() => new Uint8Array(side * 3));
  for (let x = 0; x < side; x++) for (const row of rows) row.set(shownColour(FIELD_COLOUR), x * 3);
  for (let k = -20; k < 20; k += 2) for (let x = edge(k); x < edge(k + 1); x++) rows[1].set(shownColour(GRASS_COLOUR), x * 3);
  for (let y = 0; y < side; y++) field.bytes.set(rows[0], y * side * 3);
  for (let k = -20; k < 20; k += 2) for (let y = edge(k); y < edge(k + 1); y++) field.bytes.set(rows[1], y * side * 3);
  return field;
}

/** @type {Uint8Array | null} */
let field = null;

// The map of a road; one is kept and drawn over, for it takes 12 MB.
export class WorldMap {
  constructor() {
    this.picture = emptyField();
    field ??= this.picture.bytes.slice();
  }

  /** @param {import("./track.js").Road} road */
  draw({ patches }) {
    this.picture.bytes.set(field);
    for (const { corners, colour } of patches) {
      const points = corners.map(([x, y]) => [(x + PLAYFIELD) * MAP_SCALE - 0.5, (y + PLAYFIELD) * MAP_SCALE - 0.5]);
      // OpenCV fills the outline too: half a pixel less on each side.
      const narrow = points.map(([x, y], i) => {
        const [dx, dy] = [points[i ^ 1][0] - x, points[i ^ 1][1] - y];
        const share = 0.5 / Math.max(Math.hypot(dx, dy), 1e-9);
        return [x + dx * share, y + dy * share];
      });
      fillConvex(this.picture, narrow.map((point) => point.map((v) => roundEven(v * FRACTION))), shownColour(colour));
    }
  }
}
