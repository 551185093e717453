// The circuit of one head: sensory -> inter -> command -> motor, every neuron coloured by its activity.

import { Surface, font, rem } from "./canvas.js";
import { SYMBOLS } from "./neurons.js";
import { activity, colours, onTheme } from "./theme.js";

const MEANING = { phi: "target", omega: "rate", rho: "decay" };
const LAYERS = ["sensory", "inter", "command", "motor"];
const SHOWN_EDGES = 90;
const FAINT_EDGES = 700;

export class Circuit {
  constructor(canvas) {
    this.wires = new OffscreenCanvas(1, 1);
    this.surface = new Surface(canvas, (c, w, h) => this.draw(c, w, h), 90);
    this.surface.layout = () => this.place();
    this.wiring = null;
    this.neurons = null;
    this.head = 0;
    // Muted of the head that is shown: {group: Set of places, or null for all of it}.
    this.muted = new Map();
    this.onPick = null;
    canvas.addEventListener("click", (press) => {
      const neuron = this.nearest(press);
      if (neuron && this.onPick) this.onPick(neuron);
    });
    canvas.addEventListener("pointermove", (move) => {
      const neuron = this.nearest(move);
      const text = neuron ? this.describe(neuron) : "";
      if (canvas.title !== text) canvas.title = text;
    });
    onTheme(() => this.place());
  }

  // plan: {groups: {sensory: n, ...}, edges: [[group, i, group, j, sign], ...], where they have come} or null
  setWiring(plan) {
    this.wiring = plan;
    this.neurons = null;
    this.place();
  }

  show(neurons, head) {
    this.neurons = neurons;
    this.head = head;
    this.surface.touch();
  }

  setMuted(muted) {
    this.muted = muted;
    this.surface.touch();
  }

  // The neuron under the pointer; null where there is none.
  // What a motor neuron gives, and to which head: "phi" of the head that is shown, or "phi 3" of the third.
  motor(i) {
    const [gate, head] = (this.wiring.motors?.[i] ?? ["phi", "omega"][i] ?? "").split(" ");
    return { gate, head: head ? Number(head) - 1 : this.head };
  }

  // Whether the circuit reads pairs of query and key.
  get ofPairs() {
    return this.wiring?.groups.motor === 2;
  }

  nearest(pointer) {
    if (!this.spots) return null;
    const box = this.surface.canvas.getBoundingClientRect();
    const [x, y] = [pointer.clientX - box.left, pointer.clientY - box.top];
    /** @type {{group: string, neuron: number, far: number} | null} */
    let best = null;
    for (const group of LAYERS) {
      this.spots[group].forEach((spot, neuron) => {
        const far = Math.hypot(spot[0] - x, spot[1] - y);
        if (far < Math.max(8, 1.6 * this.spots[group].size) && (!best || far < best.far)) best = { group, neuron, far };
      });
    }
    return best && { group: best.group, neuron: best.neuron };
  }

  describe({ group, neuron }) {
    const value = this.neurons?.group(group, this.head)?.[neuron];
    const { gate, head } = this.motor(neuron);
    const half = this.ofPairs ? (neuron < this.spots.sensory.length / 2 ? "query, " : "key, ") : "";
    const name = group === "motor" ? `${SYMBOLS[gate]} (${MEANING[gate]})` : `${group === "sensory" ? half : ""}${group} neuron ${neuron + 1}`;
    const off = this.isMuted(group, neuron) ? ", muted" : "";
    return `${name} of head ${(group === "motor" ? head : this.head) + 1}${Number.isFinite(value) ? `: ${value.toFixed(2)}` : ""}${off}`;
  }

  isMuted(group, neuron) {
    const some = this.muted.get(group);
    return some === null || Boolean(some?.has(neuron));
  }

  place() {
    if (!this.surface || !this.wiring || this.surface.width < 10) return;
    const { width, height } = this.surface;
    const u = rem();
    const top = 1.7 * u;
    // The last line is the colour key's.
    const room = height - top - 1.7 * u;
    const sizes = this.wiring.groups;
    const columns = { sensory: [0.09, 1], inter: [0.37, 7], command: [0.67, 5], motor: [0.9, 1] };
    this.spots = {};
    for (const name of LAYERS) {
      const count = sizes[name] ?? 0;
      const [centre, wide] = columns[name];
      const across = Math.min(wide, Math.max(1, Math.ceil(Math.sqrt(count / 3))));
      const rows = Math.ceil(count / across);
      const gapX = Math.min(2.2 * u, (0.23 * width) / across);
      const gapY = Math.min(name === "motor" ? 0.42 * room : 2.3 * u, room / Math.max(1, rows));
      this.spots[name] = Array.from({ length: count }, (_, i) => {
        const column = Math.floor(i / rows);
        const row = i % rows;
        const shift = across > 1 && column % 2 ? 0.25 : -0.25;
        return [
          centre * width + (column - (across - 1) / 2) * gapX,
          top + room / 2 + (row - (rows - 1) / 2 + (across > 1 ? shift : 0)) * gapY * (across > 1 ? 0.97 : 1),
        ];
      });
      this.spots[name].size = name === "motor" ? Math.min(1.05 * u, gapY * 0.45, room / 6) : Math.min(0.6 * u, gapX * 0.42, gapY * 0.42);
    }
    this.sheet();
    this.surface.touch();
  }

  // All synapses, faint: drawn once, not at every Tick. Evenly thinned where there are thousands.
  sheet() {
    const { canvas, width } = this.surface;
    this.wires = new OffscreenCanvas(canvas.width, canvas.height);
    const c = this.wires.getContext("2d");
    const scale = canvas.width / width;
    c.scale(scale, scale);
    c.strokeStyle = colours.dim;
    c.globalAlpha = 0.13;
    c.lineWidth = 0.7;
    const edges = this.wiring.edges ?? [];
    const every = Math.max(1, edges.length / FAINT_EDGES);
    for (let i = 0; i < edges.length; i += every) this.wire(c, edges[Math.floor(i)]);
  }

  wire(c, [from, i, to, j]) {
    const a = this.spots[from]?.[i];
    const b = this.spots[to]?.[j];
    if (!a || !b || from === to) return;
    c.beginPath();
    c.moveTo(...a);
    c.bezierCurveTo(a[0] + (b[0] - a[0]) * 0.45, a[1], b[0] - (b[0] - a[0]) * 0.45, b[1], ...b);
    c.stroke();
  }

  draw(c, width, height) {
    if (!this.wiring || !this.spots) return;
    const u = rem();
    c.drawImage(this.wires, 0, 0, width, height);
    const values = Object.fromEntries(LAYERS.map((name) => [name, this.scaled(name)]));
    if (this.neurons) this.currents(c, values, u);
    for (const name of LAYERS) this.layer(c, name, values[name], u);
    this.readings(c, u);
    this.scale(c, width, height, u);
  }

  // Activities between -1 and 1: sensory ones against their own largest, phi and omega against all heads.
  scaled(name) {
    const raw = this.neurons?.group(name, this.head);
    if (!raw) return null;
    if (name === "inter" || name === "command") return raw;
    if (name === "motor") return raw.map((v, i) => this.amongHeads(this.motor(i).gate, v));
    const top = raw.reduce((m, v) => Math.max(m, Math.abs(v)), 1e-6);
    return raw.map((v) => v / top);
  }

  amongHeads(name, value) {
    let lo = Infinity;
    let hi = -Infinity;
    for (let head = 0; head < this.neurons.heads; head++) {
      const s = this.neurons.summary(name, head);
      if (s) [lo, hi] = [Math.min(lo, s.lo), Math.max(hi, s.hi)];
    }
    return hi > lo ? (2 * (value - lo)) / (hi - lo) - 1 : 0;
  }

  // The synapses that carry most right now.
  currents(c, values, u) {
    const carried = [];
    for (const edge of this.wiring.edges ?? []) {
      const [from, i, to, j] = edge;
      const a = values[from]?.[i];
      const b = to === "motor" ? 1 : values[to]?.[j];
      if (from !== to && a !== undefined && b !== undefined) carried.push([Math.abs(a * b), edge, a * (edge[4] ?? 1)]);
    }
    carried.sort((p, q) => q[0] - p[0]);
    c.save();
    c.lineWidth = 0.09 * u;
    for (const [strength, edge, signed] of carried.slice(0, SHOWN_EDGES)) {
      c.globalAlpha = 0.1 + 0.5 * Math.min(1, strength);
      c.strokeStyle = activity(Math.sign(signed));
      this.wire(c, edge);
    }
    c.restore();
  }

  layer(c, name, values, u) {
    const spots = this.spots[name];
    if (!spots.length) return;
    const size = spots.size;
    spots.forEach(([x, y], i) => {
      c.fillStyle = activity(values?.[i] ?? 0);
      c.beginPath();
      c.arc(x, y, size, 0, 2 * Math.PI);
      c.fill();
      if (this.isMuted(name, i)) this.cross(c, x, y, size, u);
    });
    c.fillStyle = colours.dim;
    c.font = font(0.82);
    c.textAlign = "center";
    c.textBaseline = "alphabetic";
    const centre = spots.reduce((sum, spot) => sum + spot[0], 0) / spots.length;
    c.fillText(name === "motor" ? "motor" : `${spots.length} ${name}`, centre, 0.95 * u);
  }

  cross(c, x, y, size, u) {
    c.strokeStyle = colours.alert;
    c.lineWidth = 0.16 * u;
    c.beginPath();
    c.moveTo(x - size, y - size);
    c.lineTo(x + size, y + size);
    c.moveTo(x + size, y - size);
    c.lineTo(x - size, y + size);
    c.stroke();
  }

  // What the colours mean.
  scale(c, width, height, u) {
    const [x, y, w] = [width - 8.6 * u, height - 0.75 * u, 3.6 * u];
    for (let i = 0; i < 9; i++) {
      c.fillStyle = activity(i / 4 - 1);
      c.fillRect(x + (i * w) / 9, y - 0.3 * u, w / 9 + 0.5, 0.6 * u);
    }
    c.font = font(0.76);
    c.fillStyle = colours.dim;
    c.textBaseline = "middle";
    c.textAlign = "right";
    c.fillText("−", x - 0.3 * u, y);
    c.textAlign = "left";
    c.fillText("+ activity", x + w + 0.3 * u, y);
  }

  readings(c, u) {
    const motors = this.spots.motor;
    motors.forEach(([x, y], i) => {
      const { gate, head } = this.motor(i);
      if (head !== this.head) return;
      c.textAlign = "center";
      c.textBaseline = "middle";
      c.font = font(this.ofPairs ? 1.05 : 0.8, 700);
      c.fillStyle = colours.card;
      c.fillText(SYMBOLS[gate], x, y);
      const value = this.neurons?.summary(gate, head)?.mean;
      c.font = font(0.88, 600);
      c.fillStyle = colours.ink;
      if (value === undefined) return;
      if (!this.ofPairs) c.textAlign = "left";
      else c.textBaseline = "alphabetic";
      c.fillText(value.toFixed(2), ...(this.ofPairs ? [x, y + motors.size + 1.05 * u] : [x + motors.size + 0.3 * u, y]));
    });
    if (!this.ofPairs) return;
    const [q] = this.spots.sensory;
    if (!q) return;
    const half = this.spots.sensory.length / 2;
    c.font = font(0.8);
    c.fillStyle = colours.dim;
    c.textAlign = "right";
    c.textBaseline = "middle";
    const level = (i) => this.spots.sensory[Math.floor(i)][1];
    c.fillText("q", q[0] - 0.8 * u, (level(0) + level(half - 1)) / 2);
    c.fillText("k", q[0] - 0.8 * u, (level(half) + level(2 * half - 1)) / 2);
  }
}
