// Whole lines of a track, driven in the other process: the expert's, and where an old recording says no places, its own.

import { Questions } from "./questions.js";

export class LapLines {
  /**
   * @param {import("/js/track_map.js").TrackMap} map
   * @param {() => object} name what the server calls the moment that is shown, or nothing
   * @param {(seed: number, score: number) => void} scored called when the expert has driven a track to its end
   */
  constructor(map, name, scored) {
    this.map = map;
    this.scored = scored;
    this.name = name;
    this.questions = new Questions((_, answer) => this.receive(answer));
    this.points = [];
    this.store = null;
  }

  allow(can) {
    this.questions.close();
    this.kept = new Map();
    this.store = null;
    this.map.setExpert(null);
    this.map.onExpert = can?.expert ? () => this.expert() : null;
  }

  expert() {
    const seed = this.map.row?.seed;
    if (this.map.expertLine.length) {
      // Or its next points would bring it back.
      this.questions.stop("lap");
      return this.map.setExpert(null);
    }
    if (this.kept.has(seed)) return this.map.setExpert(this.kept.get(seed));
    const moment = this.name();
    if (!moment) return;
    this.seed = seed;
    this.points = [];
    this.store = null;
    this.questions.ask("lap", { moment, who: "expert" });
  }

  // Places of a recorded episode that knows none: driven once more, they are written into its rows.
  driven(store, moment, changed) {
    this.store = store;
    this.changed = changed;
    this.points = [];
    this.questions.ask("lap", { moment, who: "driven" });
  }

  receive(answer) {
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
        this.scored(this.seed, line.episode_return);
      }
    }
    if (answer.done) this.questions.close();
  }
}
