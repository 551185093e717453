// numpy's random numbers: SeedSequence and PCG64, so that a seed gives the same road here as in Python.

const MASK_64 = (1n << 64n) - 1n;
const MASK_128 = (1n << 128n) - 1n;
const MULTIPLIER = 0x2360ed051fc65da44385df649fccf645n;
const POOL_SIZE = 4;

// A hash whose constant goes on with every call, as numpy's SeedSequence has it.
/** @param {number} constant @param {number} multiplier */
function hashing(constant, multiplier) {
  return (/** @type {number} */ value) => {
    const mixed = value ^ constant;
    constant = Math.imul(constant, multiplier);
    const product = Math.imul(mixed, constant);
    return (product ^ (product >>> 16)) >>> 0;
  };
}

/** @param {number} x @param {number} y */
function mixPair(x, y) {
  const mixed = (Math.imul(0xca01f9dd, x) - Math.imul(0x4973f715, y)) | 0;
  return (mixed ^ (mixed >>> 16)) >>> 0;
}

/**
 * Eight 32-bit words from a whole number that is not negative.
 * @param {number} seed
 */
function seedWords(seed) {
  const entropy = [];
  for (let rest = BigInt(seed); rest > 0n || !entropy.length; rest >>= 32n) entropy.push(Number(rest & 0xffffffffn));
  const hash = hashing(0x43b0d7e5, 0x931e8875);
  const pool = Array.from({ length: POOL_SIZE }, (_, i) => hash(entropy[i] ?? 0));
  for (let from = 0; from < POOL_SIZE; from++) {
    for (let to = 0; to < POOL_SIZE; to++) if (from !== to) pool[to] = mixPair(pool[to], hash(pool[from]));
  }
  for (const word of entropy.slice(POOL_SIZE)) for (let to = 0; to < POOL_SIZE; to++) pool[to] = mixPair(pool[to], hash(word));
  const give = hashing(0x8b51f9dd, 0x58f38ded);
  return Array.from({ length: 8 }, (_, i) => give(pool[i % POOL_SIZE]));
}

export class Pcg64 {
  /** @param {number} seed */
  constructor(seed) {
    const words = seedWords(seed).map(BigInt);
    const whole = (/** @type {number} */ i) => words[i] | (words[i + 1] << 32n);
    this.increment = ((((whole(4) << 64n) | whole(6)) << 1n) | 1n) & MASK_128;
    this.state = (this.increment + ((whole(0) << 64n) | whole(2))) & MASK_128;
    this.advance();
  }

  advance() {
    this.state = (this.state * MULTIPLIER + this.increment) & MASK_128;
  }

  // A number from low to below high.
  /** @param {number} low @param {number} high */
  uniform(low, high) {
    this.advance();
    const mixed = (this.state >> 64n) ^ (this.state & MASK_64);
    const turn = this.state >> 122n;
    const turned = ((mixed >> turn) | (mixed << (64n - turn))) & MASK_64;
    return low + (high - low) * (Number(turned >> 11n) / 9007199254740992);
  }
}
