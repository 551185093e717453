// What the network sees, remembers and decides, beside the view.

import { $, canvas, percent, put } from "/js/dom.js";
import { side, verb } from "/js/words.js";
import { imageOf } from "../../export/page/film.js";
import { SIDE } from "./camera.js";

const FRAME_SIZE = { width: SIDE, height: SIDE };

export class Panels {
  // hide(age): a remembered frame was pressed.
  /** @param {any} network @param {(age: number) => void} hide */
  constructor(network, hide) {
    this.network = network;
    for (const id of ["frame", "overlay"]) Object.assign(canvas(id), FRAME_SIZE);
    const rows = network.actions.length ? network.labels : ["steering", "pedal"];
    this.bars = rows.map((/** @type {string} */ label) => {
      const bar = document.createElement("div");
      bar.className = "bar";
      bar.innerHTML = '<span></span><div class="track"><i class="fill"></i></div><output></output>';
      put(bar.firstChild, label);
      if (!network.actions.length) bar.children[1].classList.add("centre");
      return bar;
    });
    $("bars").replaceChildren(...this.bars);
    this.film = Array.from({ length: network.window }, (_, age) => {
      const button = document.createElement("button");
      button.type = "button";
      button.disabled = age === 0;
      button.innerHTML = '<canvas aria-hidden="true"></canvas><span class="share"><i></i></span><span></span><b></b>';
      Object.assign(button.firstChild, FRAME_SIZE);
      button.addEventListener("click", () => hide(age));
      return button;
    });
    $("film").replaceChildren(...this.film);
    $("film-h").hidden = $("film").hidden = network.window < 2;
  }

  /** @param {import("./network_driver.js").NetworkDriver} driver @param {boolean} person */
  show(driver, person) {
    const { decision, memories, edits } = driver;
    if (!decision) return;
    canvas("frame").getContext("2d").putImageData(imageOf(FRAME_SIZE, memories.at(-1).frame), 0, 0);
    put($("verb"), (person ? "would: " : "") + verb(decision).toLowerCase().replace(/^\w/, (l) => (person ? l : l.toUpperCase())));
    $("does").classList.toggle("edited", Boolean(edits));
    this.bars.forEach((bar, k) => {
      const value = decision.shares ? decision.shares[k] : k ? decision.throttle - decision.brake : decision.steering;
      const [, track, output] = bar.children;
      /** @type {HTMLElement} */ (track.firstChild).style.transform = `scaleX(${value})`;
      bar.dataset.chosen = !decision.shares || decision.choice === k ? "yes" : "no";
      put(output, decision.shares ? percent(value) : k ? pedalWord(value) : side(value));
    });
    if (this.network.window > 1) this.film.forEach((button, age) => this.#remembered(button, age, driver));
  }

  #remembered(/** @type {HTMLButtonElement} */ button, /** @type {number} */ age, /** @type {any} */ { decision, memories, edits }) {
    const memory = memories.at(-1 - age);
    button.style.visibility = memory ? "" : "hidden";
    if (!memory) return;
    const [picture, bar, place, counts] = /** @type {any[]} */ ([...button.children]);
    if (picture.memory !== memory) {
      picture.getContext("2d").putImageData(imageOf(FRAME_SIZE, memory.frame), 0, 0);
      picture.memory = memory;
    }
    const share = decision.heads ? decision.heads.reduce((/** @type {number} */ sum, /** @type {any[]} */ pairs) =>
      sum + (pairs.find((p) => p.age === age)?.weight ?? 0), 0) / decision.heads.length : 0;
    bar.hidden = !decision.heads;
    bar.firstChild.style.transform = `scaleX(${share})`;
    const hidden = edits?.network.hidden.has(age) ?? false;
    button.setAttribute("aria-pressed", String(hidden));
    const when = age ? `${(memories.at(-1).t_s - memory.t_s).toFixed(2)} s ago` : "now";
    put(place, when);
    put(counts, hidden ? "hidden" : decision.heads ? percent(share) : "");
    button.setAttribute("aria-label", age ? `Hide the frame of ${when}` : "The present frame");
  }
}

const pedalWord = (/** @type {number} */ pedal) => (Math.abs(pedal) < 0.005 ? "none" : `${pedal > 0 ? "gas" : "brake"} ${Math.abs(pedal).toFixed(2)}`);
