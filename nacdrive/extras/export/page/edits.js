// What if: the list of edits, in words and as the network and the lap take them, and the effect in a sentence.
"use strict";

// Of these there is one at a time: a new one takes the old one's place.
const SINGLE = new Set(["light", "blur", "delay"]);
const NEUTRAL = { light: 1, blur: 0, delay: 0 };
const GREEK = { 0: "φ (target)", 1: "ω (rate)" };

class Edits {
  constructor(changed) {
    this.list = [];
    this.everyFrame = true;
    this.changed = changed;
  }

  // Add an edit; one that is there already is taken away again.
  toggle(edit) {
    const text = JSON.stringify(edit);
    const at = this.list.findIndex((e) => JSON.stringify(e) === text);
    if (at >= 0) this.list.splice(at, 1);
    else this.list.push(edit);
    this.changed();
  }

  // Set a slider's edit; its neutral value takes it away.
  set(kind, value) {
    const edit = { kind, value };
    const at = this.list.findIndex((e) => e.kind === kind);
    if (value === NEUTRAL[kind]) at >= 0 && this.list.splice(at, 1);
    else if (at >= 0) this.list[at] = edit;
    else this.list.push(edit);
    this.changed();
  }

  value(kind) {
    return this.list.find((e) => e.kind === kind)?.value ?? NEUTRAL[kind];
  }

  has(edit) {
    const text = JSON.stringify(edit);
    return this.list.some((e) => JSON.stringify(e) === text);
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
    const of = (kind) => list.filter((e) => e.kind === kind);
    const one = (kind) => of(kind)[0]?.value ?? NEUTRAL[kind];
    const picture = { paints: of("paint"), light: one("light"), blur: one("blur"), everyFrame: this.everyFrame };
    picture.key = JSON.stringify([picture.paints, picture.light, picture.blur]);
    const touched = picture.paints.length || picture.light !== 1 || picture.blur > 0;
    return {
      picture: touched ? picture : null,
      network: {
        heads: new Set(of("head").map((e) => e.head)),
        neurons: of("neuron"),
        units: new Set(of("unit").map((e) => e.index)),
        hidden: new Set(of("hide").map((e) => e.age)),
        delay_s: one("delay"),
      },
    };
  }

  // An address behind # that brings the edits back, and what it held.
  text() {
    return this.list.length ? JSON.stringify(this.list) : "";
  }

  restore(text, network) {
    try {
      const list = JSON.parse(text);
      this.list = Array.isArray(list) ? list.filter((e) => sound(e, network)) : [];
    } catch {
      this.list = [];
    }
  }
}

// Whether an edit from an address is one that this network knows.
function sound(e, network) {
  const s = network.sequence;
  const number = (v, least, most) => typeof v === "number" && v >= least && v <= most;
  const whole = (v, below) => Number.isInteger(v) && v >= 0 && v < below;
  const sizes = { sensory: 2 * s.depth, inter: s.inters, command: s.commands, motor: 2 };
  switch (e?.kind) {
    case "paint": return [e.x, e.y, e.w, e.h].every((v) => number(v, 0, 1));
    case "light": return number(e.value, 0, 2);
    case "blur": return whole(e.value, 9);
    case "delay": return number(e.value, -1, 1);
    case "hide": return whole(e.age, network.window) && e.age > 0;
    case "head": return whole(e.head, s.heads ?? 0);
    case "unit": return !s.heads && whole(e.index, s.width);
    case "neuron": return Boolean(s.heads) && Object.keys(sizes).includes(e.group) && (e.index === null || whole(e.index, sizes[e.group])) && (e.head === null || whole(e.head, s.heads));
    default: return false;
  }
}

// An edit in words.
function words(e, lap) {
  const part = (x) => (x < 1 / 3 ? 0 : x < 2 / 3 ? 1 : 2);
  switch (e.kind) {
    case "paint": {
      const row = e.h > 0.9 ? "" : ["top", "middle", "bottom"][part(e.y + e.h / 2)];
      const column = e.w > 0.9 ? "" : ["left", "middle", "right"][part(e.x + e.w / 2)];
      if (row === column) return `grey over the ${row || "whole"} (${Math.max(1, Math.round(100 * e.w * e.h))} % of the picture)`;
      return `grey over the ${[row, column].filter(Boolean).join(" ")} (${Math.max(1, Math.round(100 * e.w * e.h))} % of the picture)`;
    }
    case "light": return e.value < 1 ? `the light at ${Math.round(100 * e.value)} %` : `the light at ${Math.round(100 * e.value)} % (glare)`;
    case "blur": return `the picture blurred by ${e.value} px`;
    case "delay": return `the frame ${Math.abs(Math.round(1000 * e.value))} ms ${e.value > 0 ? "later" : "earlier"}`;
    case "hide": return `the frame of ${ago(e.age, lap)} hidden`;
    case "head": return `head ${e.head + 1} muted`;
    case "unit": return `unit ${e.index + 1} muted`;
    case "neuron": {
      const where = e.head === null ? "" : ` of head ${e.head + 1}`;
      if (e.group === "motor") return e.index === null ? `φ and ω${where} cut off` : `${GREEK[e.index]}${where} cut off`;
      return e.index === null ? `all ${e.group} neurons${where} muted` : `${e.group} neuron ${e.index + 1}${where} muted`;
    }
    default: return "";
  }
}

function ago(age, lap) {
  return `${(age * lap.network.description.gap_s).toFixed(2)} s ago`;
}

function percent(share) {
  const p = 100 * share;
  return `${p > 0 && p < 1 ? "<1" : p < 100 && p > 99 ? ">99" : Math.round(p)}\u00a0%`;
}

function side(steering) {
  return Math.abs(steering) < 0.005 ? "straight" : `${Math.abs(steering).toFixed(2)} ${steering < 0 ? "left" : "right"}`;
}

// In words what a decision does.
function verb({ steering, throttle, brake, choice }) {
  if (brake > 0.05 && brake >= throttle) return "brakes";
  if (steering < -0.05) return "steers left";
  if (steering > 0.05) return "steers right";
  if (choice < 0) return "steers straight on";
  return throttle > 0.05 ? "accelerates" : "coasts";
}

function listed(parts) {
  return parts.length < 2 ? parts.join("") : `${parts.slice(0, -1).join(", ")} and ${parts[parts.length - 1]}`;
}

// The measured effect of the edits at one frame.
function effect(list, before, after, lap) {
  if (!list.length) return "";
  const shown = list.length > 3 ? [...list.slice(0, 2).map((e) => words(e, lap)), `${list.length - 2} more edits`] : list.map((e) => words(e, lap));
  const cause = `With ${listed(shown)}`;
  if (!before.shares) {
    const change = after.steering - before.steering;
    if (Math.abs(change) < 0.005) return `${cause} it steers as before: ${side(before.steering)}.`;
    return `${cause} it would steer ${Math.abs(change).toFixed(2)} further ${change < 0 ? "left" : "right"}: ${side(before.steering)} → ${side(after.steering)}.`;
  }
  const { labels } = lap.network;
  const change = (k) => `${labels[k]} ${percent(before.shares[k])} → ${percent(after.shares[k])}`;
  if (after.choice === before.choice) return `${cause} it still ${verb(before)}: ${change(before.choice)}.`;
  return `${cause} it ${verb(after)}, where it ${verb(before)} without: ${change(before.choice)}, ${change(after.choice)}.`;
}
