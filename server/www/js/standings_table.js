// All contestants in a table, at one simulated time: how far, how much behind, what came of it so far.

import { fixed, known, percent } from "./dom.js";
import { badge } from "./lane_cards.js";

const HEADS = ["who", "place", "gap", "of the road", "return", "off the road", "late"];
// Slower than figures could be read, numbers would only flicker.
const TABLE_REST_MS = 250;

export class StandingsTable {
  constructor(table) {
    this.table = table;
    this.drawn = -Infinity;
    this.late = null;
    const row = table.tHead.insertRow();
    for (const head of HEADS) row.append(Object.assign(document.createElement("th"), { textContent: head, scope: "col" }));
  }

  show(race, t) {
    const wait = this.drawn + TABLE_REST_MS - performance.now();
    clearTimeout(this.late);
    if (wait > 0) {
      // The last state is shown too, when nothing comes after it.
      this.late = setTimeout(() => this.show(race, t), wait);
      return;
    }
    this.drawn = performance.now();
    const body = this.table.tBodies[0];
    body.replaceChildren(...race.order(t).map((lane, place) => this.row(race, lane, place, t)));
  }

  row(race, lane, place, t) {
    const i = lane.indexOfTime(t);
    const gap = race.gap(lane, t);
    const at = (column) => lane.at(i, column);
    const row = document.createElement("tr");
    const name = row.insertCell();
    name.append(badge(lane.index), lane.name);
    name.className = "name";
    name.title = lane.name;
    const cell = (text, bad = false) => {
      const made = row.insertCell();
      made.textContent = text;
      made.className = bad ? "bad" : "";
    };
    cell(known(at("station_m")) ? `${at("station_m").toFixed(0)} m` : "–");
    cell(!known(gap) ? "–" : place === 0 ? "leads" : `+${gap.toFixed(2)} s`);
    cell(percent(at("progress")));
    cell(fixed(at("episode_return"), 1));
    cell(known(at("off_share")) ? `${(at("off_share") * 100).toFixed(1)} %` : "–", at("wheels_off") >= 0.5);
    cell(fixed(at("missed"), 0));
    return row;
  }
}
