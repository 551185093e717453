// The road of a lap of CarRacing: drawn from a seed as Gymnasium draws it, or along a line that a person has drawn.

import { Pcg64 } from "./pcg64.js";

const SCALE = 6;
const RADIUS = 900 / SCALE;
const STEP = 21 / SCALE; // between two tiles
const HALF_WIDTH = 40 / SCALE;
const KERB = 8 / SCALE;
const TURN_RATE = 0.31;
const KERB_COUNT = 4; // tiles that bend alike before there is a kerb
const CHECKPOINTS = 12;
const TILE_GREYS = [102, 104, 107];
const [KERB_WHITE, KERB_RED] = [[255, 255, 255], [255, 0, 0]];
export const PLAYFIELD = 2000 / SCALE; // half the side of the field

/** @typedef {[number, number]} Point */
/** @typedef {{alpha: number, beta: number, x: number, y: number}} Station beta: the road runs along (-sin, cos) of it */
/** @typedef {{corners: Point[], colour: number[]}} Patch what is drawn of the road: a tile or a piece of a kerb */
/** @typedef {{stations: Station[], tiles: Point[][], patches: Patch[]}} Road */

/** @param {Pcg64} random */
function checkpoints(random) {
  return Array.from({ length: CHECKPOINTS }, (_, c) => {
    const noise = random.uniform(0, (2 * Math.PI) / CHECKPOINTS);
    let alpha = (2 * Math.PI * c) / CHECKPOINTS + noise;
    let radius = random.uniform(RADIUS / 3, RADIUS);
    if (c === 0) [alpha, radius] = [0, 1.5 * RADIUS];
    if (c === CHECKPOINTS - 1) [alpha, radius] = [(2 * Math.PI * c) / CHECKPOINTS, 1.5 * RADIUS];
    return { alpha, x: radius * Math.cos(alpha), y: radius * Math.sin(alpha) };
  });
}

// From one checkpoint to the next, five times around: stations of the road.
/** @param {ReturnType<typeof checkpoints>} goals */
function wander(goals) {
  /** @type {Station[]} */
  const track = [];
  let [x, y, beta, goal, laps] = [1.5 * RADIUS, 0, 0, 0, 0];
  let otherSide = false;
  for (let left = 2500; left > 0; left--) {
    let alpha = Math.atan2(y, x);
    if (otherSide && alpha > 0) {
      laps++;
      otherSide = false;
    }
    if (alpha < 0) {
      otherSide = true;
      alpha += 2 * Math.PI;
    }
    while (alpha > goals[goal % CHECKPOINTS].alpha) {
      goal++;
      if (goal % CHECKPOINTS === 0) alpha -= 2 * Math.PI;
    }
    const { x: goalX, y: goalY } = goals[goal % CHECKPOINTS];
    const [cos, sin] = [Math.cos(beta), Math.sin(beta)];
    const aside = SCALE * (cos * (goalX - x) + sin * (goalY - y));
    while (beta - alpha > 1.5 * Math.PI) beta -= 2 * Math.PI;
    while (beta - alpha < -1.5 * Math.PI) beta += 2 * Math.PI;
    const before = beta;
    if (aside > 0.3) beta -= Math.min(TURN_RATE, Math.abs(0.001 * aside));
    if (aside < -0.3) beta += Math.min(TURN_RATE, Math.abs(0.001 * aside));
    x += -sin * STEP;
    y += cos * STEP;
    track.push({ alpha, beta: before * 0.5 + beta * 0.5, x, y });
    if (laps > 4) break;
  }
  return track;
}

// The last whole lap of those that were wandered; null where it does not close.
/** @param {Station[]} track */
function closedLap(track) {
  const start = (2 * Math.PI * -0.5) / CHECKPOINTS;
  let [first, last] = [-1, -1];
  for (let i = track.length - 1; first < 0; i--) {
    if (i === 0) return null;
    if (!(track[i].alpha > start && track[i - 1].alpha <= start)) continue;
    if (last < 0) last = i;
    else first = i;
  }
  const lap = track.slice(first, last - 1);
  const [head, tail] = [lap[0], lap[lap.length - 1]];
  const [cos, sin] = [Math.cos(head.beta), Math.sin(head.beta)];
  return Math.hypot(cos * (head.x - tail.x), sin * (head.y - tail.y)) > STEP ? null : lap;
}

// Whether there is a kerb at each station: where some tiles in a row bend hard, and alike.
/** @param {Station[]} lap */
function kerbs(lap) {
  const n = lap.length;
  const at = (/** @type {number} */ i) => lap[(i + n) % n].beta;
  const bends = lap.map((_, i) => {
    let [hard, side] = [true, 0];
    for (let back = 0; back < KERB_COUNT; back++) {
      const bend = at(i - back) - at(i - back - 1);
      hard &&= Math.abs(bend) > TURN_RATE * 0.2;
      side += Math.sign(bend);
    }
    return hard && Math.abs(side) === KERB_COUNT;
  });
  // In place, as Gymnasium does it.
  for (let i = 0; i < n; i++) if (bends[i]) for (let back = 0; back < KERB_COUNT; back++) bends[(i - back + n) % n] = true;
  return bends;
}

/** @param {Station} s @param {number} across @returns {Point} */
const beside = ({ x, y, beta }, across) => [x + across * Math.cos(beta), y + across * Math.sin(beta)];

/**
 * Tiles, kerbs and their colours along a closed lap.
 * @param {Station[]} stations
 * @returns {Road}
 */
export function paveRoad(stations) {
  const bends = kerbs(stations);
  const tiles = [];
  const patches = [];
  for (let i = 0; i < stations.length; i++) {
    const [here, before] = [stations[i], stations[(i + stations.length - 1) % stations.length]];
    const tile = [beside(here, -HALF_WIDTH), beside(here, HALF_WIDTH), beside(before, HALF_WIDTH), beside(before, -HALF_WIDTH)];
    tiles.push(tile);
    patches.push({ corners: tile, colour: Array(3).fill(TILE_GREYS[i % 3]) });
    if (!bends[i]) continue;
    const side = Math.sign(before.beta - here.beta);
    const [inner, outer] = [side * HALF_WIDTH, side * (HALF_WIDTH + KERB)];
    const corners = [beside(here, inner), beside(here, outer), beside(before, outer), beside(before, inner)];
    patches.push({ corners, colour: i % 2 === 0 ? KERB_WHITE : KERB_RED });
  }
  return { stations, tiles, patches };
}

/**
 * The road of a seed.
 * @param {number} seed a whole number that is not negative
 */
export function roadOfSeed(seed) {
  const random = new Pcg64(seed);
  for (;;) {
    const lap = closedLap(wander(checkpoints(random)));
    if (lap) return paveRoad(lap);
  }
}

const LEAST_LENGTH = 150;
const LARGEST_BEND = 0.3; // radians from tile to tile: the inner edge of a tighter one would turn back

/**
 * The road along a closed line.
 * @param {Point[]} line corners in metres
 * @returns {Road}
 * @throws {Error} with a sentence for people
 */
export function roadAlong(line) {
  const inside = line.every(([x, y]) => Math.abs(x) < PLAYFIELD - 20 && Math.abs(y) < PLAYFIELD - 20);
  if (!inside) throw new Error("The road leaves the field: draw it a little smaller.");
  let points = evenly(line, STEP);
  // A hand trembles: the mean over some neighbours takes that out, and rounds what is too tight to drive.
  for (let round = 0; round < 24; round++) {
    points = points.map((point, i) => {
      const [before, after] = [points[(i + points.length - 1) % points.length], points[(i + 1) % points.length]];
      return [(before[0] + 2 * point[0] + after[0]) / 4, (before[1] + 2 * point[1] + after[1]) / 4];
    });
  }
  points = evenly(points, STEP);
  if (points.length * STEP < LEAST_LENGTH) throw new Error("The road is too short: draw a longer loop.");
  let beta = 0;
  const stations = points.map(([x, y], i) => {
    const [before, after] = [points[(i + points.length - 1) % points.length], points[(i + 1) % points.length]];
    const heading = Math.atan2(-(after[0] - before[0]), after[1] - before[1]);
    // Counted on, without a jump by a whole turn.
    beta = i === 0 ? heading : beta + Math.atan2(Math.sin(heading - beta), Math.cos(heading - beta));
    return { alpha: Math.atan2(y, x), beta, x, y };
  });
  const tight = stations.some((s, i) => i > 0 && Math.abs(s.beta - stations[i - 1].beta) > LARGEST_BEND);
  if (tight) throw new Error("The road has a bend that is too tight: draw it rounder.");
  return paveRoad(stations);
}

// Points on a closed line, about as far apart as given.
/** @param {Point[]} line @param {number} step @returns {Point[]} */
function evenly(line, step) {
  const lengths = line.map(([x, y], i) => {
    const next = line[(i + 1) % line.length];
    return Math.hypot(next[0] - x, next[1] - y);
  });
  const whole = lengths.reduce((sum, length) => sum + length, 0);
  const count = Math.max(3, Math.round(whole / step));
  const points = [];
  let [piece, begun] = [0, 0];
  for (let i = 0; i < count; i++) {
    const at = (i * whole) / count;
    while (piece < line.length - 1 && begun + lengths[piece] <= at) begun += lengths[piece++];
    const share = lengths[piece] ? (at - begun) / lengths[piece] : 0;
    const [[x, y], [nextX, nextY]] = [line[piece], line[(piece + 1) % line.length]];
    points.push(/** @type {Point} */ ([x + share * (nextX - x), y + share * (nextY - y)]));
  }
  return points;
}
