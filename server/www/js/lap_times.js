// When laps and their thirds were done, read from the share of the road that was driven.

import { known } from "./dom.js";

export const SECTORS = 3;
// A third counts from 1 % before its end on: of CarRacing's tiles a few may stay unvisited.
const SLACK = 0.01;

// The thirds of the rows first .. end of a ring that were done at time t: [{lap (from 0), sector (from 0), t_s, seconds,
// i: the row in which it was done}]. A lap's last third ends the lap.
export function passedSectors(ring, { first, end }, t = Infinity) {
  const passed = [];
  let began = ring.at(first, "t_s");
  let next = 1;
  for (let i = first; i < end; i++) {
    const now = ring.at(i, "progress");
    const time = ring.at(i, "t_s");
    if (time > t) break;
    if (!known(now)) continue;
    while (now >= next / SECTORS - SLACK) {
      passed.push({ lap: Math.floor((next - 1) / SECTORS), sector: (next - 1) % SECTORS, t_s: time, seconds: time - began, i });
      began = time;
      next++;
    }
  }
  return passed;
}

// Seconds of each whole lap of what ``passedSectors`` gave.
export function lapSeconds(passed) {
  const laps = [];
  for (const { lap, sector, seconds } of passed) {
    if (sector === 0) laps[lap] = 0;
    if (laps[lap] !== undefined) laps[lap] += seconds;
  }
  const whole = new Set(passed.filter(({ sector }) => sector === SECTORS - 1).map(({ lap }) => lap));
  return laps.map((seconds, lap) => (whole.has(lap) ? seconds : NaN)).filter(known);
}
