// What a decision hangs on, measured: each part is taken away in turn, and the decision is made anew.

import { alike } from "/js/edits.js";

/** @typedef {import("/js/edits.js").Edit} Edit */

const CELLS = 3; // parts of the picture along each side

// All that can be taken away alone: heads, remembered frames, ninths of the picture.
/** @param {any} network @returns {Edit[]} */
export function partsOf(network) {
  const heads = network.sequence.heads ?? 0;
  return [
    ...Array.from({ length: heads }, (_, head) => /** @type {Edit} */ ({ kind: "mute", head, group: null, neuron: null })),
    ...Array.from({ length: network.window - 1 }, (_, i) => /** @type {Edit} */ ({ kind: "hide", back: i + 1 })),
    ...Array.from({ length: CELLS * CELLS }, (_, i) => {
      const [column, row] = [i % CELLS, Math.floor(i / CELLS)];
      const share = (/** @type {number} */ k) => Math.round((1000 * k) / CELLS) / 1000;
      return /** @type {Edit} */ ({ kind: "paint", left: share(column), top: share(row), right: share(column + 1), bottom: share(row + 1), level: 128 });
    }),
  ];
}

// How far apart two decisions are: of choices the share that moves, of steering and pedals the larger difference.
/** @param {any} a @param {any} b */
export function changeOf(a, b) {
  if (a.shares) return a.shares.reduce((/** @type {number} */ sum, /** @type {number} */ s, /** @type {number} */ k) => sum + Math.abs(s - b.shares[k]), 0) / 2;
  return Math.max(Math.abs(a.steering - b.steering), Math.abs(a.throttle - a.brake - b.throttle + b.brake) / 2);
}

/**
 * The parts of the last decision, the one that changes it most first.
 * @param {import("./network_driver.js").NetworkDriver} driver
 * @param {Edit[]} list edits that hold already
 * @param {(list: Edit[]) => any} compile
 * @returns {{edit: Edit, change: number, decision: any}[]}
 */
export function hangsOn(driver, list, compile) {
  return partsOf(driver.network).filter((part) => !list.some((edit) => alike(edit, part))).map((edit) => {
    const picture = edit.kind === "paint" ? compile([edit]).picture : null;
    const decision = driver.again(compile(picture ? list : [...list, edit]), picture);
    return { edit, change: changeOf(driver.decision, decision), decision };
  }).sort((a, b) => b.change - a.change);
}
