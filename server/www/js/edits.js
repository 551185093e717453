// Edits of what if: their words, and their short form in a link.

import { percent } from "./dom.js";

/**
 * What is changed, as the server takes it: boxes are shares of the picture, heads and neurons count from 0, null is all.
 * @typedef {object} Edit
 * @property {"paint" | "dim" | "blur" | "hide" | "shift" | "mute"} kind
 * @property {number} [left]
 * @property {number} [top]
 * @property {number} [right]
 * @property {number} [bottom]
 * @property {number | null} [level] grey to paint with; null is the picture's mean colour
 * @property {number} [factor] of the light
 * @property {number} [sigma] of the blur, in pixels of the camera
 * @property {number} [back] decisions since the frame that is hidden
 * @property {number} [seconds] by which the frame comes later
 * @property {number | null} [head]
 * @property {string | null} [group] of a circuit's neurons, or "unit" of a layer that is none
 * @property {number | null} [neuron]
 */

const GREYS = { 128: "grey", 0: "black", null: "its mean colour" };

/**
 * An edit in words, as it stands in the list.
 * @param {Edit} edit
 */
export function words(edit) {
  switch (edit.kind) {
    case "paint": {
      const [w, h] = [edit.right - edit.left, edit.bottom - edit.top];
      return `${percent(w * h)} of the picture painted ${GREYS[edit.level ?? null] ?? `grey ${edit.level}`}`;
    }
    case "dim": return `the picture ${edit.factor < 1 ? "dimmed" : "brightened"} to ${percent(edit.factor)}`;
    case "blur": return `the picture blurred by ${edit.sigma} px`;
    case "hide": return edit.back === 1 ? "the frame before this one hidden" : `the frame of ${edit.back} decisions ago hidden`;
    case "shift": return `this frame ${Math.abs(edit.seconds)} s ${edit.seconds > 0 ? "later" : "earlier"}`;
    default: return muted(edit);
  }
}

/** @param {Edit} edit */
function muted({ head, group, neuron }) {
  const where = head === null || head === undefined ? "all heads" : `head ${head + 1}`;
  if (!group) return `${where} muted`;
  if (group === "unit") return `unit ${neuron + 1} muted`;
  return neuron === null || neuron === undefined ? `${group} neurons of ${where} muted` : `${group} neuron ${neuron + 1} of ${where} muted`;
}

/**
 * All of them in one phrase, as a sentence begins.
 * @param {Edit[]} edits
 */
export function phrase(edits) {
  if (!edits.length) return "As it is";
  if (edits.length === 1) return `With ${words(edits[0])}`;
  const same = edits.every((edit) => edit.kind === "mute" && !edit.group);
  if (same) return `With the heads ${edits.map((edit) => edit.head + 1).sort((a, b) => a - b).join(", ")} muted`;
  if (edits.length === 2) return `With ${words(edits[0])} and ${words(edits[1])}`;
  return `With these ${edits.length} edits`;
}

const number = (v) => String(Math.round(v * 1000) / 1000);

/**
 * "paint:.2,.5,.4,.9,128;mute:h11;mute:inter.5" and back; what is not understood is left out.
 * @param {Edit[]} edits
 */
export function encode(edits) {
  return edits.map((edit) => {
    const values = {
      paint: () => [edit.left, edit.top, edit.right, edit.bottom].map(number).concat(edit.level === null ? "mean" : String(edit.level)).join(),
      dim: () => number(edit.factor),
      blur: () => number(edit.sigma),
      hide: () => edit.back,
      shift: () => number(edit.seconds),
      mute: () => [Number.isInteger(edit.head) ? `h${edit.head + 1}` : null, edit.group, Number.isInteger(edit.neuron) ? edit.neuron + 1 : null].filter(Boolean).join("."),
    };
    return `${edit.kind}:${values[edit.kind]()}`;
  }).join(";");
}

/**
 * @param {string | null} text
 * @param {number} most the server takes no more of them
 * @returns {Edit[]}
 */
export function decodeEdits(text, most = 24) {
  return (text ?? "").split(";").slice(0, most).map(one).filter(Boolean);
}

/** @returns {Edit | null} */
function one(text) {
  const [kind, rest = ""] = text.split(":");
  const values = rest.split(",").map(Number);
  if (kind === "paint" && values.length === 5) {
    const [left, top, right, bottom] = values;
    const level = rest.endsWith(",mean") ? null : values[4];
    const fits = [left, top, right, bottom, (level ?? 0) / 255].every((v) => v >= 0 && v <= 1) && left < right && top < bottom;
    return fits ? { kind, left, top, right, bottom, level } : null;
  }
  if (kind === "dim" && values[0] >= 0 && values[0] <= 4) return { kind, factor: values[0] };
  if (kind === "blur" && values[0] > 0 && values[0] <= 32) return { kind, sigma: values[0] };
  if (kind === "hide" && values[0] >= 1) return { kind, back: Math.floor(values[0]) };
  if (kind === "shift" && values[0] && values[0] >= -1 && values[0] <= 60) return { kind, seconds: values[0] };
  if (kind === "mute") {
    const match = /^(?:h(\d+))?\.?(?:(sensory|inter|command|motor|unit)(?:\.(\d+))?)?$/.exec(rest);
    if (match && (match[1] || match[2])) return { kind, head: match[1] ? Number(match[1]) - 1 : null, group: match[2] ?? null, neuron: match[3] ? Number(match[3]) - 1 : null };
  }
  return null;
}

/**
 * Whether two edits do the same.
 * @param {Edit} a
 * @param {Edit} b
 */
export function alike(a, b) {
  return encode([a]) === encode([b]);
}
