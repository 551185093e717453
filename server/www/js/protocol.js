// One message: uint32 n, n bytes of JSON, then the parts one after another, each padded to four bytes.

/**
 * A part of a message: png, jpeg, u8 (between lo and hi), f32 or json.
 * @typedef {object} Part
 * @property {string} name
 * @property {"png" | "jpeg" | "u8" | "f32" | "json"} kind
 * @property {number} bytes
 * @property {number[]} shape
 * @property {number} [lo]
 * @property {number} [hi]
 * @property {any} data Uint8Array, Float32Array of f32, or what the JSON says
 */
/** @typedef {{header: any, parts: Map<string, Part>[]}} Message of each lane its parts */
/**
 * What a stream says first of all; columns are the names of a row's numbers.
 * @typedef {object} Hello
 * @property {string} title
 * @property {string[]} columns
 * @property {boolean} control
 * @property {string[]} [choices]
 * @property {object | null} [circuit]
 * @property {object | null} [network_input]
 * @property {Record<string, any>} cards
 * @property {string[]} names of the lanes, where several drive
 * @property {number[]} [people]
 */

const pad = (n) => (n + 3) & ~3;

/** @returns {Message & {end: number}} */
export function decode(buffer, start = 0) {
  const length = new DataView(buffer, start).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, start + 4, length)));
  const parts = Array.from(header.lanes ?? [null], () => new Map());
  let offset = start + 4 + length;
  for (const part of header.parts ?? []) {
    const bytes = new Uint8Array(buffer, offset, part.bytes);
    const data = part.kind === "f32" ? new Float32Array(buffer, offset, part.bytes / 4) : part.kind === "json" ? JSON.parse(new TextDecoder().decode(bytes)) : bytes;
    parts[part.lane].set(part.name, { ...part, data });
    offset += pad(part.bytes);
  }
  return { header, parts, end: offset };
}

// A part's numbers as float32; arrays that travelled as bytes are put back between their bounds.
/** @param {Part | null} part */
export function numbers(part) {
  if (!part) return null;
  if (part.kind === "f32") return part.data;
  const values = new Float32Array(part.data.length);
  const scale = (part.hi - part.lo) / 255;
  for (let i = 0; i < values.length; i++) values[i] = part.lo + part.data[i] * scale;
  return values;
}

export function softmax(scores) {
  let top = -Infinity;
  for (const s of scores) if (s > top) top = s;
  if (!Number.isFinite(top)) return new Array(scores.length).fill(NaN);
  const raised = Array.from(scores, (s) => Math.exp(s - top));
  const sum = raised.reduce((a, b) => a + b, 0);
  return raised.map((r) => r / sum);
}
