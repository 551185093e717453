// What the network gets of the world: 96 x 96 pixels from above the car, drawn as nacdrive's fast renderer draws them.

import { drawInstruments } from "./instruments.js";
import { emptyPicture, fillConvex, FRACTION, halve, lookThrough, roundEven } from "./raster.js";
import { HULL_SHAPES, WHEEL_SHAPE } from "./rigid_car.js";
import { PLAYFIELD } from "./track.js";
import { MAP_SCALE, shownColour } from "./world_map.js";

/** @typedef {import("./track.js").Point} Point */

export const SIDE = 96;
const VIEW_HEIGHT = 84; // rows above the instruments
const [WINDOW_WIDTH, WINDOW_HEIGHT] = [1000, 800]; // of the official window, in whose pixels the zoom is
const [FAR, NEAR] = [0.1 * 6, 2.7 * 6]; // pixels in a metre at the start, and from the first second on
const [TOP, BOTTOM, LEFT, RIGHT] = [65, 80, 43, 53]; // where the car is in a frame
const ANGLE_STEP = 0.01; // radians of the front wheels between two pictures of the car
const FILL_MARGIN = 0.14; // metres by which OpenCV's fill widens a part of the car
const [HULL_PAINT, WHEEL_PAINT] = [shownColour([204, 0, 0]), [0, 0, 0]];

// A part of the car made smaller by what the fill adds.
/** @param {Point[]} shape */
function shrink(shape) {
  const range = (/** @type {number[]} */ values) => [(Math.max(...values) + Math.min(...values)) / 2, (Math.max(...values) - Math.min(...values)) / 2];
  const [[middleX, halfX], [middleY, halfY]] = [range(shape.map((p) => p[0])), range(shape.map((p) => p[1]))];
  const smaller = (/** @type {number} */ v, /** @type {number} */ middle, /** @type {number} */ half) => middle + (v - middle) * Math.max(1 - FILL_MARGIN / half, 0);
  return shape.map(([x, y]) => [smaller(x, middleX, halfX), smaller(y, middleY, halfY)]);
}
const [HULL_PARTS, WHEEL_PART] = [HULL_SHAPES.map(shrink), shrink(WHEEL_SHAPE)];

/**
 * Pictures that Python has drawn: of the car by the angle of its wheels (of each pixel the share of the world that stays
 * and the red that is added, in 256ths), and of every score.
 * @typedef {{firstAngle: number, stays: Uint16Array, red: Uint16Array, firstScore: number, scores: Uint8Array}} Sprites
 */

export class Camera {
  /** @param {import("./world_map.js").WorldMap} map @param {Sprites} sprites */
  constructor(map, sprites) {
    this.map = map;
    this.sprites = sprites;
    this.twice = emptyPicture(2 * SIDE, 2 * VIEW_HEIGHT);
  }

  // The frame of a world as it is now: bytes [96][96][3], new ones.
  /** @param {import("./carracing.js").CarRacing} world */
  frame(world) {
    const frame = emptyPicture(SIDE, SIDE);
    const view = { width: SIDE, height: VIEW_HEIGHT, bytes: frame.bytes.subarray(0, SIDE * VIEW_HEIGHT * 3) };
    if (world.t < 1) this.#viewByPolygons(world, view);
    else this.#view(world, view);
    drawInstruments(frame, world, this.sprites);
    return frame.bytes;
  }

  #view(/** @type {any} */ world, /** @type {import("./raster.js").Picture} */ view) {
    const { rigid } = world.car;
    this.#lookDown(rigid, NEAR, view);
    const { firstAngle, stays, red } = this.sprites;
    const size = (BOTTOM - TOP) * (RIGHT - LEFT);
    const picture = roundEven((rigid.jointAngle(1) + rigid.jointAngle(2)) / 2 / ANGLE_STEP) - firstAngle;
    let k = Math.min(Math.max(picture, 0), stays.length / size - 1) * size;
    for (let row = TOP; row < BOTTOM; row++) {
      for (let i = (row * SIDE + LEFT) * 3; i < (row * SIDE + RIGHT) * 3; i += 3, k++) {
        view.bytes[i] = (view.bytes[i] * stays[k] + red[k]) >> 8;
        view.bytes[i + 1] = (view.bytes[i + 1] * stays[k]) >> 8;
        view.bytes[i + 2] = (view.bytes[i + 2] * stays[k]) >> 8;
      }
    }
  }

  // At twice the size, with every part of the car where it is: while the view zooms.
  #viewByPolygons(/** @type {any} */ world, /** @type {import("./raster.js").Picture} */ view) {
    const { rigid } = world.car;
    const zoom = FAR * Math.max(1 - world.t, 0) + NEAR * Math.min(world.t, 1);
    const canvas = this.twice;
    this.#lookDown(rigid, zoom, canvas);
    const [cos, sin] = [Math.cos(rigid.angle[0]), Math.sin(rigid.angle[0])];
    const scale = [((zoom * 2 * SIDE) / WINDOW_WIDTH) * FRACTION, ((-zoom * 2 * SIDE) / WINDOW_HEIGHT) * FRACTION];
    const offset = [(SIDE - 0.5) * FRACTION, (2 * SIDE * 0.75 - 0.5) * FRACTION];
    const draw = (/** @type {number} */ body, /** @type {number[][]} */ points, /** @type {number[]} */ paint) => {
      const turn = rigid.angle[body] - rigid.angle[0];
      const [c, s] = [Math.cos(turn), Math.sin(turn)];
      const [dx, dy] = [rigid.originX[body] - rigid.originX[0], rigid.originY[body] - rigid.originY[0]];
      const [x, y] = [cos * dx + sin * dy, cos * dy - sin * dx];
      const corners = points.map(([u, v]) => [(u * c - v * s + x) * scale[0] + offset[0], (u * s + v * c + y) * scale[1] + offset[1]]);
      fillConvex(canvas, corners.map((corner) => corner.map(roundEven)), paint);
    };
    for (let wheel = 1; wheel <= 4; wheel++) draw(wheel, WHEEL_PART, WHEEL_PAINT);
    for (const part of HULL_PARTS) draw(0, part, HULL_PAINT);
    halve(canvas, view);
  }

  // The world under the camera, which turns with the car, without the car.
  #lookDown(/** @type {any} */ rigid, /** @type {number} */ zoom, /** @type {import("./raster.js").Picture} */ to) {
    const perX = (MAP_SCALE * WINDOW_WIDTH) / (zoom * to.width);
    const perY = (MAP_SCALE * WINDOW_HEIGHT * VIEW_HEIGHT) / (zoom * SIDE * to.height);
    const [cos, sin] = [Math.cos(rigid.angle[0]), Math.sin(rigid.angle[0])];
    const [rightX, rightY, downX, downY] = [cos * perX, sin * perX, sin * perY, -cos * perY];
    const [left, top] = [0.5 - to.width / 2, 0.5 - (to.height * SIDE * 0.75) / VIEW_HEIGHT];
    const on = (/** @type {number} */ v) => (v + PLAYFIELD) * MAP_SCALE - 0.5;
    lookThrough(this.map.picture, [
      [rightX, downX, on(rigid.originX[0]) + rightX * left + downX * top],
      [rightY, downY, on(rigid.originY[0]) + rightY * left + downY * top],
    ], to);
  }
}
