// Which head tells left from right: as measured beforehand and kept beside the model, or else on this drive: the area under the ROC curve (Mann and
// Whitney 1947) of each gate between left and right turns, as `nacdrive explain neurons` computes it.

export const SYMBOLS = { phi: "φ", omega: "ω", rho: "ρ", t: "t", logits: "logit" };
const NAMES = Object.keys(SYMBOLS);
const TURN = 0.05;
const KEPT = 600;
const LEAST = 5;
const EVERY = 20;
// Another head must be so much better before it takes the place of the best one.
const BETTER = 0.05;

export class HeadTuning {
  // table: of recorded laps, [{head, name, left, straight, right, strength}]; empty where none is known.
  constructor(table = []) {
    this.known = table.length > 0;
    this.turns = { left: [], right: [] };
    this.seen = 0;
    this.found = [];
    this.best = null;
    for (const one of table) this.found[one.head] = one;
    if (this.known) this.best = strongest(this.found);
  }

  observe(neurons, steering) {
    if (this.known) return;
    const side = steering < -TURN ? "left" : steering > TURN ? "right" : null;
    if (!side || !neurons.has("phi")) return;
    const values = NAMES.filter((name) => neurons.has(name)).map((name) => [name, Array.from({ length: neurons.heads }, (_, head) => neurons.summary(name, head)?.mean ?? NaN)]);
    const list = this.turns[side];
    list.push(Object.fromEntries(values));
    if (list.length > KEPT) list.shift();
    if (this.turns.left.length < LEAST || this.turns.right.length < LEAST || this.seen++ % EVERY) return;
    this.compare(neurons.heads);
  }

  compare(heads) {
    const { left, right } = this.turns;
    this.found = Array.from({ length: heads }, (_, head) => {
      const all = NAMES.filter((name) => left[0][name]).map((name) => {
        const a = left.map((v) => v[name][head]).filter(Number.isFinite).sort((p, q) => p - q);
        const b = right.map((v) => v[name][head]).filter(Number.isFinite).sort((p, q) => p - q);
        return a.length && b.length ? { head, name, left: median(a), right: median(b), strength: Math.abs(2 * auc(a, b) - 1) } : null;
      });
      return all.filter(Boolean).reduce((best, one) => (!best || one.strength > best.strength ? one : best), null);
    });
    const first = strongest(this.found);
    const held = this.best && this.found[this.best.head];
    this.best = held && first && first.strength < held.strength + BETTER ? held : first;
  }

  // What is known of a head; null where too few turns were seen.
  of(head) {
    return this.found[head] ?? null;
  }
}

const strongest = (found) => found.filter(Boolean).reduce((best, one) => (!best || one.strength > best.strength ? one : best), null);
const median = (sorted) => sorted[sorted.length >> 1];

// Chance that a member of high exceeds one of low, ties counting half; both in order.
function auc(low, high) {
  let below = 0;
  let upTo = 0;
  let sum = 0;
  for (const value of high) {
    while (below < low.length && low[below] < value) below++;
    while (upTo < low.length && low[upTo] <= value) upTo++;
    sum += below + upTo;
  }
  return sum / (2 * low.length * high.length);
}
