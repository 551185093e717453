// Whole lines of a track, driven in the other process: the expert's, and where an old recording says no places, its own.

import { WhatIfSocket } from "./what_if_socket.js";

export class LapLines {
  /**
   * @param {import("./track_map.js").TrackMap} map
   * @param {() => object} name what the server calls the moment that is shown, or nothing
   * @param {(seed: number) => void} scored called when the expert has driven a track to its end
   */
  constructor(map, name, scored) {
    this.map = map;
    this.scored = scored;
    this.name = name;
    this.socket = new WhatIfSocket((_, answer) => this.hear(answer));
    this.points = [];
    this.kept = new Map();
    this.store = null;
  }

  allow(can) {
    this.socket.close();
    this.store = null;
    this.map.setExpert(null);
    this.map.onExpert = can?.expert ? () => this.expert() : null;
  }

  // What the expert scored on a track, where it drove there to its end; NaN where not.
  score(seed) {
    return this.kept.get(seed)?.episode_return ?? NaN;
  }

  expert() {
    const seed = this.map.row?.seed;
    if (this.map.expert) return this.map.setExpert(null);
    if (this.kept.has(seed)) return this.map.setExpert(this.kept.get(seed));
    const moment = this.name();
    if (!moment) return;
    this.seed = seed;
    this.points = [];
    this.store = null;
    this.socket.ask("lap", { moment, who: "expert" });
  }

  // Places of a recorded episode that knows none: driven once more, they are written into its rows.
  driven(store, moment, changed) {
    this.store = store;
    this.changed = changed;
    this.points = [];
    this.socket.ask("lap", { moment, who: "driven" });
  }

  hear(answer) {
    if (answer.error || !answer.points) return;
    this.points.push(...answer.points);
    if (this.store) {
      // Only the last answer says that the drive was the same.
      if (!answer.done) return;
      this.points.forEach((p, i) => {
        for (const name of ["x_m", "y_m", "heading_rad", "progress"]) this.store.ring.put(i, name, p[name]);
      });
      this.changed();
    } else {
      const line = { seed: this.seed, points: this.points, episode_return: answer.episode_return };
      this.map.setExpert(line);
      if (answer.done) {
        this.kept.set(this.seed, line);
        this.scored(this.seed);
      }
    }
    if (answer.done) this.socket.close();
  }
}
