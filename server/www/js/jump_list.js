// Moments worth a look, found while rows come in: disagreements with the expert, doubts, off the road, late decisions.

import { known } from "./dom.js";
import { disagrees } from "./track_map.js";

export const KINDS = ["disagrees", "doubts", "off the road", "late"];
// Less sure than this of five actions is a doubt.
const DOUBT = 0.5;
// Two of a kind within this time are one.
const APART_S = 0.6;
const MOST_ENTRIES = 400;

export class JumpList {
  constructor() {
    this.clear();
  }

  clear() {
    this.entries = [];
    this.last = new Map();
    this.missed = NaN;
    this.version = 0;
  }

  // The newest row of the ring.
  observe(ring) {
    const i = ring.length - 1;
    const row = (name) => ring.at(i, name);
    if (row("held") === 1) return;
    const expert = known(row("expert_steering"));
    const [choice, wanted] = [row("choice"), row("expert_choice")];
    if (expert && disagrees(ring, i)) this.add("disagrees", ring, i, known(choice) && known(wanted) ? { choice, wanted } : { steering: row("steering"), expert: row("expert_steering") });
    if (row("sure") < DOUBT) this.add("doubts", ring, i, { sure: row("sure") });
    if (row("missed") > this.missed) this.add("late", ring, i, { ms: row("decision_ms") });
    this.missed = row("missed");
  }

  event(event) {
    if (/off road|left the field/i.test(event.text)) this.push("off the road", event, {});
  }

  add(kind, ring, i, more) {
    this.push(kind, { clock_s: ring.at(i, "clock_s"), t_s: ring.at(i, "t_s"), episode: ring.at(i, "episode") }, more);
  }

  push(kind, { clock_s, t_s, episode }, more) {
    const last = this.last.get(kind);
    const same = last && clock_s - last.until < APART_S && last.episode === episode;
    if (same) {
      last.until = clock_s;
      return;
    }
    const entry = { kind, clock_s, t_s, episode, until: clock_s, more };
    this.last.set(kind, entry);
    this.entries.push(entry);
    if (this.entries.length > MOST_ENTRIES) this.entries.shift();
    this.version++;
  }
}

// What stands in the list.
export function sentence({ kind, more }, names) {
  const name = (choice) => names[choice] ?? `choice ${choice}`;
  if (kind === "disagrees") return more.wanted !== undefined ? `${name(more.choice)}, the expert: ${name(more.wanted)}` : `${more.steering.toFixed(2)}, the expert: ${more.expert.toFixed(2)}`;
  if (kind === "doubts") return `only ${Math.round(more.sure * 100)} % sure`;
  if (kind === "late") return known(more.ms) ? `late: decided in ${more.ms.toFixed(0)} ms` : "late";
  return kind;
}
