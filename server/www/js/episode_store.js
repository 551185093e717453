// One recorded episode: all its numbers at once, its frames and neurons in chunks around the playhead.

import { decode } from "./protocol.js";
import { Ring } from "./ring.js";

const CHUNK = 25;
const KEPT_CHUNKS = 8;

export class EpisodeStore {
  constructor(run, episode, columns) {
    this.base = `/replay/${run}/${episode}`;
    this.columns = columns;
    this.chunks = new Map();
    this.ring = null;
    this.events = [];
  }

  async open() {
    const answer = await fetch(`${this.base}/rows`);
    if (!answer.ok) throw new Error(`this episode cannot be read (${answer.status})`);
    const { rows, events } = await answer.json();
    this.ring = new Ring(this.columns, rows.length);
    for (const row of rows) this.ring.push(row);
    this.events = events;
    return this;
  }

  get length() {
    return this.ring.length;
  }

  // The message of a step; null while it is under way. Asks for the chunk and the next one.
  tick(step) {
    const chunk = Math.floor(step / CHUNK);
    this.want(chunk + 1);
    return this.want(chunk)?.[step % CHUNK] ?? null;
  }

  // The same, waited for.
  async whole(step) {
    const chunk = Math.floor(step / CHUNK);
    this.want(chunk);
    await this.chunks.get(chunk)?.coming;
    return this.chunks.get(chunk)?.ticks?.[step % CHUNK] ?? null;
  }

  want(chunk) {
    if (chunk < 0 || chunk * CHUNK >= this.length) return null;
    const kept = this.chunks.get(chunk);
    if (kept) {
      // Looked at last, dropped last.
      this.chunks.delete(chunk);
      this.chunks.set(chunk, kept);
      return kept.ticks;
    }
    const entry = { ticks: null, coming: null };
    entry.coming = this.load(chunk, entry);
    this.chunks.set(chunk, entry);
    while (this.chunks.size > KEPT_CHUNKS) this.chunks.delete(this.chunks.keys().next().value);
    return null;
  }

  async load(chunk, entry) {
    const answer = await fetch(`${this.base}/ticks?from=${chunk * CHUNK}&count=${CHUNK}`);
    if (!answer.ok) {
      this.chunks.delete(chunk);
      return;
    }
    const buffer = await answer.arrayBuffer();
    const ticks = [];
    for (let at = 0; at < buffer.byteLength;) {
      const message = decode(buffer, at);
      ticks.push(message);
      at = message.end;
    }
    entry.ticks = ticks;
  }
}
