// Counts over a run: what was steered or chosen, by the policy and by who is to compare with; how sure, and how often as
// the expert. Fed with rows, it keeps counts alone, the same after an hour as after a minute.

import { known } from "./dom.js";

export const STEERING_BINS = 21;
export const SURENESS_BINS = 10;

export class RunStatistics {
  constructor() {
    this.clear();
  }

  // itself: the expert drives, and is not compared with itself. scores: whether how sure it was is its own; a recording
  // keeps the scores of the expert alone.
  clear({ itself = false, scores = true } = {}) {
    this.itself = itself;
    this.scores = scores;
    this.decisions = 0;
    this.compared = 0;
    this.agreed = 0;
    this.asked = 0;
    this.own = { steering: new Float64Array(STEERING_BINS), choices: new Map(), chosen: 0 };
    this.other = { steering: new Float64Array(STEERING_BINS), choices: new Map(), chosen: 0 };
    this.sure = Array.from({ length: SURENESS_BINS }, () => ({ count: 0, sum: 0, hits: 0 }));
    this.version = 0;
  }

  // Row i of a ring. driven: {steering, choice} of a recorded driver, who stands in where no expert is known.
  observe(ring, i, driven = null) {
    if (ring.at(i, "held") === 1) return;
    // Of the policy, where a person drives in its stead.
    const who = ring.at(i, "person") === 1 ? "policy_" : "";
    const own = { steering: ring.at(i, `${who}steering`), choice: ring.at(i, `${who}choice`) };
    if (!known(own.steering)) return;
    this.decisions++;
    this.version++;
    add(this.own, own);
    if (this.itself) return;
    const expert = { steering: ring.at(i, "expert_steering"), choice: ring.at(i, "expert_choice") };
    const other = known(expert.steering) ? expert : driven;
    if (!other || !known(other.steering)) return;
    this.compared++;
    add(this.other, other);
    if (!known(own.choice) || !known(other.choice)) return;
    const same = own.choice === other.choice ? 1 : 0;
    this.asked++;
    this.agreed += same;
    const sure = ring.at(i, "sure");
    if (!this.scores || !known(sure)) return;
    const bin = this.sure[Math.min(SURENESS_BINS - 1, Math.max(0, Math.floor(sure * SURENESS_BINS)))];
    bin.count++;
    bin.sum += sure;
    bin.hits += same;
  }

  // Mean distance between how sure the policy was and how often it did as the other, weighted by decisions; NaN where
  // nothing was compared (expected calibration error, Guo et al. 2017).
  get calibrationError() {
    const count = this.sure.reduce((sum, bin) => sum + bin.count, 0);
    return count ? this.sure.reduce((sum, bin) => sum + Math.abs(bin.hits - bin.sum), 0) / count : NaN;
  }
}

function add(counts, { steering, choice }) {
  const bin = Math.floor(((Math.max(-1, Math.min(1, steering)) + 1) / 2) * STEERING_BINS);
  counts.steering[Math.min(STEERING_BINS - 1, bin)]++;
  if (!known(choice)) return;
  counts.choices.set(choice, (counts.choices.get(choice) ?? 0) + 1);
  counts.chosen++;
}
