// How fast it was so far, beside how fast it is: the highest speed and the mean, over the decisions that the page keeps.

import { $, fixed, known, put } from "/js/dom.js";

/**
 * @param {import("/js/cards.js").Page} page
 * @returns {import("/js/cards.js").Card}
 */
export function card({ dashboard }) {
  const [highest, mean] = ["highest", "mean"].map((name) => {
    const value = Object.assign(document.createElement("dd"), { id: `speed-${name}` });
    const entry = document.createElement("div");
    entry.append(Object.assign(document.createElement("dt"), { textContent: name }), value);
    $("progress").parentElement.before(entry);
    return value;
  });
  function show() {
    const { ring } = dashboard;
    const speeds = Array.from({ length: ring.length }, (_, i) => ring.at(i, "speed_mps")).filter(known);
    put(highest, fixed(speeds.reduce((most, speed) => Math.max(most, speed), -Infinity), 1));
    put(mean, fixed(speeds.reduce((sum, speed) => sum + speed, 0) / speeds.length, 1));
  }
  new MutationObserver(show).observe($("speed"), { childList: true });
  return { describe: show };
}
