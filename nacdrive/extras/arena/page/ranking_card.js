// What came of a track: the ranking, and what all tracks so far say together.

import { fixed, known, percent, put } from "/js/dom.js";
import { badge } from "/js/lane_cards.js";

export class RankingCard {
  constructor(card, note, body) {
    this.card = card;
    this.note = note;
    this.body = body;
    this.shown = null;
  }

  // result: {seed, ranking, totals, following}; null while a track is driven.
  show(result, names) {
    if (result === this.shown) return;
    this.shown = result;
    this.card.hidden = !result;
    if (!result) return;
    put(this.note, `track ${result.seed}`);
    const parts = [this.ranking(result.ranking, names)];
    if (result.totals.length) {
      parts.push(Object.assign(document.createElement("h3"), { textContent: `All ${result.totals[0].tracks} tracks so far` }), this.totals(result.totals, names));
    }
    if (result.following) parts.push(Object.assign(document.createElement("p"), { className: "dim", textContent: result.following }));
    this.body.replaceChildren(...parts);
  }

  ranking(entries, names) {
    const counted = entries.some((one) => known(one.interventions));
    const heads = ["rank", "who", "time", "of the road", "return", "off the road", ...(counted ? ["interventions"] : []), { text: "how it ended" }];
    return table(heads, entries.map((one) => [
      `${one.rank}.`, { name: one.name, index: names.indexOf(one.name) }, `${fixed(one.time_s, 2)} s`, percent(one.progress),
      fixed(one.episode_return, 1), `${fixed(one.off_road * 100, 1)} %`, ...(counted ? [fixed(one.interventions, 0)] : []), { text: one.ending },
    ]));
  }

  totals(entries, names) {
    const first = entries[0].name;
    return table(["who", "best on", "laps finished", "mean return", { text: `difference to ${first}, 95 %` }], entries.map((one) => [
      { name: one.name, index: names.indexOf(one.name) }, fixed(one.wins, 0), fixed(one.finished, 0), fixed(one.return.mean, 1), { text: differenceText(one.difference) },
    ]));
  }
}

// A difference in words: one whose interval spans zero is not shown.
function differenceText(difference) {
  if (!difference) return "the others are compared with it";
  const signed = (v) => `${v < 0 ? "−" : "+"}${Math.abs(v).toFixed(1)}`;
  const { value, interval95: interval } = difference;
  if (!interval) return signed(value);
  const [low, high] = interval;
  return `${signed(value)} (${signed(low)} to ${signed(high)})${low <= 0 && high >= 0 ? ": none shown" : ""}`;
}

function table(heads, rows) {
  const made = document.createElement("table");
  const head = made.createTHead().insertRow();
  for (const text of heads) head.append(Object.assign(document.createElement("th"), { textContent: text.text ?? text, className: text.text ? "text" : "", scope: "col" }));
  const body = made.createTBody();
  for (const row of rows) {
    const line = body.insertRow();
    for (const value of row) {
      const cell = line.insertCell();
      if (typeof value === "string") cell.textContent = value;
      else if (value.name !== undefined) {
        cell.append(badge(value.index), value.name);
        Object.assign(cell, { className: "name", title: value.name });
      } else Object.assign(cell, { textContent: value.text, className: "text" });
    }
  }
  const scroll = document.createElement("div");
  scroll.className = "scroll";
  scroll.append(made);
  return scroll;
}
