// The strip of remembered frames, each with the weight that the attention gives it, to be hidden by a press.

import { percent, put } from "/js/dom.js";
import { editPicture } from "./lap.js";

export class Film {
  constructor(lap, window, edits) {
    this.lap = lap;
    this.window = window;
    this.edits = edits;
  }

  // The remembered frames, the newest first, with the mean weight of all heads.
  // moment: {at, now, edits}; stale(): whether something else is shown by now.
  async show({ at, now, edits }, stale) {
    const ages = Array.from({ length: Math.min(this.window, at + 1) }, (_, age) => age);
    if (this.window < 2) return;
    const film = document.getElementById("film");
    while (film.children.length > ages.length) film.lastChild.remove();
    while (film.children.length < ages.length) film.append(this.button(film.children.length));
    for (const age of ages) {
      const pixels = await this.lap.pixels(at - age);
      if (stale()) return;
      const button = /** @type {any} */ (film.children[age]);
      const touched = edits?.picture && (age === 0 || edits.picture.everyFrame);
      button.firstChild.getContext("2d").putImageData(imageOf(this.lap.size, touched ? editPicture(pixels, this.lap.size, edits.picture) : pixels), 0, 0);
      labelFrame(button, age, now.heads, this.lap.t_s[at] - this.lap.t_s[at - age], this.edits.has({ kind: "hide", back: age }));
    }
  }

  button(age) {
    return frameButton(age, this.lap.size, () => this.edits.toggle({ kind: "hide", back: age }));
  }
}

// A remembered frame: its picture, the bar and the words of `labelFrame`.
/** @param {number} age @param {{width: number, height: number}} size @param {() => void} press */
export function frameButton(age, size, press) {
  const button = document.createElement("button");
  button.type = "button";
  button.disabled = age === 0;
  button.innerHTML = '<canvas aria-hidden="true"></canvas><span class="share"><i></i></span><span></span><b></b>';
  Object.assign(button.firstChild, size);
  button.addEventListener("click", press);
  return button;
}

// heads: the pairs of each, or null where the network has none; their mean weight of the frame is shown.
/** @param {HTMLElement} button @param {number} age @param {any[][] | null} heads @param {number} ago_s @param {boolean} hidden */
export function labelFrame(button, age, heads, ago_s, hidden) {
  const [, bar, place, counts] = /** @type {any[]} */ ([...button.children]);
  const share = heads ? heads.reduce((sum, pairs) => sum + (pairs.find((p) => p.age === age)?.weight ?? 0), 0) / heads.length : 0;
  bar.hidden = !heads;
  bar.firstChild.style.transform = `scaleX(${share})`;
  button.setAttribute("aria-pressed", String(hidden));
  const when = age ? `${ago_s.toFixed(2)} s ago` : "now";
  put(place, when);
  put(counts, hidden ? "hidden" : heads ? percent(share) : "");
  button.setAttribute("aria-label", age ? `Hide the frame of ${when}` : "The present frame");
}

// Pixels [height x width x 3] as a canvas takes them.
export function imageOf({ width, height }, rgb) {
  const image = new ImageData(width, height);
  for (let p = 0, q = 0; q < rgb.length; p += 4, q += 3) {
    image.data[p] = rgb[q];
    image.data[p + 1] = rgb[q + 1];
    image.data[p + 2] = rgb[q + 2];
    image.data[p + 3] = 255;
  }
  return image;
}
