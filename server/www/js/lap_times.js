// When laps and their thirds were done, read from the share of the road that was driven.

import { known } from "./dom.js";

export const SECTORS = 3;
// A third counts from 1 % before its end on: of CarRacing's tiles a few may stay unvisited.
const SLACK = 0.01;
// Rows of long ago are thinned: where they lie further apart, nobody knows when a third was done.
const COARSEST_S = 0.5;

// The thirds of the rows first .. end of a ring that were done at time t: [{lap (from 0), sector (from 0), t_s, seconds,
// i: the row in which it was done}]. A lap's last third ends the lap. Only those whose beginning and end the rows tell: the
// rows of a long drive, or of a page that was opened late, begin somewhere on the road.
export function passedSectors(ring, { first, end }, t = Infinity) {
  const passed = [];
  let began = ring.at(first, "step") === 0 ? ring.at(first, "t_s") : NaN;
  let before = NaN;
  let next = 1;
  for (let i = first; i < end; i++) {
    const now = ring.at(i, "progress");
    const time = ring.at(i, "t_s");
    if (time > t) break;
    if (!known(now)) continue;
    for (; now >= next / SECTORS - SLACK; next++) {
      const done = time - before <= COARSEST_S ? time : NaN;
      if (done > began) passed.push({ lap: Math.floor((next - 1) / SECTORS), sector: (next - 1) % SECTORS, t_s: time, seconds: time - began, i });
      began = done;
    }
    before = time;
  }
  return passed;
}

// Seconds of each lap of whose thirds ``passedSectors`` gave all.
export function lapSeconds(passed) {
  const laps = [];
  for (const { lap, seconds } of passed) (laps[lap] ??= []).push(seconds);
  return laps.filter((thirds) => thirds.length === SECTORS).map((thirds) => thirds.reduce((sum, seconds) => sum + seconds));
}
