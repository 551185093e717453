// The exported network at the wheel: looks at a frame every few frames of the world, remembers some, and decides.

import { measure } from "/js/effects.js";
import { editPicture } from "../../export/page/lap.js";
import { NO_EDITS } from "../../export/page/network.js";
import { SIDE } from "./camera.js";
import { Eye, NO_TROUBLE } from "./trouble.js";

/** @typedef {import("./carracing.js").CarRacing} CarRacing */
/** @typedef {{picture: any, network: any} | null} Compiled edits as `Edits.compile` gives them */
/** @typedef {{token: any, t_s: number, frame: Uint8Array}} Memory a remembered frame, as it was seen */

const SIZE_PX = { width: SIDE, height: SIDE };

export class NetworkDriver {
  /**
   * @param {any} network
   * @param {import("./camera.js").Camera} camera
   * @param {number} repeat frames of the world for which a decision holds
   * @param {number} seed of what is wrong with its camera
   */
  constructor(network, camera, repeat, seed) {
    this.network = network;
    this.camera = camera;
    this.repeat = repeat;
    this.eye = new Eye(seed);
    /** @type {Memory[]} */
    this.memories = []; // the oldest first
    this.before_s = null; // when the frame before the newest was taken
    /** @type {any} */
    this.decision = null;
    /** @type {Compiled} */
    this.edits = null;
    this.trouble = NO_TROUBLE;
  }

  // Look at the world as it is now and decide; where the frame is lost, the last decision again.
  /** @param {CarRacing} world */
  act(world) {
    const arrived = this.eye.see(this.camera.frame(world), this.trouble);
    if (!arrived && this.decision) return this.decision;
    const frame = this.edits?.picture ? editPicture(arrived, SIZE_PX, this.edits.picture) : arrived;
    this.before_s = this.memories.at(-1)?.t_s ?? null;
    this.memories.push({ token: this.network.token(frame), t_s: world.t_s, frame });
    if (this.memories.length > this.network.window) this.memories.shift();
    const { tokens, times } = this.#moment();
    this.decision = this.network.decide(tokens, times, this.before_s, this.edits?.network ?? NO_EDITS);
    return this.decision;
  }

  #moment() {
    return { tokens: this.memories.map(({ token }) => token), times: this.memories.map(({ t_s }) => t_s), before_s: this.before_s };
  }

  // What muting each part alone does to the last decision, on top of the edits.
  measure() {
    return measure(this.network, { ...this.#moment(), pixels: this.memories.at(-1).frame }, this.edits?.network ?? NO_EDITS);
  }

  save() {
    return { eye: this.eye.save(), memories: [...this.memories], before_s: this.before_s, decision: this.decision };
  }

  /** @param {ReturnType<NetworkDriver["save"]>} saved */
  restore({ eye, memories, before_s, decision }) {
    this.eye.restore(eye);
    Object.assign(this, { memories: [...memories], before_s, decision });
  }
}
