// Why it decides so: the circuit of one head, the gates of all heads, the attention over the window.

import { Attention } from "./attention.js";
import { Circuit } from "./circuit.js";
import { $, put } from "./dom.js";
import { Gates } from "./gates.js";
import { HeadTuning, SYMBOLS } from "./head_tuning.js";

// A sentence changes no faster than it is read.
const READING_MS = 1000;
// Below this share the attention lies nowhere in particular.
const MOSTLY = 0.45;
const SMOOTHING_S = 1;

export class NetworkPanel {
  constructor() {
    this.circuit = new Circuit($("circuit"));
    this.attention = new Attention($("attention"));
    this.gates = new Gates($("gates"));
    // What stands there where a driver has no circuit.
    // Which heads tell most, where that was measured beforehand.
    this.table = [];
    this.without = "This driver has no neuronal attention circuit.";
    this.edits = [];
    this.onHead = null;
    this.clear();
  }

  clear() {
    this.head = 0;
    this.chosen = false;
    this.neurons = null;
    this.film = null;
    this.row = null;
    this.tuning = new HeadTuning(this.table);
    this.mean = null;
    this.said = -Infinity;
    this.buttons = [];
  }

  // tuning: of HeadTuning, [] where it is not known.
  setWiring(wiring, tuning = []) {
    this.table = tuning;
    this.clear();
    this.circuit.setWiring(wiring);
    this.attention.clear();
    this.gates.clear();
    $("heads").replaceChildren();
    this.wired = Boolean(wiring);
    this.note(wiring ? "Waiting for the first neurons …" : this.without);
    put($("why-note"), "the neuronal attention circuit");
    this.fold();
  }

  // Room is kept only for what can come.
  fold() {
    $("circuit").closest(".why").classList.toggle("empty", !this.wired && !this.neurons);
  }

  note(text) {
    if ($("circuit-note").hidden !== !text) $("circuit-note").hidden = !text;
    put($("circuit-note"), text);
  }

  // neurons: the last ones up to the moment of row, null where there are none; film: the frames they attend to.
  show(neurons, row, film) {
    if (!neurons) return;
    const fresh = neurons.times.at(-1) !== this.neurons?.times.at(-1) || row.episode !== this.row?.episode;
    this.neurons = neurons;
    this.film = film;
    this.row = row;
    this.note(neurons.has("phi") ? "" : this.without);
    this.fold();
    if (this.buttons.length !== neurons.heads) this.makeButtons(neurons.heads);
    if (fresh) this.learn(neurons, row);
    this.refresh();
  }

  learn(neurons, row) {
    const steering = row.person ? row.policy_steering : row.steering;
    this.tuning.observe(neurons, steering);
    const best = this.tuning.best;
    if (best && !this.chosen && best.head !== this.head) this.mark(best.head);
    const now = neurons.meanWeights();
    const share = this.mean?.length === now.length ? Math.min(1, neurons.gap / SMOOTHING_S || 1) : 1;
    this.mean = now.map((w, i) => (share === 1 ? w : this.mean[i] + share * (w - this.mean[i])));
  }

  refresh() {
    const { neurons, head } = this;
    this.circuit.show(neurons, head);
    this.gates.show(neurons, head);
    this.attention.show(neurons, head, this.film);
    if (!neurons?.has("weights")) return;
    const rest = this.said + READING_MS - performance.now();
    if (rest > 0) {
      // What is said last is said of what is shown: nothing may come any more that would say it anew.
      this.later ??= setTimeout(() => {
        this.later = null;
        this.refresh();
      }, rest + 5);
      return;
    }
    clearTimeout(this.later);
    this.later = null;
    this.said = performance.now();
    const ages = Array.from(neurons.times, (_, key) => neurons.age(key).toFixed(2));
    $("attention").setAttribute("aria-label", `Attention of every head over the frames of ${ages.join(", ")} s ago`);
    put($("why-note"), this.tuned(neurons) ?? this.looked(neurons));
  }

  // What the head that tells most says of the steering; null while too little was seen of both sides.
  tuned(neurons) {
    const found = this.tuning.of(this.head);
    if (!found) return null;
    const { name, left, right, strength } = found;
    const value = neurons.summary(name, this.head)?.mean;
    if (value === undefined || strength < 0.6) return `head ${this.head + 1} does not tell left from right`;
    const usual = Object.entries({ left, straight: found.straight, right }).filter(([, v]) => Number.isFinite(v));
    const [side] = usual.reduce((best, one) => (Math.abs(value - one[1]) < Math.abs(value - best[1]) ? one : best));
    return `head ${this.head + 1} says ${side}: ${SYMBOLS[name]} is ${value.toFixed(2)} (${usual.map(([word, v]) => `${word} ${v.toFixed(2)}`).join(", ")})`;
  }

  // Where the attention of all heads lay over the last second.
  looked(neurons) {
    if (neurons.keys === 1) return "decides from this frame alone";
    const best = this.mean.indexOf(Math.max(...this.mean));
    const age = neurons.age(best);
    if (this.mean[best] < MOSTLY) return `attends to all ${neurons.keys} frames of the last ${neurons.age(0).toFixed(2)} s`;
    const share = Math.round(this.mean[best] * 100);
    return best === neurons.keys - 1 ? `attends most to this frame (${share} %)` : `attends most to the frame of ${age.toFixed(2)} s ago (${share} %)`;
  }

  // edits: of what if; what is muted or hidden is crossed out.
  setEdits(edits) {
    this.edits = edits;
    const muted = new Map();
    for (const { kind, head, group, neuron } of edits) {
      if (kind !== "mute" || !group || (head !== null && head !== this.head)) continue;
      if (neuron === null) muted.set(group, null);
      else if (muted.get(group) !== null) muted.set(group, (muted.get(group) ?? new Set()).add(neuron));
    }
    this.circuit.setMuted(muted);
    this.attention.hidden = new Set(edits.filter(({ kind }) => kind === "hide").map(({ back }) => back));
    this.attention.surface.touch();
    const heads = new Set(edits.filter(({ kind, group }) => kind === "mute" && !group).map(({ head }) => head));
    this.buttons.forEach((button, i) => { button.dataset.muted = heads.has(i) ? "yes" : "no"; });
  }

  // The moment that comes next stands still: its sentence need not wait until the last one has been read.
  still() {
    this.said = -Infinity;
  }

  // A head that is chosen before there are any.
  want(head) {
    this.chosen = true;
    this.mark(Math.max(0, this.buttons.length ? Math.min(head, this.buttons.length - 1) : head));
  }

  makeButtons(count) {
    const label = document.createElement("span");
    label.textContent = "head";
    this.head = Math.min(this.head, count - 1);
    this.buttons = Array.from({ length: count }, (_, i) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = String(i + 1);
      button.setAttribute("aria-pressed", String(i === this.head));
      button.setAttribute("aria-label", `head ${i + 1}`);
      button.addEventListener("click", () => {
        this.chosen = true;
        this.mark(i);
        this.refresh();
      });
      return button;
    });
    $("heads").replaceChildren(label, ...this.buttons);
    this.setEdits(this.edits);
    this.onHead?.(this.head);
  }

  mark(head) {
    this.head = head;
    this.said = -Infinity;
    this.buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(i === head)));
    this.setEdits(this.edits);
    this.onHead?.(head);
  }
}
