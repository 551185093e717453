// What has happened so far, in stretches of driving under the same conditions: what the lessons' checks look at.

import { encode } from "/js/edits.js";

/**
 * @typedef {object} Stretch
 * @property {number} lap its number, from 1
 * @property {number} seed
 * @property {boolean} drawn whether the road was drawn by hand
 * @property {string[]} edits each in the form of a link
 * @property {import("./trouble.js").Trouble} trouble
 * @property {boolean} person whether a person drove
 * @property {boolean} racing
 * @property {boolean} reversed whether it began with the car against the road, after a person had driven
 * @property {boolean} blown whether a gust has come in this lap
 * @property {number} backSeconds driven on the road since a gust of this lap had it beside it; below 0 where none had
 * @property {number} seconds
 * @property {boolean} offRoad whether all four wheels were beside the road
 * @property {number} progress share of the road, at its end
 * @property {string} ended
 * @property {boolean} won
 */

const SECONDS = 1 / 50;

export class Journal {
  /** @type {Stretch[]} */
  stretches = [];
  /** @type {{steering: number, strongest: string} | null} */
  asked = null; // what was measured last: how it steered, and the edit that changes that most

  /** @returns {Stretch | undefined} */
  get now() {
    return this.stretches.at(-1);
  }

  // After each frame: the session, its edits as a list, and whether its road was drawn.
  /** @param {any} session @param {any[]} list @param {boolean} drawn @param {boolean} reversed */
  note(session, list, drawn, reversed) {
    const edits = list.map((edit) => encode([edit]));
    const { car, trouble, racing, laps, seed } = session;
    const person = Boolean(car.person);
    const same = this.now && this.now.lap === laps && this.now.person === person && this.now.trouble === trouble
      && this.now.edits.join() === edits.join();
    if (!same) {
      const before = this.now?.lap === laps ? this.now : { person: false, blown: false, backSeconds: -1 };
      this.stretches.push({
        ...{ lap: laps, seed, drawn, edits, trouble, person, racing, reversed: before.person && !person && reversed },
        ...{ blown: before.blown, backSeconds: before.backSeconds, seconds: 0, offRoad: false, progress: 0, ended: "", won: false },
      });
    }
    const { now } = this;
    const { world } = car;
    now.seconds += SECONDS;
    now.blown ||= car.gust !== 0;
    now.offRoad ||= world.grassShare === 1;
    if (now.blown && world.grassShare === 1) now.backSeconds = 0;
    else if (now.backSeconds >= 0 && world.grassShare < 0.5) now.backSeconds += SECONDS;
    Object.assign(now, { progress: world.progress, ended: world.ended, won: session.winner === "you" });
  }
}
