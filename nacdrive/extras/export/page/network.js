// A policy's network in plain JavaScript: from the bytes of a frame to a decision, the same numbers as torch's to 1e-4.
//
// `description` is nacdrive's NetworkDescription as JSON; its arrays are places in one block of float32 numbers.
// What is asked of a frame alone is kept by the caller as a token, so that a moment of a lap can be decided anew at
// once, also with something of the network left out (`edits`; see NO_EDITS).

// ---------------------------------------------------------------- the description; network_description.py says what each part is
/**
 * An array of a description: where it begins in the block of numbers, and its sizes.
 * @typedef {{at: number, shape: number[]}} Place
 * @typedef {{weight: Place, bias: Place}} LinearDescription
 * @typedef {{first: number[], weight: Place}} TapsDescription
 * @typedef {{weight: Place, bias: Place, stride: number}} ConvolutionDescription
 * @typedef {(place: Place) => Float32Array} Numbers
 * @typedef {"relu" | "elu"} Activation
 */
/**
 * @typedef {object} PreprocessingDescription
 * @property {number} height
 * @property {number} width
 * @property {number} first_row
 * @property {number} rows
 * @property {number} columns
 * @property {[number, number] | null} masked_rows
 * @property {number[][] | null} turn
 * @property {TapsDescription | null} down
 * @property {TapsDescription | null} across
 * @property {Place | null} colour
 * @property {Place | null} offset
 */
/**
 * What both forms of NAC have. Of all sequences, A is an array (a place, or the numbers when they are read) and L a layer.
 * @template L
 * @typedef {object} CircuitParts
 * @property {number} window
 * @property {number} heads
 * @property {number} topk
 * @property {"exact" | "euler" | "steady"} mode
 * @property {number} euler_steps
 * @property {number | null} euler_step_s
 * @property {number} time_scale
 * @property {L} query
 * @property {L} key
 * @property {L} value
 * @property {L} out
 */
/**
 * @template A, L
 * @typedef {CircuitParts<L> & {
 *   kind: "nac", phi: "sigmoid" | "tanh" | "none", time_quadrature: boolean, delta_t: number, eps: number,
 *   activation: "tanh" | "sigmoid" | "silu" | "linear", unfolds: number, time_input: "gap" | "absolute" | "elapsed",
 *   first_query: A, first_key: A, first_bias: A, inter: A | null, inter_bias: A | null, command: A | null, motor: A,
 *   motor_bias: A, time_query: A, time_key: A, time_bias: A, logit_scale: A,
 * }} NACParts
 */
/**
 * @template A, L
 * @typedef {CircuitParts<L> & {
 *   kind: "nac-key", norm: L, norm_eps: number, frequencies: A, inter: L, command: L, motor: L, gamma: A,
 * }} NACKeyParts
 */
/**
 * @typedef {object} RecurrentDescription
 * @property {"gru" | "lstm" | "cfc"} kind
 * @property {number} window
 * @property {number} [gap_s] of a cfc
 * @property {LinearDescription} input
 * @property {Place} recurrent
 * @property {Place} [recurrent_bias] of a GRU or LSTM
 * @property {LinearDescription} [heads] of a cfc
 */
/**
 * @typedef {{kind: "dense", layer: LinearDescription}} DenseDescription
 * @typedef {NACParts<Place, LinearDescription>} NACDescription
 * @typedef {NACKeyParts<Place, LinearDescription>} NACKeyDescription
 * @typedef {NACDescription | NACKeyDescription | RecurrentDescription | DenseDescription} SequenceDescription
 */
/**
 * @typedef {object} Description
 * @property {string} name
 * @property {string} task
 * @property {string} model
 * @property {number} gap_s
 * @property {PreprocessingDescription} preprocessing
 * @property {Activation} activation
 * @property {ConvolutionDescription[]} convolutions
 * @property {LinearDescription | null} projection
 * @property {SequenceDescription} sequence
 * @property {LinearDescription} hidden
 * @property {LinearDescription} output
 * @property {number[][]} actions
 * @property {string[]} labels
 */

// ---------------------------------------------------------------- what passes through a network
/**
 * Neurons of a circuit; "unit" is of a layer that is none.
 * @typedef {"sensory" | "inter" | "command" | "motor"} Group
 * @typedef {Partial<Record<Group, Uint8Array | null>>} Muted of each group, 1 where a neuron is muted
 */
/**
 * What is left out of a decision.
 * @typedef {object} NetworkEdits
 * @property {Set<number>} heads muted heads of a circuit
 * @property {{group: string, index: number | null, head: number | null}[]} neurons muted neurons; index null: all of the group;
 *   head null: in every head
 * @property {Set<number>} units muted units of a layer that is no circuit
 * @property {Set<number>} hidden ages of remembered frames that are hidden: 1 is the frame before
 * @property {number} delay_s how much later the present frame seems to have been taken
 */
/**
 * A remembered frame as one head sees it, by its age in decisions.
 * @typedef {object} Pair
 * @property {number} age
 * @property {number} phi
 * @property {number} omega
 * @property {number} [rho] of a circuit on the key
 * @property {number} t
 * @property {number} logit
 * @property {number} [weight]
 * @property {Float32Array} inter
 * @property {Float32Array} command
 */
/**
 * @typedef {{q: Float32Array, k: Float32Array}} QueryKey
 * @typedef {QueryKey & {v: Float32Array}} NACToken
 * @typedef {{gates: Float32Array, inter: Float32Array, command: Float32Array}} KeyCircuit
 * @typedef {Partial<QueryKey> & {x: Float32Array, v: Float32Array, circuit?: KeyCircuit}} NACKeyToken
 * @typedef {{u: Float32Array}} RecurrentToken
 * @typedef {{y: Float32Array}} DenseToken
 * @typedef {{y: Float32Array, heads: Pair[][] | null}} SequenceOutput
 */
/**
 * A sequence layer. A token is what a frame's features give by themselves; `decide` gives the output for the newest of
 * `tokens`, taken at `times` [s]; before_s is when the frame before was taken, or null.
 * @typedef {object} SequenceLayer
 * @property {number} window
 * @property {(features: Float32Array) => any} token
 * @property {(tokens: any[], times: number[], before_s: number | null, edits: NetworkEdits) => SequenceOutput} decide
 * @property {Record<Group, number>} [sizes] of a circuit
 * @property {number} [heads] of a circuit
 * @property {number} [depth] of a circuit's head
 * @property {boolean} [oneCircuit] whether all heads share its neurons
 * @property {number} [width] units of a layer that is no circuit
 */
/**
 * @typedef {object} Decision
 * @property {Float32Array} outputs
 * @property {number[] | null} shares of each choice; null where it steers by degrees
 * @property {Pair[][] | null} heads
 * @property {number} steering
 * @property {number} throttle
 * @property {number} brake
 * @property {number} choice -1 where it steers by degrees
 */

/** @type {Readonly<NetworkEdits>} */
export const NO_EDITS = Object.freeze({ heads: new Set(), neurons: [], units: new Set(), hidden: new Set(), delay_s: 0 });

const CIRCUIT_FUNCTIONS = {
  tanh: Math.tanh,
  sigmoid: (x) => 1 / (1 + Math.exp(-x)),
  silu: (x) => x / (1 + Math.exp(-x)),
  linear: (x) => x,
  none: (x) => x,
};
const sigmoid = CIRCUIT_FUNCTIONS.sigmoid;
/** @type {Group[]} */
const GROUPS = ["sensory", "inter", "command", "motor"];

// A block of float32 numbers from base64.
/** @param {string} base64 */
export function floatsOf(base64) {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return new Float32Array(bytes.buffer);
}

/** @param {ArrayLike<number>} scores */
function softmax(scores) {
  const highest = Math.max(...Array.from(scores));
  const e = Array.from(scores, (x) => Math.exp(x - highest));
  const sum = e.reduce((a, b) => a + b, 0);
  return e.map((x) => x / sum);
}

// y = W x + b, with W as [outputs][inputs].
class Linear {
  /**
   * @param {Float32Array} weight
   * @param {Float32Array} bias
   */
  constructor(weight, bias) {
    this.weight = weight;
    this.bias = bias;
  }

  /** @param {Float32Array} x */
  of(x) {
    const n = x.length;
    const y = new Float32Array(this.bias.length);
    for (let o = 0; o < y.length; o++) {
      let sum = this.bias[o];
      for (let i = 0, w = o * n; i < n; i++) sum += this.weight[w + i] * x[i];
      y[o] = sum;
    }
    return y;
  }
}

/** @type {(layer: LinearDescription, numbers: Numbers) => Linear} */
const linear = ({ weight, bias }, numbers) => new Linear(numbers(weight), numbers(bias));

// Bytes of a camera frame [height][width][3] to the numbers that the convolutions see.
class Preprocessing {
  /**
   * @param {PreprocessingDescription} p
   * @param {Numbers} numbers
   */
  constructor(p, numbers) {
    this.height = p.height;
    this.width = p.width;
    this.first_row = p.first_row;
    this.rows = p.rows;
    this.columns = p.columns;
    this.masked_rows = p.masked_rows;
    this.turn = p.turn;
    /** @type {(taps: TapsDescription | null) => {first: number[], weight: Float32Array, taps: number} | null} */
    const taps = (one) => one && { first: one.first, weight: numbers(one.weight), taps: one.weight.shape[1] };
    this.down = taps(p.down);
    this.across = taps(p.across);
    this.colour = p.colour && numbers(p.colour);
    this.offset = p.offset && numbers(p.offset);
  }

  // A row of the picture as a straight camera would have seen it: places rounded to 32nds of a pixel, and between
  // pixels linear in whole numbers, so that the bytes are those of nacdrive.
  /**
   * @param {Uint8Array} frame
   * @param {number} row
   */
  upright(frame, row) {
    const { turn, width, height } = this;
    const out = new Uint8Array(width * 3);
    const within = (value, most) => Math.min(Math.max(Math.floor(value * 32 + 0.5), 0), (most - 1) * 32);
    for (let column = 0; column < width; column++) {
      const [across, down, depth] = turn.map((r) => r[0] * column + r[1] * row + r[2]);
      const u = within(across / depth, width), v = within(down / depth, height);
      const x = Math.min(Math.floor(u / 32), width - 2), y = Math.min(Math.floor(v / 32), height - 2);
      const right = u - 32 * x, below = v - 32 * y;
      for (let c = 0; c < 3; c++) {
        const above = (y * width + x) * 3 + c, under = above + width * 3;
        const first = (32 - right) * frame[above] + right * frame[above + 3];
        const second = (32 - right) * frame[under] + right * frame[under + 3];
        out[column * 3 + c] = ((32 - below) * first + below * second + 512) >> 10;
      }
    }
    return out;
  }

  // What the network sees, as bytes [rows][columns][3]. Rounded where float32 in torch is:
  // a pixel that is rounded the other way would be another level of grey.
  /** @param {Uint8Array} frame */
  seen(frame) {
    const { rows, columns, down, across, colour, offset } = this;
    if (!down) return frame;
    const round = Math.fround;
    const kept = Math.max(...down.first) + down.taps;
    const narrow = new Float32Array(kept * columns * 3);
    for (let row = 0; row < kept; row++) {
      const at = (this.first_row + row) * this.width * 3;
      const line = this.turn ? this.upright(frame, this.first_row + row) : frame.subarray(at, at + this.width * 3);
      for (let x = 0; x < columns; x++) {
        for (let c = 0; c < 3; c++) {
          let sum = 0;
          for (let k = 0; k < across.taps; k++) {
            sum = round(sum + across.weight[x * across.taps + k] * line[(across.first[x] + k) * 3 + c]);
          }
          narrow[(row * columns + x) * 3 + c] = sum;
        }
      }
    }
    const out = new Uint8Array(rows * columns * 3);
    const rgb = [0, 0, 0];
    for (let row = 0; row < rows; row++) {
      for (let x = 0; x < columns; x++) {
        for (let c = 0; c < 3; c++) {
          rgb[c] = 0;
          for (let k = 0; k < down.taps; k++) {
            rgb[c] = round(rgb[c] + down.weight[row * down.taps + k] * narrow[((down.first[row] + k) * columns + x) * 3 + c]);
          }
        }
        for (let c = 0; c < 3; c++) {
          let value = rgb[c];
          if (colour) {
            value = round(round(rgb[0] * colour[c]) + round(rgb[1] * colour[3 + c]));
            value = round(round(value + round(rgb[2] * colour[6 + c])) + offset[c]);
          }
          // To the nearest whole number, halves to the even one.
          let whole = Math.floor(value);
          const rest = value - whole;
          if (rest > 0.5 || (rest === 0.5 && whole % 2 !== 0)) whole++;
          out[(row * columns + x) * 3 + c] = Math.min(255, Math.max(0, whole));
        }
      }
    }
    return out;
  }

  /** @param {Uint8Array} frame */
  numbers(frame) {
    const bytes = this.seen(frame);
    const x = new Float32Array(bytes.length);
    for (let i = 0; i < x.length; i++) x[i] = (bytes[i] * 2) / 255 - 1;
    if (this.masked_rows) x.fill(0, this.masked_rows[0] * this.columns * 3, this.masked_rows[1] * this.columns * 3);
    return x;
  }
}

// A convolution without padding, pixels as [row][column][channel]; four channels are summed up at a time.
class Convolution {
  /**
   * @param {ConvolutionDescription} c
   * @param {Numbers} numbers
   * @param {number[]} shape channels, rows and columns of what it gets
   * @param {Activation} activation
   */
  constructor(c, numbers, [channelsIn, rowsIn, columnsIn], activation) {
    const [channels, , kernel] = c.weight.shape;
    this.channels = channels;
    this.kernel = kernel;
    this.channelsIn = channelsIn;
    this.columnsIn = columnsIn;
    this.stride = c.stride;
    this.activation = activation;
    this.rows = Math.floor((rowsIn - kernel) / c.stride) + 1;
    this.columns = Math.floor((columnsIn - kernel) / c.stride) + 1;
    this.padded = 4 * Math.ceil(channels / 4);
    this.length = kernel * channelsIn;
    const weight = numbers(c.weight);
    this.bias = new Float32Array(this.padded);
    this.bias.set(numbers(c.bias));
    this.weight = new Float32Array(this.padded * kernel * this.length);
    for (let o = 0; o < channels; o++) {
      for (let i = 0; i < channelsIn; i++) {
        for (let y = 0; y < kernel; y++) {
          for (let x = 0; x < kernel; x++) {
            const place = y * this.length + x * channelsIn + i;
            const block = Math.floor(o / 4) * 4 * kernel * this.length;
            this.weight[block + place * 4 + (o % 4)] = weight[((o * channelsIn + i) * kernel + y) * kernel + x];
          }
        }
      }
    }
  }

  /** @param {Float32Array} input */
  of(input) {
    const { channels, columns, kernel, length, stride, weight } = this;
    const line = this.columnsIn * this.channelsIn;
    const out = new Float32Array(this.rows * columns * channels);
    const elu = this.activation === "elu";
    for (let y = 0; y < this.rows; y++) {
      for (let x = 0; x < columns; x++) {
        const corner = y * stride * line + x * stride * this.channelsIn;
        for (let o = 0; o < channels; o += 4) {
          let [a, b, c, d] = [this.bias[o], this.bias[o + 1], this.bias[o + 2], this.bias[o + 3]];
          let w = o * kernel * length;
          for (let k = 0; k < kernel; k++) {
            const end = corner + k * line + length;
            for (let i = corner + k * line; i < end; i++, w += 4) {
              const v = input[i];
              a += v * weight[w];
              b += v * weight[w + 1];
              c += v * weight[w + 2];
              d += v * weight[w + 3];
            }
          }
          const to = (y * columns + x) * channels + o;
          const sums = [a, b, c, d];
          for (let i = 0; i < 4 && o + i < channels; i++) {
            const v = sums[i];
            out[to + i] = v > 0 ? v : elu ? Math.expm1(v) : 0;
          }
        }
      }
    }
    return out;
  }
}

// da/dt = phi - omega a, solved from 0 to t.
/** @type {(circuit: Pick<CircuitParts<Linear>, "mode" | "euler_step_s" | "euler_steps">, phi: number, omega: number, t: number) => number} */
function settle({ mode, euler_step_s, euler_steps }, phi, omega, t) {
  if (mode === "steady") return phi / omega;
  if (mode === "exact") return omega * t > 0 ? (phi * -Math.expm1(-omega * t)) / omega : phi * t;
  const h = Math.min(euler_step_s ?? t / euler_steps, 1 / omega);
  let total = 1;
  for (let i = 1; i < euler_steps; i++) total = 1 + (1 - h * omega) * total;
  return h * phi * total;
}

/** @type {(q: Float32Array, k: Float32Array, head: number, depth: number) => number} */
function dot(q, k, head, depth) {
  let sum = 0;
  for (let d = head * depth; d < (head + 1) * depth; d++) sum += q[d] * k[d];
  return sum;
}

// Keys of a head: remembered frames by their place in the window, the best `topk` by dot product where there are more.
/** @type {(tokens: QueryKey[], head: number, depth: number, topk: number, edits: NetworkEdits) => number[]} */
function choose(tokens, head, depth, topk, edits) {
  const newest = tokens.length - 1;
  const all = tokens.map((_, i) => i).filter((i) => !edits.hidden.has(newest - i));
  if (all.length <= topk) return all;
  const score = new Map(all.map((i) => [i, dot(tokens[newest].q, tokens[i].k, head, depth)]));
  return all.sort((a, b) => score.get(b) - score.get(a)).slice(0, topk);
}

// A circuit as it is described, its places read: arrays of numbers, and layers where a weight and a bias are.
class Parts {
  constructor(s, numbers) {
    Object.assign(this, s);
    for (const [name, value] of Object.entries(s)) {
      if (value?.shape) this[name] = numbers(value);
      if (value?.weight) this[name] = linear(value, numbers);
    }
  }
}
/** @type {new (s: NACDescription, numbers: Numbers) => NACParts<Float32Array, Linear>} */
const PartsOfNAC = /** @type {any} */ (Parts);
/** @type {new (s: NACKeyDescription, numbers: Numbers) => NACKeyParts<Float32Array, Linear>} */
const PartsOfNACKey = /** @type {any} */ (Parts);

// The Neuronal Attention Circuit over the remembered frames.
class NAC extends PartsOfNAC {
  /**
   * @param {NACDescription} s
   * @param {Numbers} numbers
   */
  constructor(s, numbers) {
    super(s, numbers);
    this.depth = s.first_query.shape[1];
    this.inters = s.first_query.shape[2];
    this.commands = s.motor.shape[1];
    this.sizes = { sensory: 2 * this.depth, inter: this.inters, command: this.commands, motor: 2 };
    this.f = CIRCUIT_FUNCTIONS[s.activation];
    this.interEdges = this.inter && this.edges(this.inter, this.inters);
    this.commandEdges = this.command && this.edges(this.command, this.commands);
  }

  // Synapses that exist in any head, target by target: where each target's begin, and their sources.
  /**
   * @param {Float32Array} weight
   * @param {number} sources
   */
  edges(weight, sources) {
    const starts = [0];
    const from = [];
    for (let target = 0; target < this.commands; target++) {
      for (let source = 0; source < sources; source++) {
        let present = false;
        for (let h = 0; h < this.heads && !present; h++) present = weight[(h * sources + source) * this.commands + target] !== 0;
        if (present) from.push(source);
      }
      starts.push(from.length);
    }
    return { starts, from: Int32Array.from(from), sources };
  }

  /**
   * @param {Float32Array} features
   * @returns {NACToken}
   */
  token(features) {
    return { q: this.query.of(features), k: this.key.of(features), v: this.value.of(features) };
  }

  /**
   * @param {NetworkEdits} edits
   * @param {Group} group
   * @param {number} head
   */
  muted(edits, group, head) {
    const neurons = edits.neurons.filter((n) => n.group === group && (n.head === null || n.head === head));
    if (!neurons.length) return null;
    const mask = new Uint8Array(this.sizes[group]);
    for (const n of neurons) n.index === null ? mask.fill(1) : (mask[n.index] = 1);
    return mask;
  }

  // A half of a head's first layer, from the query or the key.
  /** @type {(token: Float32Array, head: number, weight: Float32Array, muted: Uint8Array | null, offset: number) => Float32Array} */
  half(token, head, weight, muted, offset) {
    const z = new Float32Array(this.inters);
    for (let d = 0; d < this.depth; d++) {
      if (muted && muted[offset + d]) continue;
      const x = token[head * this.depth + d];
      const w = (head * this.depth + d) * this.inters;
      for (let i = 0; i < this.inters; i++) z[i] += x * weight[w + i];
    }
    return z;
  }

  // Slope and offset of a head's time gate, from the query or the key.
  /**
   * @param {Float32Array} token
   * @param {number} head
   * @param {Float32Array} weight
   */
  timeGate(token, head, weight) {
    let [slope, offset] = [0, 0];
    for (let d = 0; d < this.depth; d++) {
      const x = token[head * this.depth + d];
      const w = (head * this.depth + d) * 2;
      slope += x * weight[w];
      offset += x * weight[w + 1];
    }
    return [slope, offset];
  }

  // phi's and omega's motor neurons, and the activities on the way; z is the first layer's sum.
  /**
   * @param {number} head
   * @param {Float32Array} z
   * @param {Muted} muted
   */
  circuit(head, z, muted) {
    const { f, commands, inters } = this;
    const inter = new Float32Array(inters);
    let s = z;
    if (this.interEdges) {
      for (let i = 0; i < inters; i++) inter[i] = muted.inter && muted.inter[i] ? 0 : f(z[i]);
      s = this.along(this.interEdges, this.inter, head, inter, this.inter_bias.subarray(head * commands, (head + 1) * commands));
    }
    const command = new Float32Array(commands);
    const fire = (sum) => {
      for (let c = 0; c < commands; c++) command[c] = muted.command && muted.command[c] ? 0 : f(sum[c]);
    };
    fire(s);
    for (let u = 1; u < this.unfolds && this.commandEdges; u++) fire(this.along(this.commandEdges, this.command, head, command, s));
    const motor = [this.motor_bias[head * 2], this.motor_bias[head * 2 + 1]];
    for (let c = 0; c < commands; c++) {
      const w = (head * commands + c) * 2;
      if (!(muted.motor && muted.motor[0])) motor[0] += command[c] * this.motor[w];
      if (!(muted.motor && muted.motor[1])) motor[1] += command[c] * this.motor[w + 1];
    }
    return { motor, inter, command };
  }

  // Through the synapses from one group of neurons to the command neurons.
  /**
   * @param {ReturnType<NAC["edges"]>} edges
   * @param {Float32Array} weight
   * @param {number} head
   * @param {Float32Array} source
   * @param {Float32Array} bias
   */
  along(edges, weight, head, source, bias) {
    const y = new Float32Array(this.commands);
    const base = head * edges.sources * this.commands;
    for (let c = 0; c < this.commands; c++) {
      let sum = bias[c];
      for (let e = edges.starts[c]; e < edges.starts[c + 1]; e++) {
        sum += source[edges.from[e]] * weight[base + edges.from[e] * this.commands + c];
      }
      y[c] = sum;
    }
    return y;
  }

  /** @type {(tokens: NACToken[], times: number[], before_s: number | null, edits: NetworkEdits) => SequenceOutput} */
  decide(tokens, times, before_s, edits) {
    const merged = new Float32Array(this.heads * this.depth);
    const heads = [];
    for (let h = 0; h < this.heads; h++) heads.push(this.attend(h, tokens, times, before_s, edits, merged));
    return { y: this.out.of(merged), heads };
  }

  // The pairs of one head; what they give is added to `merged`.
  /** @type {(h: number, tokens: NACToken[], times: number[], before_s: number | null, edits: NetworkEdits, merged: Float32Array) => Pair[]} */
  attend(h, tokens, times, before_s, edits, merged) {
    const newest = tokens.length - 1;
    const now = tokens[newest];
    /** @type {Muted} */
    const muted = {};
    for (const group of GROUPS) muted[group] = this.muted(edits, group, h);
    const ofQuery = this.half(now.q, h, this.first_query, muted.sensory, 0);
    const timeOfQuery = this.timeGate(now.q, h, this.time_query);
    const gap = before_s === null ? 1 : Math.max(0, times[newest] + edits.delay_s - before_s) / this.time_scale;
    const pairs = choose(tokens, h, this.depth, this.topk, edits).map((i) => {
      const ofKey = this.half(tokens[i].k, h, this.first_key, muted.sensory, this.depth);
      for (let n = 0; n < this.inters; n++) ofKey[n] += ofQuery[n] + this.first_bias[h * this.inters + n];
      const { motor, inter, command } = this.circuit(h, ofKey, muted);
      const phi = CIRCUIT_FUNCTIONS[this.phi](motor[0]);
      const omega = Math.log1p(Math.exp(-Math.abs(motor[1]))) + Math.max(0, motor[1]) + this.eps;
      const timeOfKey = this.timeGate(tokens[i].k, h, this.time_key);
      const lag = (times[newest] + edits.delay_s - times[i] - (i === newest ? edits.delay_s : 0)) / this.time_scale;
      const tau = { gap, absolute: (times[newest] + edits.delay_s) / this.time_scale, elapsed: lag }[this.time_input];
      const slope = timeOfQuery[0] + timeOfKey[0] + this.time_bias[h * 2];
      const t = sigmoid(tau * slope + timeOfQuery[1] + timeOfKey[1] + this.time_bias[h * 2 + 1]);
      return /** @type {Pair} */ ({ age: newest - i, phi, omega, t, logit: settle(this, phi, omega, t) * this.logit_scale[h], inter, command });
    });
    const weights = softmax(pairs.map((pair) => pair.logit));
    pairs.forEach((pair, i) => {
      pair.weight = weights[i];
      if (edits.heads.has(h)) return;
      const share = weights[i] * (this.time_quadrature ? pair.t : this.delta_t);
      const v = tokens[newest - pair.age].v;
      for (let d = h * this.depth; d < (h + 1) * this.depth; d++) merged[d] += share * v[d];
    });
    return pairs;
  }
}

// The Neuronal Attention Circuit that reads each frame once: all heads share its neurons.
class NACKey extends PartsOfNACKey {
  /**
   * @param {NACKeyDescription} s
   * @param {Numbers} numbers
   */
  constructor(s, numbers) {
    super(s, numbers);
    this.depth = s.query.bias.shape[0] / s.heads;
    this.sizes = { sensory: s.norm.bias.shape[0], inter: s.inter.bias.shape[0], command: s.command.bias.shape[0], motor: 3 * s.heads };
    this.oneCircuit = true;
  }

  // What does not depend on the time: normalised features and values.
  /**
   * @param {Float32Array} features
   * @returns {NACKeyToken}
   */
  token(features) {
    const n = features.length;
    const mean = features.reduce((a, b) => a + b, 0) / n;
    const variance = features.reduce((sum, x) => sum + (x - mean) ** 2, 0) / n;
    const x = features.map((f, i) => ((f - mean) / Math.sqrt(variance + this.norm_eps)) * this.norm.weight[i] + this.norm.bias[i]);
    return { x, v: this.value.of(x), ...(this.frequencies.length ? {} : { q: this.query.of(x), k: this.key.of(x) }) };
  }

  // Query and key of a frame taken at `time` [s].
  /** @type {(token: NACKeyToken, time: number) => QueryKey} */
  timed(token, time) {
    if (token.q && token.k) return { q: token.q, k: token.k };
    const phase = Array.from(this.frequencies, (f) => (time / this.time_scale) * f);
    const z = Float32Array.from([...token.x, ...phase.map(Math.sin), ...phase.map(Math.cos)]);
    return { q: this.query.of(z), k: this.key.of(z) };
  }

  // The circuit's neurons for a frame, and phi, omega and rho of every head.
  /** @type {(token: NACKeyToken, edits: NetworkEdits) => KeyCircuit} */
  circuit(token, edits) {
    if (!edits.neurons.length && token.circuit) return token.circuit;
    const fire = (group, values) => {
      for (const n of edits.neurons.filter((one) => one.group === group)) n.index === null ? values.fill(0) : (values[n.index] = 0);
      return values;
    };
    const inter = fire("inter", this.inter.of(fire("sensory", token.x.slice())).map(Math.tanh));
    const command = fire("command", this.command.of(inter).map(Math.tanh));
    const motor = this.motor.of(command);
    // A muted motor neuron gives what it gives without synapses.
    for (const n of edits.neurons.filter((one) => one.group === "motor")) {
      for (let i = 0; i < motor.length; i++) if (n.index === null || n.index === i) motor[i] = this.motor.bias[i];
    }
    const softplus = (x) => Math.log1p(Math.exp(-Math.abs(x))) + Math.max(0, x);
    const read = { gates: motor.map((x, i) => (i < this.heads ? Math.tanh(x) : softplus(x))), inter, command };
    if (!edits.neurons.length) token.circuit = read;
    return read;
  }

  /** @type {(tokens: NACKeyToken[], times: number[], before_s: number | null, edits: NetworkEdits) => SequenceOutput} */
  decide(tokens, times, _before_s, edits) {
    const newest = tokens.length - 1;
    const at = (i) => times[i] + (i === newest ? edits.delay_s : 0);
    const moments = tokens.map((token, i) => ({ ...this.timed(token, at(i)), ...this.circuit(token, edits), v: token.v, age: newest - i }));
    const merged = new Float32Array(this.heads * this.depth);
    const heads = Array.from({ length: this.heads }, (_, h) => {
      const pairs = choose(moments, h, this.depth, this.topk, edits).map((i) => {
        const { age, inter, command, gates } = moments[i];
        const [phi, omega, rho] = [0, 1, 2].map((gate) => gates[gate * this.heads + h]);
        const t = Math.max(0, at(newest) - at(i)) / this.time_scale;
        const moved = settle(this, omega * phi, omega, t) - omega * t;
        const logit = dot(moments[newest].q, moments[i].k, h, this.depth) + this.gamma[h] * moved;
        return /** @type {Pair} */ ({ age, phi, omega, rho, t, logit, inter, command });
      });
      const weights = softmax(pairs.map((pair) => pair.logit));
      pairs.forEach((pair, i) => {
        pair.weight = weights[i];
        if (edits.heads.has(h)) return;
        const share = weights[i] * Math.exp(-pair.rho * pair.t);
        const { v } = moments[newest - pair.age];
        for (let d = h * this.depth; d < (h + 1) * this.depth; d++) merged[d] += share * v[d];
      });
      return pairs;
    });
    return { y: this.out.of(merged), heads };
  }
}

// Layers that are begun anew on every window: what a frame gives by itself is its share of the gates.
class Recurrent {
  /**
   * @param {RecurrentDescription} s
   * @param {Numbers} numbers
   */
  constructor(s, numbers) {
    this.kind = s.kind;
    this.window = s.window;
    this.gap_s = s.gap_s;
    this.input = linear(s.input, numbers);
    this.width = s.recurrent.shape[1];
    const none = new Float32Array(s.recurrent.shape[0]);
    this.recurrent = new Linear(numbers(s.recurrent), s.recurrent_bias ? numbers(s.recurrent_bias) : none);
    this.mixing = s.heads && linear(s.heads, numbers);
  }

  /**
   * @param {Float32Array} features
   * @returns {RecurrentToken}
   */
  token(features) {
    return { u: this.input.of(features) };
  }

  /** @type {(tokens: RecurrentToken[], times: number[], before_s: number | null, edits: NetworkEdits) => SequenceOutput} */
  decide(tokens, times, _before_s, edits) {
    let h = new Float32Array(this.width);
    const cell = new Float32Array(this.width);
    const newest = tokens.length - 1;
    /** @type {number | null} */
    let last = null;
    for (let i = 0; i <= newest; i++) {
      if (edits.hidden.has(newest - i)) continue;
      const t = times[i] + (i === newest ? edits.delay_s : 0);
      const gap = last === null ? 1 : Math.max(0, t - last) / this.gap_s;
      last = t;
      h = this[this.kind](tokens[i].u, this.recurrent.of(h), h, cell, gap);
      for (const unit of edits.units) h[unit] = 0;
    }
    return { y: h, heads: null };
  }

  /** @type {(u: Float32Array, v: Float32Array, h: Float32Array) => Float32Array<ArrayBuffer>} */
  gru(u, v, h) {
    const n = this.width;
    return h.map((before, i) => {
      const reset = sigmoid(u[i] + v[i]);
      const kept = sigmoid(u[n + i] + v[n + i]);
      return (1 - kept) * Math.tanh(u[2 * n + i] + reset * v[2 * n + i]) + kept * before;
    });
  }

  /** @type {(u: Float32Array, v: Float32Array, h: Float32Array, cell: Float32Array) => Float32Array<ArrayBuffer>} */
  lstm(u, v, h, cell) {
    const n = this.width;
    return h.map((_, i) => {
      const [into, kept, out] = [0, 1, 3].map((gate) => sigmoid(u[gate * n + i] + v[gate * n + i]));
      cell[i] = kept * cell[i] + into * Math.tanh(u[2 * n + i] + v[2 * n + i]);
      return out * Math.tanh(cell[i]);
    });
  }

  /** @type {(u: Float32Array, v: Float32Array, h: Float32Array, cell: Float32Array, gap: number) => Float32Array<ArrayBuffer>} */
  cfc(u, v, h, _cell, gap) {
    const n = this.width;
    const mixed = this.mixing.of(u.map((x, i) => Math.tanh(x + v[i])));
    return h.map((_, i) => {
      const [f, k] = [Math.tanh(mixed[i]), Math.tanh(mixed[n + i])];
      return f + sigmoid(mixed[3 * n + i] + mixed[2 * n + i] * gap) * (k - f);
    });
  }
}

// A dense layer on the present frame alone.
class Dense {
  /**
   * @param {DenseDescription} s
   * @param {Numbers} numbers
   */
  constructor(s, numbers) {
    this.layer = linear(s.layer, numbers);
    this.width = s.layer.bias.shape[0];
    this.window = 1;
  }

  /**
   * @param {Float32Array} features
   * @returns {DenseToken}
   */
  token(features) {
    return { y: this.layer.of(features).map((x) => (x > 0 ? x : Math.expm1(x))) };
  }

  /** @type {(tokens: DenseToken[], times: number[], before_s: number | null, edits: NetworkEdits) => SequenceOutput} */
  decide(tokens, _times, _before_s, edits) {
    const y = tokens[tokens.length - 1].y.slice();
    for (const unit of edits.units) y[unit] = 0;
    return { y, heads: null };
  }
}

/** @type {(s: SequenceDescription, numbers: Numbers) => SequenceLayer} */
function sequenceOf(s, numbers) {
  switch (s.kind) {
    case "nac": return new NAC(s, numbers);
    case "nac-key": return new NACKey(s, numbers);
    case "dense": return new Dense(s, numbers);
    default: return new Recurrent(s, numbers);
  }
}

export class Network {
  /**
   * @param {Description} description
   * @param {Float32Array} block
   */
  constructor(description, block) {
    /** @type {Numbers} */
    const numbers = (place) => block.subarray(place.at, place.at + place.shape.reduce((a, b) => a * b, 1));
    this.description = description;
    this.preprocessing = new Preprocessing(description.preprocessing, numbers);
    this.activation = description.activation;
    let shape = [3, description.preprocessing.rows, description.preprocessing.columns];
    this.convolutions = description.convolutions.map((c) => {
      const layer = new Convolution(c, numbers, shape, this.activation);
      shape = [layer.channels, layer.rows, layer.columns];
      return layer;
    });
    this.shape = shape;
    this.sequence = sequenceOf(description.sequence, numbers);
    this.projection = description.projection && linear(description.projection, numbers);
    this.hidden = linear(description.hidden, numbers);
    this.output = linear(description.output, numbers);
    this.window = this.sequence.window;
    this.labels = description.labels;
    this.actions = description.actions;
  }

  // What a frame (bytes [height][width][3]) gives by itself.
  /** @param {Uint8Array} frame */
  token(frame) {
    let x = this.preprocessing.numbers(frame);
    for (const layer of this.convolutions) x = layer.of(x);
    const [channels, rows, columns] = this.shape;
    // torch flattens channel by channel.
    const features = new Float32Array(x.length);
    for (let c = 0; c < channels; c++) {
      for (let p = 0; p < rows * columns; p++) features[c * rows * columns + p] = x[p * channels + c];
    }
    return this.sequence.token(this.projection ? this.projection.of(features) : features);
  }

  // Decide on the newest of `tokens` (the frames of the window, oldest first), taken at `times` in seconds.
  // before_s: when the frame before the newest was taken; null where there is none.
  /**
   * @param {any[]} tokens
   * @param {number[]} times
   * @param {number | null} before_s
   * @param {NetworkEdits} edits
   * @returns {Decision}
   */
  decide(tokens, times, before_s, edits = NO_EDITS) {
    const newest = tokens.length - 1;
    // A hidden frame never came: the time since the last one is that since the last that did.
    const last_s = edits.hidden.has(1) ? times.findLast((_, i) => i < newest && !edits.hidden.has(newest - i)) ?? null : before_s;
    const { y, heads } = this.sequence.decide(tokens, times, last_s, edits);
    const hidden = this.hidden.of(y).map((x) => (x > 0 ? x : this.activation === "elu" ? Math.expm1(x) : 0));
    const outputs = this.output.of(hidden);
    if (!this.actions.length) {
      const limited = Array.from(outputs, (x) => Math.min(1, Math.max(-1, x)));
      const pedal = limited[1] ?? 0;
      const action = { steering: limited[0], throttle: Math.max(0, pedal), brake: Math.max(0, -pedal), choice: -1 };
      return { outputs, shares: null, heads, ...action };
    }
    const choice = outputs.indexOf(Math.max(...outputs));
    const [steering, throttle, brake] = this.actions[choice];
    return { outputs, shares: softmax(outputs), heads, steering, throttle, brake, choice };
  }
}
