// Which tiles of the road each wheel touches.

import { convexHull, isTouching } from "./polygon.js";
import { WHEEL_SHAPE } from "./rigid_car.js";

/** @typedef {import("./track.js").Point} Point */

const CELL = 8; // metres; a grid of them finds the tiles near a wheel
const REACH = 1; // more than a wheel's diagonal and its skin
const WHEEL_CORNERS = convexHull(WHEEL_SHAPE);

export class Contacts {
  /** @param {Point[][]} tiles corners of each */
  constructor(tiles) {
    this.tiles = tiles.map(convexHull);
    /** @type {Map<string, number[]>} */
    this.near = new Map();
    this.tiles.forEach((corners, tile) => {
      const [xs, ys] = [corners.map((c) => c[0]), corners.map((c) => c[1])];
      const cells = (/** @type {number[]} */ values) =>
        [Math.floor((Math.min(...values) - REACH) / CELL), Math.floor((Math.max(...values) + REACH) / CELL)];
      const [[left, right], [low, high]] = [cells(xs), cells(ys)];
      for (let column = left; column <= right; column++) {
        for (let row = low; row <= high; row++) {
          const key = `${column} ${row}`;
          if (!this.near.has(key)) this.near.set(key, []);
          this.near.get(key).push(tile);
        }
      }
    });
  }

  // Numbers of the tiles that a wheel touches.
  /** @param {import("./rigid_car.js").RigidCar} rigid @param {number} wheel */
  of(rigid, wheel) {
    const [x, y, s, c] = [rigid.originX[wheel], rigid.originY[wheel], rigid.sin[wheel], rigid.cos[wheel]];
    const tiles = this.near.get(`${Math.floor(x / CELL)} ${Math.floor(y / CELL)}`);
    if (!tiles) return [];
    const corners = WHEEL_CORNERS.map(([u, v]) => /** @type {Point} */ ([c * u - s * v + x, s * u + c * v + y]));
    return tiles.filter((tile) => isTouching(corners, this.tiles[tile]));
  }
}
