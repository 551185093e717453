// The lists from which a person mutes heads and neurons of a policy's circuit; those of a shared lap and of the playground.

import { $, button, input, put } from "/js/dom.js";

const GATES = ["φ (target)", "ω (rate)"];

/** @returns {import("/js/edits.js").Edit} */
export const headMuted = (/** @type {number} */ head) => ({ kind: "mute", head, group: null, neuron: null });

/**
 * Fill the lists of groups and heads, and the buttons of the heads; hidden where the layer has no circuit.
 * @param {import("./network.js").SequenceLayer} s
 * @param {(edit: import("/js/edits.js").Edit) => void} toggle
 */
export function listHeads(s, toggle) {
  const circuit = Boolean(s.sizes);
  $("heads-part").hidden = $("of-head").hidden = !circuit;
  if (!circuit) put($("network-legend"), "The layer");
  const groups = circuit ? ["sensory", "inter", "command", "motor"].map((g) => new Option(`${g} neurons`, g)) : [new Option("unit", "unit")];
  $("group").replaceChildren(...groups);
  if (circuit) input("group").value = "inter";
  const heads = Array.from({ length: s.heads ?? 0 }, (_, h) => h);
  // Where one circuit serves all heads, its neurons are of none.
  const own = s.oneCircuit ? [] : heads;
  $("of").replaceChildren(new Option("every head", ""), ...own.map((h) => new Option(`head ${h + 1}`, String(h))));
  $("heads").replaceChildren(...heads.map((h) => button(String(h + 1), () => toggle(headMuted(h)), { name: `Mute head ${h + 1}` })));
  listNeurons(s);
}

/** What the lists name, muted. @returns {import("/js/edits.js").Edit} */
export function chosenMuted() {
  const chosen = (/** @type {string} */ id) => (input(id).value === "" ? null : Number(input(id).value));
  const group = input("group").value;
  return { kind: "mute", group, neuron: chosen("neuron"), head: group === "unit" ? null : chosen("of") };
}

// A line of the list of edits, with a button that takes it back.
export function editRow(/** @type {string} */ text, /** @type {() => void} */ remove) {
  const item = document.createElement("li");
  item.innerHTML = '<span></span><button type="button">✕</button>';
  put(item.firstElementChild, text);
  item.lastElementChild.setAttribute("aria-label", `Undo: ${text}`);
  item.lastElementChild.addEventListener("click", remove);
  return item;
}

/**
 * Fill the list of neurons of the chosen group.
 * @param {import("./network.js").SequenceLayer} s
 */
export function listNeurons(s) {
  const group = input("group").value;
  const { heads = 0, depth = 0 } = s;
  const sizes = /** @type {Record<string, number>} */ ({ ...s.sizes, unit: s.width });
  const pair = (/** @type {number} */ i) => (group === "motor" ? GATES[i] : group === "sensory" ? (i < depth ? `q ${i + 1}` : `k ${i - depth + 1}`) : `${i + 1}`);
  const key = (/** @type {number} */ i) => (group === "motor" ? `${"φωρ"[Math.floor(i / heads)]} of head ${(i % heads) + 1}` : `${i + 1}`);
  const name = s.oneCircuit ? key : pair;
  const all = group === "unit" ? [] : [new Option("all of them", "")];
  $("neuron").replaceChildren(...all, ...Array.from({ length: sizes[group] }, (_, i) => new Option(name(i), String(i))));
}
