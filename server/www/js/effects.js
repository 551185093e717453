// Why a policy decides so, measured: what muting each part of it alone does to one decision. The same parts, words and
// numbers as `nacdrive/models/effects.py`; nothing here knows a page.

import { infinitive, verb } from "./words.js";

/**
 * Something of a decision that can be muted alone.
 * @typedef {{kind: "head" | "frame" | "region" | "time", index: number, name: string, without: string}} MutedPart
 */
/**
 * One decision as it is, and with each part muted alone; outputs are scores of the actions, or steering and perhaps the pedal.
 * @typedef {object} Effects
 * @property {MutedPart[]} parts
 * @property {ArrayLike<number>} base
 * @property {ArrayLike<number>[]} muted of each part
 * @property {number[][]} actions steering, throttle and brake of each choice; empty where it steers by degrees
 * @property {string} [missing] what cannot be muted, in a sentence
 */
/**
 * What a page shows of it.
 * @typedef {object} Why
 * @property {string} sentence
 * @property {{kind: string, index: number, name: string, change: number, text: string, decides: boolean}[]} bars
 * @property {number | null} head the one that changes most
 * @property {string} missing
 */

const REGION_ROWS = ["top", "upper", "lower", "bottom"];
const REGION_COLUMNS = ["left", "middle", "right"];
const REGION_GREY = 128;
const OTHERWISE = 0.1;
const SHOWN_BARS = 12;
const NO_HEADS = "This policy has no heads that could be muted alone.";

const hundred = (share) => Math.floor(100 * share + 0.5);
const hundredths = (value) => (hundred(value) / 100).toFixed(2);

/** @returns {MutedPart} */
const headPart = (head) => ({ kind: "head", index: head, name: `head ${head + 1}`, without: `Without head ${head + 1}` });

/** @returns {MutedPart} */
function framePart(back, age_s) {
  const name = `frame of ${hundredths(age_s)} s ago`;
  return { kind: "frame", index: back, name, without: `Without the ${name}` };
}

/** @returns {MutedPart} */
function regionPart(region) {
  const name = `${REGION_ROWS[Math.floor(region / 3)]} ${REGION_COLUMNS[region % 3]} of the picture`;
  return { kind: "region", index: region, name, without: `Without the ${name}` };
}

/** @returns {MutedPart} */
const timePart = (usual_s) => ({ kind: "time", index: 0, name: "time since the last frame", without: `At the usual ${hundredths(usual_s)} s since the last frame` });

// Of each region its rows and columns [top, bottom, left, right): a grid over the rows that reach the network.
function regionBoxes({ down: rows, first_row, width, height }) {
  const [first, last] = rows ? [first_row, first_row + Math.max(...rows.first) + rows.weight.shape[1]] : [0, height];
  const down = [0, 1, 2, 3, 4].map((i) => first + Math.floor(((last - first) * i) / 4));
  const across = [0, 1, 2, 3].map((i) => Math.floor((width * i) / 3));
  return REGION_ROWS.flatMap((_, y) => REGION_COLUMNS.map((_, x) => [down[y], down[y + 1], across[x], across[x + 1]]));
}

/**
 * The edit that mutes a part from now on; null of the time, which is no edit. The sides of a region's box are rounded
 * inwards to thousandths, so that they cover the same pixels out of a link too.
 * @param {{kind: string, index: number}} part
 * @param {any} preprocessing of a network's description
 * @returns {import("./edits.js").Edit | null}
 */
export function muting({ kind, index }, preprocessing) {
  if (kind === "head") return { kind: "mute", head: index, group: null, neuron: null };
  if (kind === "frame") return { kind: "hide", back: index };
  if (kind !== "region") return null;
  const { width, height } = preprocessing;
  const [top, bottom, left, right] = regionBoxes(preprocessing)[index];
  const [from, to] = [(v, size) => Math.ceil((1000 * v) / size) / 1000, (v, size) => Math.floor((1000 * v) / size) / 1000];
  return { kind: "paint", left: from(left, width), top: from(top, height), right: to(right, width), bottom: to(bottom, height), level: REGION_GREY };
}

/**
 * Mute every part of a decision of a network that runs here, one after the other.
 * @param {any} network of network.js
 * @param {{tokens: any[], times: number[], before_s: number | null, pixels: Uint8Array}} moment as `Network.decide` takes them; pixels
 *   of the newest frame
 * @param {any} edits as `Network.decide` takes them: they stay, and what they hide is no part any more
 * @param {() => Promise<boolean> | boolean} goesOn called between two parts; where it says no, the answer is null
 * @returns {Promise<Effects | null>}
 */
export async function measure(network, { tokens, times, before_s, pixels }, edits, goesOn = () => true) {
  const { preprocessing: p, gap_s, sequence } = network.description;
  const newest = tokens.length - 1;
  const circuit = Boolean(network.sequence.sizes);
  const decide = (change, token = tokens[newest]) => network.decide([...tokens.slice(0, newest), token], times, before_s, { ...edits, ...change }).outputs;
  const parts = [];
  const muted = [];
  const mute = (part, outputs) => {
    parts.push(part);
    muted.push(outputs);
  };
  for (let back = 1; back <= newest; back++) {
    if (!edits.hidden.has(back)) mute(framePart(back, times[newest] - times[newest - back]), decide({ hidden: new Set([...edits.hidden, back]) }));
  }
  for (const [region, [top, bottom, left, right]] of regionBoxes(p).entries()) {
    if (!(await goesOn())) return null;
    const painted = pixels.slice();
    for (let row = top; row < bottom; row++) painted.fill(REGION_GREY, (row * p.width + left) * 3, (row * p.width + right) * 3);
    mute(regionPart(region), decide({}, network.token(painted)));
  }
  if (before_s !== null && (circuit || sequence.kind === "cfc")) mute(timePart(gap_s), decide({ delay_s: before_s + gap_s - times[newest] }));
  const heads = circuit ? network.sequence.heads : 0;
  for (let head = 0; head < heads; head++) {
    if (head % 4 === 0 && !(await goesOn())) return null;
    mute(headPart(head), decide({ heads: new Set([...edits.heads, head]) }));
  }
  return { parts, base: decide({}), muted, actions: network.actions, missing: heads ? "" : NO_HEADS };
}

/**
 * The sentence and the bars.
 * @param {Effects} effects
 * @param {string[]} names of the choices
 * @returns {Why}
 */
export function explain({ parts, base, muted, actions, missing = "" }, names = []) {
  const discrete = actions.length > 0;
  const read = discrete ? sharesOf : (outputs) => Array.from(outputs, (x) => Math.min(1, Math.max(-1, x)));
  const plain = read(base);
  const choice = plain.indexOf(Math.max(...plain));
  const doing = (values) => {
    if (!discrete) return `steers ${degrees(values)}`;
    const [steering, throttle, brake] = actions[values.indexOf(Math.max(...values))];
    return verb({ steering, throttle, brake }).toLowerCase();
  };
  const would = (values) => {
    if (!discrete) return `steer ${degrees(values)}`;
    const [steering, throttle, brake] = actions[values.indexOf(Math.max(...values))];
    return infinitive({ steering, throttle, brake });
  };
  const all = parts.map((part, i) => {
    const values = read(muted[i]);
    const apart = values.map((v, k) => Math.abs(v - plain[k]));
    const change = Math.round(1e4 * (discrete ? apart[choice] : Math.max(...apart))) / 1e4;
    const text = discrete
      ? `${names[choice] ?? `choice ${choice}`} ${hundred(plain[choice])} → ${hundred(values[choice])} %`
      : `${degrees(plain)} → ${degrees(values)}`;
    const decides = discrete ? values.indexOf(Math.max(...values)) !== choice : Math.max(...apart) >= OTHERWISE;
    return { part, values, change, text, decides };
  }).sort((a, b) => b.change - a.change);
  // Below it a part has no effect that could be read, and is shown as no reason.
  const least = discrete ? 0.01 : 0.005;
  const first = all.find(({ decides }) => decides);
  const does = `It ${doing(plain)}.`;
  const nothing = `${does} Nothing alone changes this decision`;
  let sentence = `${nothing}, not even by ${discrete ? "one point" : "0.01"}.`;
  if (first) sentence = `${does} ${first.part.without} it would ${would(first.values)}${discrete ? `: ${first.text}` : ""}.`;
  else if (all.length && all[0].change >= least) sentence = `${nothing}; what moves it most is ${all[0].part.kind === "head" ? "" : "the "}${all[0].part.name}: ${all[0].text}.`;
  const bars = all.filter(({ decides, change }) => decides || change >= least).slice(0, SHOWN_BARS).map(({ part: { kind, index, name }, change, text, decides }) => ({ kind, index, name, change, text, decides }));
  return { sentence, bars, head: all.find(({ part }) => part.kind === "head")?.part.index ?? null, missing };
}

function sharesOf(scores) {
  const top = Math.max(...scores);
  const raised = Array.from(scores, (s) => Math.exp(s - top));
  const sum = raised.reduce((a, b) => a + b, 0);
  return raised.map((r) => r / sum);
}

// Wheel and, where there is one, pedal in words.
/** @param {number[]} values */
function degrees(values) {
  const [steering, ...pedals] = values;
  const signed = (v, below, above, neither) => (hundred(Math.abs(v)) ? `${v < 0 ? below : above} ${hundredths(Math.abs(v))}` : neither);
  return [signed(steering, "left", "right", "straight on"), ...pedals.map((v) => signed(v, "brake", "gas", "no pedal"))].join(", ");
}
