// The last five minutes of a drive as they came: the messages themselves, opened again when a moment is looked at.

import { known } from "./dom.js";
import { decode } from "./protocol.js";

export const KEPT_S = 300;
const MOST_BYTES = 96e6;
// So many of the newest stay open: they are shown, or their frames stand in the film strip.
const OPEN = 24;

// One decision that was shown. Neurons, why and saliency do not come with every one: each knows the last that had them.
class Moment {
  constructor(data, content, clock, before) {
    this.data = data;
    this.content = content;
    this.clock_s = clock;
    this.seq = content.row.seq;
    this.episode = content.row.episode;
    this.taken_s = taken(content.row);
    this.began_s = began(content.row);
    const last = before && before.episode === this.episode && same(before.began_s, this.began_s) ? before : null;
    const names = [...content.parts.keys()];
    this.withNeurons = names.some((name) => name.startsWith("neurons.")) ? this : last?.withNeurons;
    this.withWhy = names.includes("why") ? this : last?.withWhy;
    this.withSaliency = names.includes("saliency") ? this : last?.withSaliency;
  }
}

export class MomentHistory {
  constructor() {
    this.clear();
    this.frameAt = (row, t_s) => {
      const moment = this.moments.findLast((one) => one.episode === row.episode && same(one.began_s, began(row)) && same(one.taken_s, t_s));
      return moment && this.open(moment).parts.get("frame");
    };
  }

  // named: turns a row of numbers into an object.
  clear(named = (row) => row) {
    this.named = named;
    this.moments = [];
    this.bytes = 0;
  }

  get newest() {
    return this.moments.at(-1) ?? null;
  }

  // data: the message that holds header and parts.
  add(data, { header, parts: [parts] }) {
    const row = this.named(header.ticks[0].row);
    // With several viewers a Tick may come twice; steps back would stop at the second for ever.
    if (this.newest && row.seq === this.newest.seq) return this.view(this.newest);
    const moment = new Moment(data, { row, parts }, row.clock_s, this.newest);
    this.moments.push(moment);
    this.bytes += data.byteLength;
    const closing = this.moments.at(-OPEN);
    if (closing && closing !== moment) closing.content = null;
    let dropped = 0;
    while (this.bytes > MOST_BYTES || row.clock_s - this.moments[dropped].clock_s > KEPT_S) this.bytes -= this.moments[dropped++].data.byteLength;
    // One that a later moment still needs would keep those before it, and so all of a long drive.
    for (const gone of this.moments.splice(0, dropped)) gone.withNeurons = gone.withWhy = gone.withSaliency = null;
    return this.view(moment);
  }

  // Row and parts of a moment.
  open(moment) {
    if (moment.content) return moment.content;
    const { header, parts: [parts] } = decode(moment.data);
    return { row: this.named(header.ticks[0].row), parts };
  }

  // What the dashboard shows of a moment.
  view(moment) {
    const [withNeurons, withWhy, withSaliency] = [moment.withNeurons, moment.withWhy, moment.withSaliency].map((one) => one && this.open(one));
    const why = withWhy ? { why: withWhy.parts.get("why").data, t_s: withWhy.row.t_s } : null;
    return { ...this.open(moment), withNeurons, why, withSaliency };
  }

  // Place of the last moment that is not after t; the first one if all are.
  index(t) {
    let low = 0;
    let high = this.moments.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.moments[middle].clock_s <= t + 1e-6) low = middle + 1;
      else high = middle;
    }
    return Math.max(0, low - 1);
  }

  // The moment n decisions from that at t; null where there is none at all.
  near(t, n = 0) {
    const moment = this.moments[Math.max(0, Math.min(this.moments.length - 1, this.index(t) + n))];
    return moment ? this.view(moment) : null;
  }
}

// When the frame of a row was taken: where some are late, before it was decided on.
export function taken({ t_s, frame_t_s }) {
  return known(frame_t_s) ? frame_t_s : t_s;
}

// When an attempt began, on the axis that runs on: started over, an episode has another.
export function began({ clock_s, t_s }) {
  return clock_s - t_s;
}

// Neurons say times in single precision.
export function same(a, b) {
  return Math.abs(a - b) < 2e-3 + 1e-6 * Math.abs(a);
}
