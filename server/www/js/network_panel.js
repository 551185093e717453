// Why it decides so: what muting each part alone changes; behind it the circuit of one head and the attention over the window.

import { Attention } from "./attention.js";
import { Circuit } from "./circuit.js";
import { $, put } from "./dom.js";
import { SYMBOLS } from "./neurons.js";
import { Tour, neuronStops } from "./tour.js";
import { WhyPanel } from "./why_panel.js";

// A sentence changes no faster than it is read.
const READING_MS = 1000;
// Synapses that did not come are asked for again.
const EDGES_AGAIN_MS = 1000;

export class NetworkPanel {
  constructor() {
    // As it is, and beside it as it is under edits.
    this.views = ["", "-edited"].map((which) => ({ circuit: new Circuit($(`circuit${which}`)), attention: new Attention($(`attention${which}`)) }));
    this.circuit = this.views[0].circuit;
    this.reasons = new WhyPanel($("why"));
    this.without = "This driver has no network whose parts could be muted.";
    this.edits = [];
    this.onHead = null;
    $("show-neurons").addEventListener("click", () => this.open($("neurons").hidden));
    const tour = new Tour(() => neuronStops(this.circuit.ofPairs), $("neuron-tour"));
    $("neuron-tour").addEventListener("click", () => tour.start());
    this.clear();
  }

  clear() {
    this.head = 0;
    this.chosen = false;
    this.neurons = null;
    this.film = null;
    this.why = null;
    /** @type {{neurons: any, why: any} | null} */
    this.edited = null;
    this.shownAt = -Infinity;
    this.buttons = [];
  }

  setWiring(wiring) {
    this.clear();
    for (const { circuit, attention } of this.views) {
      circuit.setWiring(wiring);
      attention.clear();
    }
    $("heads").replaceChildren();
    this.wired = Boolean(wiring);
    this.reasons.note(wiring ? "Measured as soon as it decides." : this.without);
    put($("why-note"), "each part muted alone, measured");
    this.fold();
  }

  // Room is kept only for what can come.
  fold() {
    $("show-neurons").hidden = !this.neurons && !this.wired;
    $("show-neurons").closest(".why").classList.toggle("empty", !this.wired && !this.neurons && !this.why);
  }

  // The neurons are for those who want to see them.
  open(on) {
    $("neurons").hidden = !on;
    $("show-neurons").setAttribute("aria-expanded", String(on));
    put($("show-neurons"), on ? "Hide the neurons" : "Show the neurons");
    /** @type {HTMLElement} */ ($("show-neurons").closest(".why")).dataset.neurons = on ? "yes" : "no";
    if (on) this.refresh();
  }

  // The synapses of a running drive's circuit come when somebody looks.
  async fetchEdges() {
    const { wiring } = this.circuit;
    if (!wiring || wiring.edges) return;
    wiring.edges = [];
    try {
      wiring.edges = (await (await fetch("edges")).json()).edges;
    } catch {
      setTimeout(() => {
        wiring.edges = null;
        this.refresh();
      }, EDGES_AGAIN_MS);
      return;
    }
    for (const { circuit } of this.views) circuit.place();
  }

  // neurons and why: {why, t_s}: the last ones up to a moment, null where there are none; film: the frames attended to.
  show(neurons, row, film, why) {
    this.neurons = neurons ?? this.neurons;
    this.film = film;
    this.why = why;
    // What was measured under edits stands for its own moment alone.
    if (row.t_s !== this.shown_s) this.edited = null;
    this.shown_s = row.t_s;
    this.fold();
    if (neurons && this.buttons.length !== neurons.heads) this.makeButtons(neurons.heads);
    this.refresh();
  }

  // Of the very moment that stands still: why, and under edits the neurons and why of the edited network.
  answer(why, edited = this.edited) {
    this.why = why;
    // What is said of edits goes with them.
    if (edited || this.edited) this.still();
    this.edited = edited;
    this.fold();
    this.refresh();
  }

  refresh() {
    this.explain();
    if ($("neurons").hidden || !this.neurons) return;
    this.fetchEdges();
    const shown = [this.neurons, this.edited?.neurons ?? null];
    this.views.forEach(({ circuit, attention }, i) => {
      const beside = i === 1 && !shown[1];
      for (const { surface } of [circuit, attention]) {
        if (surface.canvas.hidden === beside) continue;
        surface.canvas.hidden = beside;
        for (const view of this.views) [view.circuit, view.attention].forEach((one) => one.surface.fit());
      }
      if (!shown[i]) return;
      circuit.show(shown[i], this.head);
      attention.show(shown[i], this.head, this.film);
    });
    const { neurons } = this;
    const ages = Array.from(neurons.times, (_, key) => neurons.age(key).toFixed(2));
    $("attention").setAttribute("aria-label", `Attention of every head over the frames of ${ages.join(", ")} s ago`);
    put($("equation"), Object.entries(SYMBOLS).filter(([name]) => neurons.has(name)).map(([name, symbol]) => {
      const values = shown.filter(Boolean).map((one) => one.summary(name, this.head)?.mean.toFixed(2) ?? "–");
      return `${name === "t" && neurons.has("rho") ? "lag" : symbol} ${values.join(" → ")}`;
    }).join(" · "));
  }

  // The sentence and the bars are of one moment, which is said beside them.
  explain() {
    if (!this.why) {
      if (this.reasons.why) this.reasons.note("Measuring …");
      return;
    }
    const rest = this.shownAt + READING_MS - performance.now();
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
    this.shownAt = performance.now();
    const { why, t_s } = this.why;
    this.reasons.show(this.edited?.why ?? why, this.edited?.why ? why : null);
    put($("why-note"), `each part muted alone, measured at ${t_s.toFixed(2)} s`);
    const head = (this.edited?.why ?? why).head;
    if (head !== null && !this.chosen && head !== this.head) this.mark(head);
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
    for (const { circuit, attention } of this.views) {
      circuit.setMuted(muted);
      attention.setHidden(new Set(edits.filter(({ kind }) => kind === "hide").map(({ back }) => back)));
    }
    this.views[1].attention.patches = edits.filter(({ kind }) => kind === "paint");
    const heads = new Set(edits.filter(({ kind, group }) => kind === "mute" && !group).map(({ head }) => head));
    this.buttons.forEach((button, i) => { button.dataset.muted = heads.has(i) ? "yes" : "no"; });
  }

  // The moment that comes next stands still: its sentence need not wait until the last one has been read.
  still() {
    this.shownAt = -Infinity;
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
    this.buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(i === head)));
    this.setEdits(this.edits);
    this.onHead?.(head);
  }
}
