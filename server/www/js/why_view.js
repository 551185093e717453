// Why it decides so: the circuit of a chosen head, the gates of all heads, the attention over the window.

import { Attention } from "./attention.js";
import { Circuit } from "./circuit.js";
import { Gates } from "./gates.js";
import { Neurons } from "./neurons.js";
import { put } from "./does_view.js";

const $ = (id) => document.getElementById(id);

export class WhyView {
  constructor() {
    this.circuit = new Circuit($("circuit"));
    this.attention = new Attention($("attention"));
    this.gates = new Gates($("gates"));
    this.head = 0;
    this.neurons = null;
    this.seq = 0;
    this.gap = NaN;
    // What is said where a driver has no circuit.
    this.without = "This driver has no neuronal attention circuit.";
  }

  setPlan(plan) {
    this.circuit.setPlan(plan);
    this.gates.clear();
    this.neurons = null;
    $("heads").replaceChildren();
    this.planned = Boolean(plan);
    this.say(plan ? "Waiting for the first neurons …" : this.without);
    this.fold();
  }

  // Room is kept only for what can come.
  fold() {
    $("circuit").closest(".why").classList.toggle("empty", !this.planned && !this.neurons);
  }

  say(text) {
    if ($("circuit-note").hidden !== !text) $("circuit-note").hidden = !text;
    put($("circuit-note"), text);
  }

  // parts may lack the neurons (they may come every Nth Tick only): then the last ones stay.
  show(parts, seq, gap) {
    const neurons = Neurons.of(parts);
    this.gap = gap;
    if (neurons) {
      this.neurons = neurons;
      this.seq = seq;
      this.say(neurons.has("phi") ? "" : this.without);
      this.fold();
      if ($("heads").childElementCount !== neurons.heads) this.headButtons(neurons.heads);
    }
    this.refresh();
  }

  refresh() {
    const { neurons, head } = this;
    this.circuit.show(neurons, head);
    this.gates.show(neurons, head);
    this.attention.show(neurons, head, this.seq, this.gap);
    put($("why-note"), neurons?.has("weights") ? this.sentence(neurons) : "the neuronal attention circuit");
  }

  // Where the heads' attention lies, in one sentence.
  sentence(neurons) {
    if (neurons.keys === 1) return "decides from this frame alone";
    const mean = neurons.meanWeights();
    const best = mean.indexOf(Math.max(...mean));
    const age = (neurons.keys - 1 - best) * this.gap;
    const share = Math.round(mean[best] * 100);
    return best === neurons.keys - 1 ? `looks most at this frame (${share} %)` : `looks most at ${age.toFixed(2)} s ago (${share} %)`;
  }

  headButtons(count) {
    const label = document.createElement("span");
    label.textContent = "head";
    this.head = Math.min(this.head, count - 1);
    const buttons = Array.from({ length: count }, (_, i) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = String(i + 1);
      button.setAttribute("aria-pressed", String(i === this.head));
      button.setAttribute("aria-label", `head ${i + 1}`);
      button.addEventListener("click", () => this.choose(i));
      return button;
    });
    $("heads").replaceChildren(label, ...buttons);
  }

  choose(head) {
    this.head = head;
    [...$("heads").querySelectorAll("button")].forEach((b, i) => b.setAttribute("aria-pressed", String(i === head)));
    this.refresh();
  }
}
