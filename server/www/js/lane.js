// One contestant on this page: its numbers since the start of the track and the frames that came, by place and by time.

import { known } from "./dom.js";

// Of rows: more than a quarter of an hour; then every second one of the older half goes.
const MOST_ROWS = 12_000;
// Of pictures, of one contestant; the oldest go first.
const MOST_BYTES = 24 << 20;
// So many rows back a picture may be looked for, a quarter of a second: a browser that is too slow is not sent all.
const LOOK_BACK = 3;
// Of a measurement of why: the longest bars.
const KEPT_BARS = 3;

export class Lane {
  constructor(index, name, columns, person) {
    this.index = index;
    this.name = name;
    this.person = person;
    this.columns = new Map(columns.map((column, i) => [column, i]));
    this.clear();
  }

  clear() {
    this.rows = [];
    // The furthest place so far, row by row: whoever goes back has been there already.
    this.reach = [];
    this.frames = [];
    // What muting parts alone changed, of those rows that it came with.
    this.reasons = [];
    this.bytes = 0;
    this.oldest = 0;
    this.placed = true;
    this.ending = null;
  }

  get length() {
    return this.rows.length;
  }

  get done() {
    return this.length > 0 && this.at(this.length - 1, "done") === 1;
  }

  // frame: {kind, data} of the last of these rows, why: of effects.js.
  push(rows, frame, why = null) {
    const place = this.columns.get("station_m");
    for (const row of rows) {
      const here = row[place];
      if (!known(here)) this.placed = false;
      this.reach.push(Math.max(this.reach.at(-1) ?? -Infinity, known(here) ? here : -Infinity));
      this.rows.push(row);
      this.frames.push(null);
      this.reasons.push(null);
    }
    if (why && rows.length) this.reasons[this.length - 1] = { ...why, bars: why.bars.slice(0, KEPT_BARS) };
    if (frame && rows.length) {
      this.frames[this.length - 1] = frame;
      this.bytes += frame.data.length;
    }
    for (; this.bytes > MOST_BYTES && this.oldest < this.length; this.oldest++) {
      this.bytes -= this.frames[this.oldest]?.data.length ?? 0;
      this.frames[this.oldest] = null;
    }
    if (this.length > MOST_ROWS) this.thin();
  }

  thin() {
    const half = this.length / 2;
    const kept = (list) => list.filter((_, i) => i > half || i % 2 === 0);
    [this.rows, this.reach, this.frames, this.reasons] = [this.rows, this.reach, this.frames, this.reasons].map(kept);
    this.oldest = 0;
    this.bytes = this.frames.reduce((sum, frame) => sum + (frame?.data.length ?? 0), 0);
  }

  at(i, column) {
    return this.rows[i]?.[this.columns.get(column)] ?? NaN;
  }

  last(column) {
    return this.at(this.length - 1, column);
  }

  row(i) {
    return Object.fromEntries([...this.columns.keys()].map((column) => [column, this.at(i, column)]));
  }

  // How far it has come: metres, or seconds where places are not known.
  furthest(byTime) {
    return byTime ? this.last("t_s") : this.reach.at(-1) ?? NaN;
  }

  // The first row at or beyond a place; -1 where it has not come so far.
  index_at(place, byTime) {
    const value = byTime ? (i) => this.at(i, "t_s") : (i) => this.reach[i];
    if (!this.length || !(value(this.length - 1) >= place - 1e-9)) return -1;
    let [low, high] = [0, this.length - 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (value(middle) >= place - 1e-9) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  // The last row at or before a time; 0 for earlier ones, -1 without any.
  indexOfTime(t) {
    let [low, high] = [0, this.length - 1];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.at(middle, "t_s") <= t + 1e-9) low = middle;
      else high = middle - 1;
    }
    return this.length ? low : -1;
  }

  // Simulated seconds at which it first came to a place, between two rows in proportion; NaN where it did not.
  timeAt(place) {
    const i = this.index_at(place, false);
    if (i < 0) return NaN;
    if (i === 0) return this.at(0, "t_s");
    const [before, here] = [this.reach[i - 1], this.reach[i]];
    const share = here > before ? (place - before) / (here - before) : 1;
    const [t0, t1] = [this.at(i - 1, "t_s"), this.at(i, "t_s")];
    return t0 + Math.max(0, Math.min(1, share)) * (t1 - t0);
  }

  // The newest picture at row i or a little before; null where none came.
  frameAt(i) {
    for (let k = i; k >= 0 && k > i - LOOK_BACK; k--) if (this.frames[k]) return this.frames[k];
    return null;
  }
}
