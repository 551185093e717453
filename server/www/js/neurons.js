// The sequence layer's state of one decision, per head: what the circuit, the gates and the attention views read.

import { numbers } from "./protocol.js";

// What the motor neurons and the equations give, in the order of the computation.
export const SYMBOLS = { phi: "φ", omega: "ω", rho: "ρ", t: "t", logits: "logit" };

export class Neurons {
  // parts: the parts of one message, of a decision at now; null where the policy has no such layer.
  static of(parts, now = NaN) {
    if (!parts) return null;
    const arrays = new Map();
    for (const [name, part] of parts) {
      if (name.startsWith("neurons.")) arrays.set(name.slice(8), { data: numbers(part), shape: part.shape });
    }
    return arrays.size ? new Neurons(arrays, now) : null;
  }

  // Arrays as JSON says them: {name: {shape, f32 in base64}}; null where there are none.
  static ofJson(given) {
    const arrays = Object.entries(given ?? {}).map(([name, { shape, f32 }]) => {
      const bytes = Uint8Array.from(atob(f32), (letter) => letter.charCodeAt(0));
      return /** @type {const} */ ([name, { data: new Float32Array(bytes.buffer), shape }]);
    });
    return arrays.length ? new Neurons(new Map(arrays)) : null;
  }

  constructor(arrays, now = NaN) {
    this.arrays = arrays;
    const lead = arrays.get("weights") ?? arrays.get("phi") ?? arrays.values().next().value;
    this.heads = lead.shape[0];
    this.slots = lead.shape.length > 1 ? lead.shape[1] : 1;
    this.chosen = arrays.get("keys")?.data ?? null;
    this.keys = arrays.get("k")?.shape[1] ?? this.slots;
    // When the frames of the window were taken, the present one last.
    this.times = arrays.get("frame_t_s")?.data ?? [];
    this.now = Number.isFinite(now) ? now : this.times.at(-1);
    this.spread();
  }

  // A head attends to the few keys that it has selected: its weights laid out over all frames of the window.
  spread() {
    this.dense = new Float32Array(this.heads * this.keys);
    for (let head = 0; head < this.heads; head++) {
      for (let slot = 0; slot < this.slots; slot++) {
        const key = this.chosen ? this.chosen[head * this.slots + slot] : slot;
        const w = this.pair("weights", head, slot);
        if (key < this.keys && Number.isFinite(w)) this.dense[head * this.keys + key] += w;
      }
    }
  }

  // Seconds between the decision and a frame of the window; the newest may be late too.
  age(key) {
    return Math.max(0, this.now - this.times.at(key));
  }

  has(name) {
    return this.arrays.has(name);
  }

  // Value of a per-pair quantity ([heads, selected keys]) of a head and one of its pairs.
  pair(name, head, slot) {
    const array = this.arrays.get(name);
    return array ? array.data[head * (array.shape[1] ?? 1) + slot] : NaN;
  }

  share(head, slot) {
    const w = this.pair("weights", head, slot);
    return Number.isFinite(w) ? w : 0;
  }

  // Weight of a frame of the window, 0 being the oldest; zero where the head has not selected it.
  weight(head, key) {
    return this.dense[head * this.keys + key];
  }

  // Lowest, highest and attention-weighted mean of a per-pair quantity over the window.
  summary(name, head) {
    let lo = Infinity;
    let hi = -Infinity;
    let sum = 0;
    let share = 0;
    for (let slot = 0; slot < this.slots; slot++) {
      const v = this.pair(name, head, slot);
      if (!Number.isFinite(v)) continue;
      lo = Math.min(lo, v);
      hi = Math.max(hi, v);
      sum += v * this.share(head, slot);
      share += this.share(head, slot);
    }
    return lo > hi ? null : { lo, hi, mean: share > 0 ? sum / share : (lo + hi) / 2 };
  }

  // Attention over the window, averaged over the heads.
  meanWeights() {
    const mean = new Float32Array(this.keys);
    for (let head = 0; head < this.heads; head++) {
      for (let key = 0; key < this.keys; key++) mean[key] += this.weight(head, key) / this.heads;
    }
    return mean;
  }

  // Activity of a group of neurons in one head: as the attention weighs the frames of the window.
  group(name, head) {
    if (name === "sensory") return this.sensory(head);
    const mean = (gate, of) => this.summary(gate, of)?.mean ?? NaN;
    // A circuit that reads the key alone has motor neurons for all heads.
    if (name === "motor" && this.has("rho")) return ["phi", "omega", "rho"].flatMap((gate) => Array.from({ length: this.heads }, (_, of) => mean(gate, of)));
    if (name === "motor") return [mean("phi", head), mean("omega", head)];
    const array = this.arrays.get(name);
    return array ? this.average(array, head, (slot) => this.share(head, slot)) : null;
  }

  // What enters the circuit: features of the window's frames; or a pair, the query of this frame, then the keys of the window.
  sensory(head) {
    const features = this.arrays.get("sensory");
    if (features) return this.average(features, head, (slot) => this.share(head, slot));
    const q = this.arrays.get("q");
    const k = this.arrays.get("k");
    if (!q || !k) return null;
    const depth = q.shape[q.shape.length - 1];
    return [...q.data.subarray(head * depth, (head + 1) * depth), ...this.average(k, head, (key) => this.weight(head, key))];
  }

  average({ data, shape }, head, weight) {
    const [, keys, width] = shape;
    const mean = new Float32Array(width);
    for (let key = 0; key < keys; key++) {
      const w = weight(key);
      if (w === 0) continue;
      const at = (head * keys + key) * width;
      for (let i = 0; i < width; i++) mean[i] += w * data[at + i];
    }
    return mean;
  }
}
