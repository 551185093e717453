// The card of what if: what to change, what it decides then, what came of it in words.

import { $, button, fixed, known, percent, put } from "/js/dom.js";
import { words } from "/js/edits.js";

/** @typedef {import("/js/edits.js").Edit} Edit */

const GROUPS = ["sensory", "inter", "command", "motor"];

function slider(label, { min, max, step, value, unit }, act) {
  const row = document.createElement("label");
  row.className = "dial";
  const name = document.createElement("span");
  name.textContent = label;
  const input = document.createElement("input");
  Object.assign(input, { type: "range", min, max, step, value });
  const output = document.createElement("output");
  const show = () => put(output, unit(Number(input.value)));
  input.addEventListener("input", () => {
    show();
    act(Number(input.value));
  });
  show();
  row.append(name, input, output);
  return { row, set: (v) => { input.value = v; show(); } };
}

function group(title, ...children) {
  const box = document.createElement("div");
  box.className = "tool";
  const heading = document.createElement("span");
  heading.className = "dim";
  heading.textContent = title;
  box.append(heading, ...children);
  return box;
}

function row(...children) {
  const box = document.createElement("span");
  box.className = "row";
  box.append(...children);
  return box;
}

export class WhatIfPanel {
  // acts: set(kind, edit | null), toggle(edit), drop(i), undo(), clear(), map(), drive(), stop(), copy(), close(), level()
  constructor(root, acts) {
    this.root = root;
    this.acts = acts;
    this.bars = [];
    // What each switch stands for.
    /** @type {WeakMap<Element, Edit>} */
    this.switches = new WeakMap();
    this.sentence = document.createElement("p");
    this.sentence.className = "sentence";
    this.sentence.setAttribute("role", "status");
    this.effect = document.createElement("p");
    this.effect.className = "sentence effect";
    this.effect.setAttribute("role", "status");
    this.eyes = Object.assign(document.createElement("img"), { className: "eyes", alt: "What the ghost sees", hidden: true });
    this.list = document.createElement("ol");
    this.list.className = "edits";
    this.list.setAttribute("aria-label", "Edits");
    this.level = document.createElement("select");
    this.level.setAttribute("aria-label", "Colour to paint with");
    for (const [value, text] of [["128", "grey"], ["0", "black"], ["mean", "mean colour"]]) {
      this.level.append(Object.assign(document.createElement("option"), { value, textContent: text }));
    }
    this.dim = slider("light", { min: 0, max: 2, step: 0.05, value: 1, unit: percent }, (v) => acts.set("dim", v === 1 ? null : { kind: "dim", factor: v }));
    this.blur = slider("blur", { min: 0, max: 8, step: 0.5, value: 0, unit: (v) => `${v} px` }, (v) => acts.set("blur", v ? { kind: "blur", sigma: v } : null));
    this.late = slider("later", { min: 0, max: 1, step: 0.04, value: 0, unit: (v) => `${v.toFixed(2)} s` }, (v) => acts.set("shift", v ? { kind: "shift", seconds: v } : null));
    this.hide = row();
    this.heads = row();
    this.heads.classList.add("many");
    this.groups = row();
    this.outcome = document.createElement("div");
    this.outcome.className = "outcome";
    this.mapButton = button("What it hangs on", acts.map, { title: "Paint grey over each of 12 × 12 parts of the picture in turn" });
    this.driveButton = button("Drive on from here", acts.drive, { title: "Simulate the drive once more, and from this moment on under the edits" });
    this.driveButton.className = "main";
    this.undo = button("Undo", acts.undo, { title: "Take the last edit back" });
    this.clear = button("Clear", acts.clear, { title: "Take all edits back" });
    this.copy = button("Copy link", acts.copy, { title: "A link to this moment with these edits" });
    this.copy.hidden = true;
    const close = button("Close", acts.close, { key: "I" });
    close.className = "quiet close";
    $("what-if-h").append(close);
    const tools = document.createElement("div");
    tools.className = "tools";
    this.memory = group("hide a remembered frame", this.hide);
    this.memory.append(this.late.row);
    this.network = group("mute a head; a neuron: show the neurons, click it", this.heads, this.groups);
    tools.append(group("paint over the picture: drag on it", row(this.level, this.mapButton), this.dim.row, this.blur.row), this.memory, this.network);
    const answers = document.createElement("div");
    answers.className = "answers";
    answers.append(this.sentence, this.outcome, row(this.driveButton), this.eyes, this.effect);
    const kept = document.createElement("div");
    kept.className = "kept";
    kept.append(this.list, row(this.undo, this.clear, this.copy));
    const body = document.createElement("div");
    body.className = "what-if-body";
    body.append(answers, tools, kept);
    root.append(body);
  }

  // window: frames remembered; heads: their number, 0 without a circuit; ghost: whether the world can be driven again; own:
  // the head whose neurons are muted, null of all.
  describe({ window, heads, ghost, own }) {
    if (this.hide.childElementCount !== window - 1) {
      this.hide.replaceChildren(...Array.from({ length: window - 1 }, (_, i) => this.switch(`−${i + 1}`, { kind: "hide", back: i + 1 }, `Hide the frame of ${i + 1} decision${i ? "s" : ""} ago`)));
    }
    this.memory.hidden = window < 2;
    this.network.hidden = !heads;
    if (this.heads.childElementCount !== heads) {
      this.heads.replaceChildren(...Array.from({ length: heads }, (_, i) => this.switch(String(i + 1), { kind: "mute", head: i, group: null, neuron: null }, `Mute head ${i + 1}`)));
    }
    if (this.own !== own) {
      this.own = own;
      const whose = own === null ? "all heads" : `head ${own + 1}`;
      this.groups.replaceChildren(...GROUPS.map((name) => this.switch(`${name} of ${whose}`, { kind: "mute", head: own, group: name, neuron: null }, `Mute all ${name} neurons of ${whose}`)));
    }
    this.driveButton.hidden = !ghost;
  }

  switch(text, edit, title) {
    const element = button(text, () => this.acts.toggle(edit), { title });
    this.switches.set(element, edit);
    element.setAttribute("aria-pressed", "false");
    return element;
  }

  show(edits, same) {
    for (const element of this.root.querySelectorAll("button[aria-pressed]")) {
      const on = String(edits.some((edit) => same(edit, this.switches.get(element))));
      if (element.getAttribute("aria-pressed") !== on) element.setAttribute("aria-pressed", on);
    }
    this.dim.set(edits.findLast((edit) => edit.kind === "dim")?.factor ?? 1);
    this.blur.set(edits.findLast((edit) => edit.kind === "blur")?.sigma ?? 0);
    this.late.set(edits.findLast((edit) => edit.kind === "shift")?.seconds ?? 0);
    this.undo.disabled = this.clear.disabled = this.driveButton.disabled = !edits.length;
    this.list.replaceChildren(...edits.map((edit, i) => {
      const item = document.createElement("li");
      const text = document.createElement("span");
      text.textContent = words(edit);
      item.append(text, button("×", () => this.acts.drop(i), { name: `Take back: ${words(edit)}` }));
      return item;
    }));
    if (!edits.length) {
      const none = document.createElement("li");
      none.className = "dim";
      none.textContent = "nothing is changed yet";
      this.list.append(none);
    }
  }

  // entries: [{name, base, edited, chosen, was}], shares 0 .. 1; or of a continuous driver the steering.
  bar(entries, centred) {
    if (this.bars.length !== entries.length) {
      this.bars = entries.map(() => {
        const line = document.createElement("div");
        line.className = "answer";
        line.innerHTML = `<span></span><div class="track${centred ? " centre" : ""}"><i class="fill"></i><i class="was"></i></div><output></output>`;
        const [name, track, output] = line.children;
        const [fill, was] = /** @type {HTMLCollectionOf<HTMLElement>} */ (track.children);
        return { line, name, fill, was, output };
      });
      this.outcome.replaceChildren(...this.bars.map(({ line }) => line));
    }
    entries.forEach((entry, i) => {
      const bar = this.bars[i];
      put(bar.name, entry.name);
      bar.fill.style.transform = `scaleX(${known(entry.edited) ? entry.edited : 0})`;
      bar.was.style.left = `${centred ? 50 + 50 * entry.base : 100 * entry.base}%`;
      bar.line.dataset.chosen = entry.chosen ? "yes" : "no";
      bar.line.dataset.was = entry.was ? "yes" : "no";
      put(bar.output, centred ? `${fixed(entry.base, 2)} → ${fixed(entry.edited, 2)}` : `${percent(entry.base)} → ${percent(entry.edited)}`);
    });
  }

  say(text) {
    put(this.sentence, text);
  }

  // picture: JPEG in base64, or nothing.
  see(picture) {
    this.eyes.hidden = !picture;
    if (picture) this.eyes.src = `data:image/jpeg;base64,${picture}`;
  }

  tell(text, driving) {
    put(this.effect, text);
    put(this.driveButton.firstChild, driving ? "Stop the ghost" : "Drive on from here");
  }
}
