// An experiment in a link: road, edits and trouble, after the # of the page's address.

import { decodeEdits, encode } from "/js/edits.js";
import { LIMITS, NO_TROUBLE } from "./trouble.js";
import { PLAYFIELD } from "./track.js";

const VERSION = 1;
const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const [MOST_CORNERS, LEAST_CORNERS] = [96, 8];
export const LARGEST_SEED = 2 ** 31 - 1;
export const DAMAGED = "This link is damaged: here is a road of its own instead.";
export const NEWER = "This link was made by a newer playground than this one: here is a road of its own instead.";

/** @typedef {import("./track.js").Point} Point */
/**
 * @typedef {object} Experiment
 * @property {number} seed
 * @property {Point[] | null} line corners of a road that a person drew
 * @property {import("/js/edits.js").Edit[]} edits
 * @property {import("./trouble.js").Trouble} trouble
 * @property {number | null} time seconds in which somebody drove this road
 */

// Corners as two letters for each coordinate, 4096 steps over the field.
/** @param {Point[]} line */
function packLine(line) {
  const skip = Math.max(1, line.length / MOST_CORNERS);
  const kept = Array.from({ length: Math.min(line.length, MOST_CORNERS) }, (_, i) => line[Math.floor(i * skip)]);
  return kept.flat().map((v) => {
    const step = Math.min(4095, Math.max(0, Math.round(((v + PLAYFIELD) / (2 * PLAYFIELD)) * 4095)));
    return LETTERS[step >> 6] + LETTERS[step & 63];
  }).join("");
}

/** @param {string} text @returns {Point[] | null} */
function unpackLine(text) {
  if (!/^[\w-]*$/.test(text) || text.length % 4 || text.length < 4 * LEAST_CORNERS || text.length > 4 * MOST_CORNERS) return null;
  const values = text.match(/../g).map((pair) => ((LETTERS.indexOf(pair[0]) * 64 + LETTERS.indexOf(pair[1])) / 4095) * 2 * PLAYFIELD - PLAYFIELD);
  return Array.from({ length: values.length / 2 }, (_, i) => [values[2 * i], values[2 * i + 1]]);
}

// The line as the link gives it back, so that the drawn road and the linked one are the same.
/** @param {Point[]} line */
export const asLinked = (line) => unpackLine(packLine(line)) ?? line;

/** @param {Experiment} experiment */
export function toLink({ seed, line, edits, trouble, time }) {
  const parts = [`v=${VERSION}`, line ? `road=${packLine(line)}` : `seed=${seed}`];
  if (edits.length) parts.push(`if=${encode(edits)}`);
  for (const [name, value] of Object.entries(trouble)) if (value !== NO_TROUBLE[name]) parts.push(`${name}=${Number(Number(value).toFixed(3))}`);
  if (time) parts.push(`time=${time.toFixed(2)}`);
  return `#${parts.join("&")}`;
}

/**
 * @param {string} hash
 * @returns {{experiment: Experiment | null, error: string}} neither where the address says nothing
 */
export function fromLink(hash) {
  if (hash.length < 2) return { experiment: null, error: "" };
  const given = new URLSearchParams(hash.slice(1));
  const number = (/** @type {string} */ name, /** @type {number} */ low, /** @type {number} */ high, /** @type {number} */ usual) => {
    if (!given.has(name)) return usual;
    const value = Number(given.get(name));
    return given.get(name) !== "" && value >= low && value <= high ? value : NaN;
  };
  const version = number("v", 1, Infinity, NaN);
  if (version > VERSION) return { experiment: null, error: NEWER };
  const seed = number("seed", 0, LARGEST_SEED, 0);
  const line = given.has("road") ? unpackLine(given.get("road")) : null;
  const troubles = Object.entries(LIMITS).map(([name, most]) => [name, number(name, name === "wind" ? -most : 0, most, 0)]);
  const time = number("time", 1, 3600, 0);
  const edits = decodeEdits(given.get("if"), Infinity);
  const asked = (given.get("if") ?? "").split(";").filter(Boolean).length;
  const whole = Number.isInteger(seed) && [version, time, ...troubles.map(([, value]) => value)].every((v) => !Number.isNaN(v));
  if (!whole || (!given.has("seed") && !line) || (given.has("road") && !line) || edits.length !== asked) return { experiment: null, error: DAMAGED };
  const trouble = { ...NO_TROUBLE, ...Object.fromEntries(troubles), black: given.get("black") === "1" };
  trouble.delay = Math.round(trouble.delay);
  return { experiment: { seed, line, edits, trouble, time: time || null }, error: "" };
}
