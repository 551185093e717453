// What edits do to a decision, in a sentence made of measured numbers only.

import { percent } from "./dom.js";
import { phrase } from "./edits.js";
import { infinitive, side, verb } from "./words.js";

/**
 * @typedef {{steering: number, throttle?: number, brake?: number, choice?: number | null, shares?: number[] | null}} Decision
 * shares: probabilities of the choices, where there are some
 */

/**
 * @param {import("./edits.js").Edit[]} edits at least one
 * @param {Decision} base without them
 * @param {Decision} edited
 * @param {string[]} names of the choices
 */
export function effect(edits, base, edited, names) {
  if (!base.shares || !edited.shares) {
    const same = Math.abs(edited.steering - base.steering) < 0.01;
    if (same) return `${phrase(edits)} it steers as before: ${side(edited.steering)}.`;
    return `${phrase(edits)} it would steer ${side(edited.steering)} instead of ${side(base.steering)}.`;
  }
  const change = (i) => `${names[i] ?? i} ${percent(base.shares[i]).replace(" %", "")} → ${percent(edited.shares[i])}`;
  if (edited.choice !== base.choice) return `${phrase(edits)} it would ${infinitive(edited)} instead: ${change(edited.choice)}, ${change(base.choice)}.`;
  const moved = Math.abs(edited.shares[base.choice] - base.shares[base.choice]);
  return `${phrase(edits)} it still ${verb(edited).toLowerCase()}${moved < 0.01 ? ", as sure as before" : ""}: ${change(base.choice)}.`;
}
