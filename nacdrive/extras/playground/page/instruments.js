// The lowest rows of a frame: speed, wheels, steering and turning as bars, and the score.

import { roundEven } from "./raster.js";
import { shownColour } from "./world_map.js";

const SIDE_PX = 96;
const PANEL_TOP = 84;
const [PIXEL_W, PIXEL_H] = [1000 / SIDE_PX, 800 / SIDE_PX]; // pixels of the official window in one of the frame
const [UNIT_W, UNIT_H] = [1000 / 40, 800 / 40];
const SCORE_SIDE = 12; // columns and rows of the score
const [WHITE, BLUE, VIOLET, GREEN, RED] = [[255, 255, 255], [0, 0, 255], [51, 0, 255], [0, 255, 0], [255, 0, 0]].map(shownColour);

// How much of the frame's pixels lies between two places in the window: the first one's number, and shares from it on.
/** @param {number} low @param {number} high @param {number} unit */
function covered(low, high, unit) {
  const [begin, end] = [Math.max(Math.trunc(low), 0) / unit, Math.min((Math.trunc(high) + 1) / unit, SIDE_PX)];
  const first = Math.floor(begin);
  const last = Math.max(first, Math.ceil(end) - 1);
  const shares = Array(last - first + 1).fill(1);
  shares[0] -= begin - first;
  shares[shares.length - 1] -= last + 1 - end;
  return { first, shares: shares.map((share) => Math.max(share, 0)) };
}

/**
 * @param {import("./raster.js").Picture} frame
 * @param {import("./carracing.js").CarRacing} world
 * @param {import("./camera.js").Sprites} sprites
 */
export function drawInstruments(frame, world, sprites) {
  frame.bytes.fill(0, PANEL_TOP * SIDE_PX * 3);
  const { rigid, omega } = world.car;
  const upright = (/** @type {number} */ place, /** @type {number} */ measured, /** @type {number} */ scale, /** @type {number[]} */ colour) => {
    const [one, other] = [800 - UNIT_H * (1 + scale * measured), 800 - UNIT_H];
    bar(frame, measured, colour, [place * UNIT_W, (place + 1) * UNIT_W], [Math.min(one, other), Math.max(one, other)]);
  };
  const flat = (/** @type {number} */ place, /** @type {number} */ measured, /** @type {number} */ scale, /** @type {number[]} */ colour) => {
    const [one, other] = [place * UNIT_W, (place + scale * measured) * UNIT_W];
    bar(frame, measured, colour, [Math.min(one, other), Math.max(one, other)], [800 - 4 * UNIT_H, 800 - 2 * UNIT_H]);
  };
  upright(5, Math.hypot(rigid.vx[0], rigid.vy[0]), 0.02, WHITE);
  [BLUE, BLUE, VIOLET, VIOLET].forEach((colour, i) => upright(7 + i, omega[i + 1], 0.01, colour));
  flat(20, rigid.jointAngle(1), -10, GREEN);
  flat(30, rigid.turn[0], -0.8, RED);
  drawScore(frame, world.shownReward, sprites);
}

/** @param {import("./raster.js").Picture} frame @param {number} measured @param {number[]} colour @param {number[]} wide @param {number[]} high */
function bar({ bytes }, measured, colour, [left, right], [top, bottom]) {
  if (Math.abs(measured) <= 1e-4) return;
  const across = covered(left, right, PIXEL_W);
  const down = covered(Math.max(top, PANEL_TOP * PIXEL_H), bottom, PIXEL_H);
  down.shares.forEach((high, row) => across.shares.forEach((wide, column) => {
    const i = ((down.first + row) * SIDE_PX + across.first + column) * 3;
    for (let c = 0; c < 3; c++) bytes[i + c] = Math.max(bytes[i + c], Math.floor(high * wide * colour[c] + 0.5));
  }));
}

// The first picture is that of a score between 0 and -0.5, which has a sign.
/** @param {import("./raster.js").Picture} frame @param {number} score @param {import("./camera.js").Sprites} sprites */
function drawScore({ bytes }, score, { firstScore, scores }) {
  const size = SCORE_SIDE * SCORE_SIDE;
  const whole = roundEven(score);
  const last = scores.length / size - 1;
  const at = (whole === 0 && score < 0 ? 0 : Math.min(Math.max(whole - firstScore + 1, 1), last)) * size;
  for (let row = 0; row < SCORE_SIDE; row++) {
    for (let column = 0; column < SCORE_SIDE; column++) {
      bytes.fill(scores[at + row * SCORE_SIDE + column], ((PANEL_TOP + row) * SIDE_PX + column) * 3, ((PANEL_TOP + row) * SIDE_PX + column) * 3 + 3);
    }
  }
}
