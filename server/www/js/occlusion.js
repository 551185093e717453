// What a decision hangs on: a map of how much grey over each part of the picture changes it, in colours and words.

import { colours } from "./theme.js";

const FAINT = 0.04; // of the strongest part: what changes less is not coloured
const LEAST_CHANGE = 0.01; // a point, or a hundredth of the wheel: less is no change

/**
 * A map that has been read.
 * @typedef {object} Occlusion
 * @property {number[][]} rows
 * @property {number} most change that gets the full colour
 * @property {{supports: string, opposes: string, strongest: string}} key what the two colours say, orange first
 * @property {string} sentence
 */

/**
 * @param {number[][]} rows of each part, from the top, how much grey over it takes from the chosen action; of a policy that
 *   steers by degrees, how far it turns the wheel to the left
 * @param {string | null} action the chosen one, null of a policy that steers by degrees
 * @returns {Occlusion}
 */
export function readOcclusion(rows, action) {
  const steers = action === null;
  const flat = rows.flat();
  const sizes = flat.map(Math.abs);
  const most = Math.max(...sizes);
  const size = (change) => (steers ? `${change.toFixed(2)} of the wheel` : `${Math.round(100 * change)} points`);
  const reasons = steers ? sizes : flat;
  const reason = Math.max(...reasons);
  const at = reasons.indexOf(reason);
  const third = (cell) => Math.floor((3 * cell) / rows.length);
  const where = `${["upper", "middle", "lower"][third(Math.floor(at / rows.length))]} ${["left", "middle", "right"][third(at % rows.length)]}`.replace("middle middle", "middle");
  const hangs = `The decision hangs most on the ${where} of the picture: grey over one of ${flat.length} parts there ${steers ? `turns the wheel by ${reason.toFixed(2)}` : `takes ${size(reason)} from “${action}”`}.`;
  const nothing = `No single part of the picture matters here: grey over any of the ${flat.length} ${steers ? "turns the wheel by less than 0.01" : `takes less than one point from “${action}”`}.`;
  const [supports, opposes] = steers ? ["steers right", "left"] : ["speaks for it", "against it"];
  return { rows, most: Math.max(most, LEAST_CHANGE), key: { supports, opposes, strongest: `strongest ${size(most)}` }, sentence: reason < LEAST_CHANGE ? nothing : hangs };
}

/**
 * @param {CanvasRenderingContext2D} c
 * @param {Occlusion} occlusion
 * @param {number[]} box of the picture: left, top, width, height
 */
export function drawOcclusion(c, { rows, most }, [left, top, width, height]) {
  const n = rows.length;
  c.save();
  rows.forEach((row, y) => row.forEach((change, x) => {
    const share = Math.abs(change) / most;
    if (share < FAINT) return;
    c.fillStyle = change > 0 ? colours.supports : colours.opposes;
    c.globalAlpha = 0.12 + 0.68 * share;
    c.fillRect(left + (x * width) / n, top + (y * height) / n, width / n, height / n);
  }));
  c.restore();
}
