// The tracks that were driven while this page was open, in the dialog over the run: how each ended, and what came of it.

import { $, fixed, known, percent } from "/js/dom.js";

const HEADS = ["track", "ending", "of the road", "return", "time"];

/** @returns {import("/js/cards.js").Card} */
export function card() {
  const table = document.createElement("table");
  table.id = "tracks";
  table.hidden = true;
  const head = table.createTHead().insertRow();
  for (const text of HEADS) head.append(Object.assign(document.createElement("th"), { textContent: text, scope: "col" }));
  const body = table.createTBody();
  $("statistics").append(table);
  let last = "";
  return {
    about({ result }) {
      // A result may be known better a moment later, such as by the expert's score.
      if (!result || `${result.track} ${result.time_s}` === last) return;
      last = `${result.track} ${result.time_s}`;
      const time = known(result.time_s) ? `${result.time_s.toFixed(1)} s` : "–";
      const row = body.insertRow(0);
      for (const text of [`${result.track}`, result.ending, percent(result.progress), fixed(result.episode_return, 1), time]) row.insertCell().textContent = text;
      table.hidden = false;
    },
  };
}
