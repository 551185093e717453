// What is wrong with the camera while the network drives: black, flickering, noisy, late, or with frames lost on the way.

/**
 * @typedef {object} Trouble
 * @property {boolean} black no light at all
 * @property {number} flicker share of the frames that are black
 * @property {number} noise standard deviation, as a share of full scale
 * @property {number} delay decisions by which frames come late; the network is not told
 * @property {number} drop share of the frames that are lost; the decision before holds
 * @property {number} wind a steady push from the side, -1 .. 1, to the right is positive
 */

/** @type {Trouble} */
export const NO_TROUBLE = Object.freeze({ black: false, flicker: 0, noise: 0, delay: 0, drop: 0, wind: 0 });
export const LIMITS = { flicker: 1, noise: 0.5, delay: 20, drop: 0.95, wind: 1 };

/** @param {Trouble} trouble */
export const isTroubled = (trouble) => Object.keys(NO_TROUBLE).some((name) => trouble[name] !== NO_TROUBLE[name]);

// Random numbers from 0 to below 1, quick ones: thousands are needed for a noisy frame (mulberry32).
class QuickRandom {
  /** @param {number} seed */
  constructor(seed) {
    this.state = seed | 0;
  }

  next() {
    this.state = (this.state + 0x6d2b79f5) | 0;
    let t = Math.imul(this.state ^ (this.state >>> 15), 1 | this.state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  }
}

export class Eye {
  /** @param {number} seed */
  constructor(seed) {
    this.random = new QuickRandom(seed);
    /** @type {Uint8Array[]} */
    this.late = []; // the newest last
  }

  // What arrives of a frame: bytes of its own, or null where it is lost. The first is never lost.
  /** @param {Uint8Array} frame @param {Trouble} trouble */
  see(frame, { black, flicker, noise, delay, drop }) {
    // Both are drawn each time, so that one setting leaves the other's random numbers alone.
    const [dark, lost] = [this.random.next() < flicker, this.random.next() < drop];
    const first = !this.late.length;
    this.late.push(frame);
    while (this.late.length > delay + 1) this.late.shift();
    if (lost && !first) return null;
    const seen = this.late[0];
    if (black || dark) return new Uint8Array(seen.length);
    return noise > 0 ? this.#grain(seen, noise * 255) : seen;
  }

  #grain(/** @type {Uint8Array} */ seen, /** @type {number} */ levels) {
    const out = new Uint8Array(seen.length);
    for (let i = 0; i < out.length; i += 2) {
      // Two numbers of a normal distribution at a time (Box and Muller).
      const size = levels * Math.sqrt(-2 * Math.log(1 - this.random.next()));
      const turn = 2 * Math.PI * this.random.next();
      out[i] = Math.min(255, Math.max(0, Math.round(seen[i] + size * Math.cos(turn))));
      if (i + 1 < out.length) out[i + 1] = Math.min(255, Math.max(0, Math.round(seen[i + 1] + size * Math.sin(turn))));
    }
    return out;
  }

  save() {
    return { state: this.random.state, late: [...this.late] };
  }

  /** @param {ReturnType<Eye["save"]>} saved */
  restore({ state, late }) {
    this.random.state = state;
    this.late = [...late];
  }
}
