// One recorded episode: all its numbers at once, its frames and neurons in chunks around the playhead.

import { known } from "./dom.js";
import { decode } from "./protocol.js";
import { RingBuffer } from "./ring_buffer.js";

const CHUNK = 25;
const KEPT_CHUNKS = 8;

// What the server says that it cannot do.
export class Refusal extends Error {}

// Rejected with TypeError where the server is away.
async function answerTo(path) {
  const answer = await fetch(path);
  if (answer.ok) return answer;
  // A sentence for people is plain text.
  throw new Refusal(answer.headers.get("Content-Type")?.startsWith("text/plain") ? await answer.text() : `The replay's server cannot answer (${answer.status}).`);
}

export class EpisodeStore {
  constructor(run, episode, columns) {
    this.base = `replay/${run}/${episode}`;
    this.columns = columns;
    // Promises of the parts of Ticks by number of the chunk, the one looked at last at the end.
    this.chunks = new Map();
    this.ring = null;
    this.events = [];
  }

  async open() {
    const { rows, events, driven } = await (await answerTo(`${this.base}/rows`)).json();
    this.ring = new RingBuffer(this.columns, rows.length);
    for (const row of rows) this.ring.push(row);
    this.events = events;
    // What was driven, where the rows tell what a policy that looks on would have done.
    this.driven = driven && driven.map(([steering, choice]) => ({ steering: steering ?? NaN, choice: choice ?? NaN }));
    return this;
  }

  get length() {
    return this.ring.length;
  }

  // Whether any row knows a column.
  has(name) {
    for (let i = 0; i < this.length; i++) if (known(this.ring.at(i, name))) return true;
    return false;
  }

  // The parts of a step; asks for the chunk after it too. Rejected as `answerTo` is.
  async tick(step) {
    const chunk = Math.floor(step / CHUNK);
    const coming = this.chunk(chunk);
    // Nobody waits for this one yet: if it fails, it is asked for again when somebody does.
    this.chunk(chunk + 1)?.catch(() => {});
    return (await coming)?.[step % CHUNK] ?? null;
  }

  // Why a policy that looks on decides so at a step; null where nobody can say. Rejected as `answerTo` is.
  async why(step) {
    const { why } = await (await answerTo(`${this.base}/why/${step}`)).json();
    return why && { why, t_s: this.ring.at(step, "t_s"), step };
  }

  chunk(number) {
    if (number < 0 || number * CHUNK >= this.length) return null;
    const kept = this.chunks.get(number);
    this.chunks.delete(number);
    const coming = kept ?? this.load(number);
    this.chunks.set(number, coming);
    while (this.chunks.size > KEPT_CHUNKS) this.chunks.delete(this.chunks.keys().next().value);
    return coming;
  }

  async load(number) {
    try {
      const buffer = await (await answerTo(`${this.base}/ticks?from=${number * CHUNK}&count=${CHUNK}`)).arrayBuffer();
      const ticks = [];
      for (let at = 0; at < buffer.byteLength;) {
        const message = decode(buffer, at);
        ticks.push(message.parts[0]);
        at = message.end;
      }
      return ticks;
    } catch (error) {
      this.chunks.delete(number);
      throw error;
    }
  }
}
