// A policy's network in plain JavaScript: from the bytes of a frame to a decision, the same numbers as torch's to 1e-4.
//
// `description` is nacdrive's NetworkDescription as JSON; its arrays are places in one block of float32 numbers.
// What is asked of a frame alone is kept by the caller as a token, so that a moment of a lap can be decided anew at
// once, also with something of the network left out (`edits`; see NO_EDITS).
//
// The fields of its classes are those of the description, whatever its layer; every number is compared with torch's by
// the tests, so types are not checked here.
// @ts-nocheck: fields of a description

export const NO_EDITS = Object.freeze({
  heads: new Set(), // muted heads of a circuit
  neurons: [], // muted neurons: {group, index (null: all of the group), head (null: in every head)}
  units: new Set(), // muted units of a layer that is no circuit
  hidden: new Set(), // ages of remembered frames that are hidden: 1 is the frame before
  delay_s: 0, // how much later the present frame seems to have been taken
});

const CIRCUIT_FUNCTIONS = {
  tanh: Math.tanh,
  sigmoid: (x) => 1 / (1 + Math.exp(-x)),
  silu: (x) => x / (1 + Math.exp(-x)),
  linear: (x) => x,
  none: (x) => x,
};
const sigmoid = CIRCUIT_FUNCTIONS.sigmoid;

// A block of float32 numbers from base64.
export function floatsOf(base64) {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return new Float32Array(bytes.buffer);
}

function softmax(scores) {
  const highest = Math.max(...scores);
  const e = Array.from(scores, (x) => Math.exp(x - highest));
  const sum = e.reduce((a, b) => a + b, 0);
  return e.map((x) => x / sum);
}

// y = W x + b, with W as [outputs][inputs].
class Linear {
  constructor(weight, bias) {
    this.weight = weight;
    this.bias = bias;
  }

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

// Bytes of a camera frame [height][width][3] to the numbers that the convolutions see.
class Preprocessing {
  constructor(p, numbers) {
    Object.assign(this, p);
    if (!p.down) return;
    this.down = { first: p.down.first, weight: numbers(p.down.weight), taps: p.down.weight.shape[1] };
    this.across = { first: p.across.first, weight: numbers(p.across.weight), taps: p.across.weight.shape[1] };
    this.colour = p.colour && numbers(p.colour);
    this.offset = p.offset && numbers(p.offset);
  }

  // A row of the picture as a straight camera would have seen it: places rounded to 32nds of a pixel, and between
  // pixels linear in whole numbers, so that the bytes are those of nacdrive.
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
  constructor(c, numbers, [channelsIn, rowsIn, columnsIn], activation) {
    const [channels, , kernel] = c.weight.shape;
    Object.assign(this, { channels, kernel, channelsIn, columnsIn, stride: c.stride, activation });
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
function settle({ mode, euler_step_s, euler_steps }, phi, omega, t) {
  if (mode === "steady") return phi / omega;
  if (mode === "exact") return omega * t > 0 ? (phi * -Math.expm1(-omega * t)) / omega : phi * t;
  const h = Math.min(euler_step_s ?? t / euler_steps, 1 / omega);
  let total = 1;
  for (let i = 1; i < euler_steps; i++) total = 1 + (1 - h * omega) * total;
  return h * phi * total;
}

function dot(q, k, head, depth) {
  let sum = 0;
  for (let d = head * depth; d < (head + 1) * depth; d++) sum += q[d] * k[d];
  return sum;
}

// Keys of a head: remembered frames by their place in the window, the best `topk` by dot product where there are more.
function choose(tokens, head, depth, topk, edits) {
  const newest = tokens.length - 1;
  const all = tokens.map((_, i) => i).filter((i) => !edits.hidden.has(newest - i));
  if (all.length <= topk) return all;
  const score = new Map(all.map((i) => [i, dot(tokens[newest].q, tokens[i].k, head, depth)]));
  return all.sort((a, b) => score.get(b) - score.get(a)).slice(0, topk);
}

// The Neuronal Attention Circuit over the remembered frames.
class NAC {
  constructor(s, numbers) {
    Object.assign(this, s);
    for (const [name, value] of Object.entries(s)) if (value && value.shape) this[name] = numbers(value);
    this.depth = s.first_query.shape[1];
    this.inters = s.first_query.shape[2];
    this.commands = s.motor.shape[1];
    this.sizes = { sensory: 2 * this.depth, inter: this.inters, command: this.commands, motor: 2 };
    this.query = new Linear(numbers(s.query.weight), numbers(s.query.bias));
    this.key = new Linear(numbers(s.key.weight), numbers(s.key.bias));
    this.value = new Linear(numbers(s.value.weight), numbers(s.value.bias));
    this.out = new Linear(numbers(s.out.weight), numbers(s.out.bias));
    this.f = CIRCUIT_FUNCTIONS[s.activation];
    this.interEdges = s.inter && this.edges(this.inter, this.inters);
    this.commandEdges = s.command && this.edges(this.command, this.commands);
  }

  // Synapses that exist in any head, target by target: where each target's begin, and their sources.
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

  // What a frame's features give by themselves.
  token(features) {
    return { q: this.query.of(features), k: this.key.of(features), v: this.value.of(features) };
  }

  muted(edits, group, head) {
    const found = edits.neurons.filter((n) => n.group === group && (n.head === null || n.head === head));
    if (!found.length) return null;
    const mask = new Uint8Array(this.sizes[group]);
    for (const n of found) n.index === null ? mask.fill(1) : (mask[n.index] = 1);
    return mask;
  }

  // A half of a head's first layer, from the query or the key.
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

  slopes(token, head, weight) {
    const found = [0, 0];
    for (let d = 0; d < this.depth; d++) {
      const x = token[head * this.depth + d];
      const w = (head * this.depth + d) * 2;
      found[0] += x * weight[w];
      found[1] += x * weight[w + 1];
    }
    return found;
  }

  // phi's and omega's motor neurons, and the activities on the way; z is the first layer's sum.
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

  // Output for the newest of `tokens`, taken at `times` [s]; before_s is when the frame before was taken, or null.
  decide(tokens, times, before_s, edits) {
    const merged = new Float32Array(this.heads * this.depth);
    const heads = [];
    for (let h = 0; h < this.heads; h++) heads.push(this.attend(h, tokens, times, before_s, edits, merged));
    return { y: this.out.of(merged), heads };
  }

  attend(h, tokens, times, before_s, edits, merged) {
    const newest = tokens.length - 1;
    const now = tokens[newest];
    const muted = Object.fromEntries(["sensory", "inter", "command", "motor"].map((g) => [g, this.muted(edits, g, h)]));
    const ofQuery = this.half(now.q, h, this.first_query, muted.sensory, 0);
    const timeOfQuery = this.slopes(now.q, h, this.time_query);
    const gap = before_s === null ? 1 : Math.max(0, times[newest] + edits.delay_s - before_s) / this.time_scale;
    const pairs = choose(tokens, h, this.depth, this.topk, edits).map((i) => {
      const ofKey = this.half(tokens[i].k, h, this.first_key, muted.sensory, this.depth);
      for (let n = 0; n < this.inters; n++) ofKey[n] += ofQuery[n] + this.first_bias[h * this.inters + n];
      const { motor, inter, command } = this.circuit(h, ofKey, muted);
      const phi = CIRCUIT_FUNCTIONS[this.phi](motor[0]);
      const omega = Math.log1p(Math.exp(-Math.abs(motor[1]))) + Math.max(0, motor[1]) + this.eps;
      const timeOfKey = this.slopes(tokens[i].k, h, this.time_key);
      const lag = (times[newest] + edits.delay_s - times[i] - (i === newest ? edits.delay_s : 0)) / this.time_scale;
      const tau = { gap, absolute: (times[newest] + edits.delay_s) / this.time_scale, elapsed: lag }[this.time_input];
      const slope = timeOfQuery[0] + timeOfKey[0] + this.time_bias[h * 2];
      const t = sigmoid(tau * slope + timeOfQuery[1] + timeOfKey[1] + this.time_bias[h * 2 + 1]);
      return { age: newest - i, phi, omega, t, logit: settle(this, phi, omega, t) * this.logit_scale[h], inter, command };
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
class NACKey {
  constructor(s, numbers) {
    Object.assign(this, s);
    for (const [name, value] of Object.entries(s)) {
      if (value?.shape) this[name] = numbers(value);
      if (value?.weight) this[name] = new Linear(numbers(value.weight), numbers(value.bias));
    }
    this.depth = s.query.bias.shape[0] / s.heads;
    this.sizes = { sensory: s.norm.bias.shape[0], inter: s.inter.bias.shape[0], command: s.command.bias.shape[0], motor: 3 * s.heads };
    this.oneCircuit = true;
  }

  // What does not depend on the time: normalised features and values.
  token(features) {
    const n = features.length;
    const mean = features.reduce((a, b) => a + b, 0) / n;
    const variance = features.reduce((sum, x) => sum + (x - mean) ** 2, 0) / n;
    const x = features.map((f, i) => ((f - mean) / Math.sqrt(variance + this.norm_eps)) * this.norm.weight[i] + this.norm.bias[i]);
    return { x, v: this.value.of(x), ...(this.frequencies.length ? {} : { q: this.query.of(x), k: this.key.of(x) }) };
  }

  // Query and key of a frame taken at `time` [s].
  timed(token, time) {
    if (token.q) return token;
    const phase = Array.from(this.frequencies, (f) => (time / this.time_scale) * f);
    const z = Float32Array.from([...token.x, ...phase.map(Math.sin), ...phase.map(Math.cos)]);
    return { q: this.query.of(z), k: this.key.of(z) };
  }

  // The circuit's neurons for a frame, and phi, omega and rho of every head.
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

  // See NAC.decide.
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
        return { age, phi, omega, rho, t, logit: dot(moments[newest].q, moments[i].k, h, this.depth) + this.gamma[h] * moved, inter, command };
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
  constructor(s, numbers) {
    Object.assign(this, s);
    this.input = new Linear(numbers(s.input.weight), numbers(s.input.bias));
    this.width = s.recurrent.shape[1];
    const none = new Float32Array(s.recurrent.shape[0]);
    this.recurrent = new Linear(numbers(s.recurrent), s.recurrent_bias ? numbers(s.recurrent_bias) : none);
    this.mixing = s.heads && new Linear(numbers(s.heads.weight), numbers(s.heads.bias));
  }

  token(features) {
    return { u: this.input.of(features) };
  }

  decide(tokens, times, _before_s, edits) {
    let h = new Float32Array(this.width);
    const cell = new Float32Array(this.width);
    const newest = tokens.length - 1;
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

  gru(u, v, h) {
    const n = this.width;
    return h.map((before, i) => {
      const reset = sigmoid(u[i] + v[i]);
      const kept = sigmoid(u[n + i] + v[n + i]);
      return (1 - kept) * Math.tanh(u[2 * n + i] + reset * v[2 * n + i]) + kept * before;
    });
  }

  lstm(u, v, h, cell) {
    const n = this.width;
    return h.map((_, i) => {
      const [into, kept, out] = [0, 1, 3].map((gate) => sigmoid(u[gate * n + i] + v[gate * n + i]));
      cell[i] = kept * cell[i] + into * Math.tanh(u[2 * n + i] + v[2 * n + i]);
      return out * Math.tanh(cell[i]);
    });
  }

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
  constructor(s, numbers) {
    this.layer = new Linear(numbers(s.layer.weight), numbers(s.layer.bias));
    this.width = s.layer.bias.shape[0];
    this.window = 1;
  }

  token(features) {
    return { y: this.layer.of(features).map((x) => (x > 0 ? x : Math.expm1(x))) };
  }

  decide(tokens, _times, _before_s, edits) {
    const y = tokens[tokens.length - 1].y.slice();
    for (const unit of edits.units) y[unit] = 0;
    return { y, heads: null };
  }
}

export class Network {
  constructor(description, block) {
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
    const s = description.sequence;
    const Sequence = { nac: NAC, "nac-key": NACKey, dense: Dense }[s.kind] ?? Recurrent;
    this.sequence = new Sequence(s, numbers);
    const p = description.projection;
    this.projection = p && new Linear(numbers(p.weight), numbers(p.bias));
    this.hidden = new Linear(numbers(description.hidden.weight), numbers(description.hidden.bias));
    this.output = new Linear(numbers(description.output.weight), numbers(description.output.bias));
    this.window = this.sequence.window;
    this.labels = description.labels;
    this.actions = description.actions;
  }

  // What a frame (bytes [height][width][3]) gives by itself.
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
