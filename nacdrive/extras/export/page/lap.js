// The recorded lap: its frames as pixels, and what the network decides at any of them, also under edits.

import { measure } from "/js/effects.js";
import { NO_EDITS } from "./network.js";

/** @typedef {import("./network.js").Decision} Decision */

const KEPT_PICTURES = 48; // decoded frames kept at a time
const KEPT_EDITED = 64; // tokens of edited frames kept at a time

// A map that forgets what was asked for longest ago.
class Cache extends Map {
  constructor(limit) {
    super();
    this.limit = limit;
  }

  keep(key, value) {
    this.set(key, value);
    if (this.size > this.limit) this.delete(this.keys().next().value);
    return value;
  }
}

export class Lap {
  /**
   * @param {any} record as `lap_record` of html.py writes it
   * @param {import("./network.js").Network} network
   * @param {any} ghost
   */
  constructor(record, network, ghost = null) {
    this.where = record.where;
    this.seed = record.seed; // of its road
    this.driver = record.driver;
    this.frames = record.frames;
    this.t_s = record.t_s;
    this.steering = record.steering;
    this.throttle = record.throttle;
    this.brake = record.brake;
    this.choice = record.choice;
    this.x_m = record.x_m;
    this.y_m = record.y_m;
    this.road = record.road ?? null;
    this.ghost = ghost; // {text, edited, unedited} of points {t_s, x_m, y_m, picture}; null where none was driven
    this.network = network;
    this.length = record.t_s.length;
    const { height, width } = network.description.preprocessing;
    this.size = { height, width };
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [width, height];
    // In the processor's memory: a graphics card may give other bytes back than were drawn.
    this.pen = canvas.getContext("2d", { willReadFrequently: true });
    this.pictures = new Cache(KEPT_PICTURES);
    this.tokens = new Array(this.length).fill(null);
    /** @type {(Decision | null)[]} without edits */
    this.plain = new Array(this.length).fill(null);
    this.edited = new Cache(KEPT_EDITED);
  }

  // Bytes [height][width][3] of frame i.
  async pixels(i) {
    const kept = this.pictures.get(i);
    if (kept) return kept;
    const image = new Image();
    image.src = `data:image/${this.frames[i].startsWith("/9j/") ? "jpeg" : "png"};base64,${this.frames[i]}`;
    await image.decode();
    const { width, height } = this.size;
    this.pen.drawImage(image, 0, 0);
    const rgba = this.pen.getImageData(0, 0, width, height).data;
    const rgb = new Uint8Array(width * height * 3);
    for (let p = 0, q = 0; q < rgb.length; p += 4, q += 3) {
      rgb[q] = rgba[p];
      rgb[q + 1] = rgba[p + 1];
      rgb[q + 2] = rgba[p + 2];
    }
    return this.pictures.keep(i, rgb);
  }

  async token(i, picture) {
    if (!picture) return (this.tokens[i] ??= this.network.token(await this.pixels(i)));
    const key = `${i} ${picture.key}`;
    return this.edited.get(key) ?? this.edited.keep(key, this.network.token(editPicture(await this.pixels(i), this.size, picture)));
  }

  // What the network decides at frame i. edits: {picture, network} of `compile`, or null.
  /** @returns {Promise<Decision>} */
  async decide(i, edits = null) {
    if (!edits && this.plain[i]) return this.plain[i];
    const first = Math.max(0, i - this.network.window + 1);
    const tokens = [];
    for (let j = first; j <= i; j++) {
      const touched = edits?.picture && (j === i || edits.picture.everyFrame);
      tokens.push(await this.token(j, touched ? edits.picture : null));
    }
    const before = i > 0 ? this.t_s[i - 1] : null;
    const decision = this.network.decide(tokens, this.t_s.slice(first, i + 1), before, edits?.network ?? NO_EDITS);
    if (!edits) this.plain[i] = decision;
    return decision;
  }

  // What muting each part alone changes at frame i, on top of edits; null where goesOn() says no meanwhile.
  async measure(i, edits, goesOn) {
    const first = Math.max(0, i - this.network.window + 1);
    const touched = (j) => edits?.picture && (j === i || edits.picture.everyFrame);
    const tokens = [];
    for (let j = first; j <= i; j++) tokens.push(await this.token(j, touched(j) ? edits.picture : null));
    const pixels = await this.pixels(i);
    const moment = { tokens, times: this.t_s.slice(first, i + 1), before_s: i > 0 ? this.t_s[i - 1] : null, pixels: touched(i) ? editPicture(pixels, this.size, edits.picture) : pixels };
    return measure(this.network, moment, edits?.network ?? NO_EDITS, goesOn);
  }

  // What was driven at frame i.
  driven(i) {
    return { steering: this.steering[i], throttle: this.throttle[i], brake: this.brake[i], choice: this.choice[i] };
  }

  // Where the ghost is while frame i is shown; null before it begins to drive, and after.
  ghostAt(i) {
    const line = this.ghost?.edited ?? [];
    const k = line.findLastIndex(({ t_s }) => t_s <= this.t_s[i] + 0.01);
    return k < 0 || (k === line.length - 1 && this.t_s[i] > line[k].t_s + 0.2) ? null : line[k];
  }

  // How far to the right a decision leans: the mean steering of all choices, weighed by how sure it is of each.
  /** @param {Decision} decision */
  lean(decision) {
    if (!decision.shares) return decision.steering;
    return decision.shares.reduce((sum, share, k) => sum + share * this.network.actions[k][0], 0);
  }
}

// Whether two decisions are the same, as far as a driver would call them so.
export function sameDecision(a, b) {
  return a.choice >= 0 && b.choice >= 0 ? a.choice === b.choice : Math.abs(a.steering - b.steering) < 0.1;
}

// A frame with what is to be changed in the picture: blurred, then dimmed, then painted over.
export function editPicture(rgb, { height, width }, { paints, light, blur }) {
  let out = blur > 0 ? blurred(blurred(rgb, width, height, blur, 3, width * 3), height, width, blur, width * 3, 3) : rgb.slice();
  if (light !== 1) out = out.map((v) => Math.min(255, Math.round(v * light)));
  for (const { left, top, right, bottom, level } of paints) {
    const [first, end] = [Math.floor(left * width), Math.ceil(right * width)];
    const mean = (channel) => out.reduce((sum, v, i) => (i % 3 === channel ? sum + v : sum), 0) / (height * width);
    const colour = level === null ? [0, 1, 2].map(mean) : [level, level, level];
    for (let row = Math.floor(top * height); row < Math.min(height, Math.ceil(bottom * height)); row++) {
      for (let i = (row * width + first) * 3; i < (row * width + Math.min(width, end)) * 3; i++) out[i] = colour[i % 3];
    }
  }
  return out;
}

// The mean over 2 radius + 1 pixels along lines of `length` pixels that are `step` apart in memory.
function blurred(rgb, length, lines, radius, step, between) {
  const out = new Uint8Array(rgb.length);
  for (let line = 0; line < lines; line++) {
    for (let c = 0; c < 3; c++) {
      const start = line * between + c;
      for (let i = 0; i < length; i++) {
        let sum = 0;
        for (let d = -radius; d <= radius; d++) sum += rgb[start + Math.min(length - 1, Math.max(0, i + d)) * step];
        out[start + i * step] = Math.round(sum / (2 * radius + 1));
      }
    }
  }
  return out;
}
