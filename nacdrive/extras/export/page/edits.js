// The list of edits of a shared page, and how the network and the lap take them.

import { alike, decodeEdits, encode } from "/js/edits.js";

/** @typedef {import("/js/edits.js").Edit} Edit */

// Of these there is one at a time, a new one takes the old one's place: the field that tells how much, and its neutral value.
const SLIDERS = { dim: ["factor", 1], blur: ["sigma", 0], shift: ["seconds", 0] };

export class Edits {
  constructor(changed) {
    /** @type {Edit[]} */
    this.list = [];
    this.everyFrame = true;
    this.changed = changed;
  }

  // Add an edit; one that is there already is taken away again.
  toggle(edit) {
    const at = this.list.findIndex((one) => alike(one, edit));
    if (at >= 0) this.list.splice(at, 1);
    else this.list.push(edit);
    this.changed();
  }

  // Set a slider's edit; its neutral value takes it away.
  set(kind, value) {
    const [field, neutral] = SLIDERS[kind];
    const at = this.list.findIndex((one) => one.kind === kind);
    const edit = { kind, [field]: value };
    if (value === neutral) at >= 0 && this.list.splice(at, 1);
    else if (at >= 0) this.list[at] = edit;
    else this.list.push(edit);
    this.changed();
  }

  value(kind, list = this.list) {
    const [field, neutral] = SLIDERS[kind];
    return list.find((one) => one.kind === kind)?.[field] ?? neutral;
  }

  has(edit) {
    return this.list.some((one) => alike(one, edit));
  }

  remove(at) {
    this.list.splice(at, 1);
    this.changed();
  }

  // Take away the newest, or all.
  undo() {
    this.list.pop();
    this.changed();
  }

  clear() {
    this.list = [];
    this.changed();
  }

  // As `Lap.decide` takes it; null where nothing is edited.
  compile(list = this.list) {
    if (!list.length) return null;
    const paints = list.filter(({ kind }) => kind === "paint");
    const [light, blur] = [this.value("dim", list), this.value("blur", list)];
    const muted = list.filter(({ kind }) => kind === "mute");
    const touched = paints.length || light !== 1 || blur > 0;
    return {
      picture: touched ? { paints, light, blur, everyFrame: this.everyFrame, key: JSON.stringify([paints, light, blur]) } : null,
      network: {
        heads: new Set(muted.filter(({ group }) => !group).map(({ head }) => head)),
        neurons: muted.filter(({ group }) => group && group !== "unit").map(({ group, neuron, head }) => ({ group, index: neuron, head })),
        units: new Set(muted.filter(({ group }) => group === "unit").map(({ neuron }) => neuron)),
        hidden: new Set(list.filter(({ kind }) => kind === "hide").map(({ back }) => back)),
        delay_s: this.value("shift", list),
      },
    };
  }

  text() {
    return encode(this.list);
  }

  // Those of an address that this network knows.
  restore(text, network) {
    this.list = decodeEdits(text, Infinity).filter((edit) => fits(edit, network));
  }
}

/** @param {Edit} edit */
function fits({ kind, factor, sigma, seconds, back, head, group, neuron }, network) {
  const s = network.sequence;
  const sizes = { ...s.sizes, unit: s.width };
  switch (kind) {
    case "dim": return factor <= 2;
    case "blur": return Number.isInteger(sigma) && sigma <= 8;
    case "shift": return seconds <= 1;
    case "hide": return back < network.window;
    case "mute":
      if (Boolean(s.sizes) === (group === "unit") || (s.oneCircuit && group && head !== null) || head >= (s.heads ?? 0) && head !== null) return false;
      return group ? (neuron === null ? group !== "unit" : neuron >= 0 && neuron < sizes[group]) : head !== null && head >= 0;
    default: return true;
  }
}
