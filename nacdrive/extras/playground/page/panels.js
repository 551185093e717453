// What the network sees, remembers and decides, beside the view.

import { $, canvas, percent, put } from "/js/dom.js";
import { side, verb } from "/js/words.js";
import { frameButton, imageOf, labelFrame } from "../../export/page/film.js";
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
    this.film = Array.from({ length: network.window }, (_, age) => frameButton(age, FRAME_SIZE, () => hide(age)));
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
    const picture = /** @type {any} */ (button.firstChild);
    if (picture.memory !== memory) {
      picture.getContext("2d").putImageData(imageOf(FRAME_SIZE, memory.frame), 0, 0);
      picture.memory = memory;
    }
    labelFrame(button, age, decision.heads, memories.at(-1).t_s - memory.t_s, edits?.network.hidden.has(age) ?? false);
  }
}

const pedalWord = (/** @type {number} */ pedal) => (Math.abs(pedal) < 0.005 ? "none" : `${pedal > 0 ? "gas" : "brake"} ${Math.abs(pedal).toFixed(2)}`);
