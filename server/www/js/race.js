// All contestants on one track: where they are compared, at which simulated time all are known, and who is behind whom.

import { known } from "./dom.js";
import { Lane } from "./lane.js";

export class Race {
  constructor({ names, columns, people }) {
    this.lanes = names.map((name, i) => new Lane(i, name, columns, people.includes(i)));
    this.attempt = null;
  }

  begin(attempt) {
    if (attempt === this.attempt) return false;
    this.attempt = attempt;
    for (const lane of this.lanes) lane.clear();
    return true;
  }

  // Where some contestant's world does not say where it is, all are compared by time.
  get byTime() {
    return this.lanes.some((lane) => !lane.placed);
  }

  get driving() {
    return this.lanes.filter((lane) => !lane.done);
  }

  // The simulated time up to which all that still drive are known; those that have ended stay where they are.
  get time() {
    const lanes = this.driving.length ? this.driving : this.lanes;
    const times = lanes.map((lane) => lane.last("t_s"));
    return this.driving.length ? Math.min(...times) : Math.max(...times);
  }

  // The furthest place at which all that still drive have been; in the end, at which all have.
  get sharedPlace() {
    const lanes = this.driving.length ? this.driving : this.lanes;
    return Math.min(...lanes.map((lane) => lane.furthest(this.byTime)));
  }

  get furthest() {
    return Math.max(...this.lanes.map((lane) => lane.furthest(this.byTime)).filter(known), 0);
  }

  // Simulated seconds, of now or of its own end, since the first was where a lane has come by time t.
  gap(lane, t) {
    if (this.byTime) return NaN;
    const i = lane.indexOfTime(t);
    if (i < 0) return NaN;
    const place = lane.reach[i];
    const times = this.lanes.map((other) => other.timeAt(place)).filter(known);
    const now = lane.done ? Math.min(t, lane.last("t_s")) : t;
    return Math.max(0, now - Math.min(...times));
  }

  // Lanes at time t, the furthest first; of those that have finished their lap, the first to do so.
  order(t) {
    const key = (lane) => {
      const i = lane.indexOfTime(t);
      const finished = lane.done && /finished/.test(lane.ending?.text ?? "") && lane.last("t_s") <= t;
      return finished ? 1e9 - lane.last("t_s") : this.byTime ? lane.at(i, "progress") : (lane.reach[i] ?? -Infinity);
    };
    return [...this.lanes].sort((a, b) => (key(b) || 0) - (key(a) || 0));
  }
}
