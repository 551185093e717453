// What came of a track: the ranking, and what all tracks so far say together; as a link too.

import { button, fixed, known, percent, put } from "/js/dom.js";
import { badge } from "/js/lane_cards.js";
import { fromAddress, toAddress } from "/js/moment_link.js";

const MOST_LINKED = 6;

// A result in an address: nac_steady,17.48,100;person,20.00,87 (seconds, percent of the road), best first.
const encode = (entries) => entries.map((one) => [encodeURIComponent(one.name), one.time_s.toFixed(2), (one.progress * 100).toFixed(0)].join()).join(";");

// The result that the address names: of this race or of one that somebody else drove; null without a whole one.
export function linkedResult() {
  const { given, episode, t_s } = fromAddress();
  const seed = Number(given.get("seed"));
  const entries = (given.get("result") ?? "").split(";").slice(0, MOST_LINKED).map((text) => {
    const [name, time, share] = text.split(",");
    return { name: decoded(name), time_s: Number(time), progress: Number(share) / 100 };
  });
  const whole = entries.every((one) => one.name && Number.isFinite(one.time_s) && Number.isFinite(one.progress));
  return whole && given.has("seed") && Number.isInteger(seed) && episode !== null && t_s !== null ? { seed, entries } : null;
}

function decoded(name) {
  try {
    return decodeURIComponent(name).slice(0, 80);
  } catch {
    return "";
  }
}

export class RankingCard {
  constructor(card, note, body) {
    this.card = card;
    this.note = note;
    this.body = body;
    /** @type {any} */
    this.shown = undefined;
  }

  // result: {seed, ranking, totals, following}; null while a track is driven: until its first one has come to an end, what
  // the address says came of a race stands there.
  show(result, names, episode = 0) {
    if (result === this.shown) return;
    const before = this.shown;
    this.shown = result;
    const linked = !result && before === undefined ? linkedResult() : null;
    this.card.hidden = !result && !linked;
    if (linked) {
      put(this.note, `of a link: track ${linked.seed}`);
      this.body.replaceChildren(table(["who", "time", "of the road"], linked.entries.map((one) => [one.name, `${fixed(one.time_s, 2)} s`, percent(one.progress)])));
    }
    if (!result) return;
    put(this.note, `track ${result.seed}`);
    const parts = [this.ranking(result.ranking, names), this.link(result, episode)];
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

  // Whoever opens it on the page of an arena sees the same result.
  link({ seed, ranking }, episode) {
    const row = document.createElement("p");
    const copy = button("Copy link", async () => {
      const hash = toAddress({ episode, t_s: Math.max(...ranking.map((one) => one.time_s)), more: { seed: String(seed), result: encode(ranking) } });
      history.replaceState(null, "", `${location.pathname}${location.search}${hash}`);
      try {
        await navigator.clipboard.writeText(location.href);
        put(copy, "Copied");
      } catch {
        put(copy, "It stands in the address bar");
      }
    });
    row.append(copy);
    return row;
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
  Object.assign(scroll, { className: "scroll", tabIndex: 0 });
  scroll.append(made);
  return scroll;
}
