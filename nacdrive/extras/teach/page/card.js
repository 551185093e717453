// Teaching, as a card of the page: begin, what was learnt so far, undo, keep or drop.

import { addStyle } from "/js/cards.js";
import { button, put } from "/js/dom.js";

const BUTTONS = { begin: "Teach", undo: "Undo round", keep: "Keep", drop: "Drop", now: "Take over now" };

/** @returns {import("/js/cards.js").Card} */
export function card(page) {
  addStyle("cards/teach/teach.css");
  const section = document.createElement("section");
  section.className = "card teach";
  section.setAttribute("aria-label", "Teaching");
  section.hidden = true;
  const words = document.createElement("div");
  const text = document.createElement("p");
  text.setAttribute("role", "status");
  const news = document.createElement("p");
  news.className = "news";
  const bar = document.createElement("progress");
  bar.setAttribute("aria-label", "This round");
  words.append(text, news, bar);
  const buttons = Object.entries(BUTTONS).map(([wish, label]) => ({ wish, element: button(label, () => page.send({ teach: wish })) }));
  bar.hidden = true;
  for (const { element } of buttons) element.hidden = true;
  section.append(words, ...buttons.map(({ element }) => element));
  document.querySelector(".bars")?.prepend(section);
  return {
    describe(about) {
      section.hidden = !about;
    },
    about({ teach }) {
      if (!teach) return;
      put(text, teach.text);
      put(news, teach.news && !teach.text.includes(teach.news) ? teach.news : "");
      bar.hidden = teach.share === null;
      bar.value = teach.share ?? 0;
      for (const { wish, element } of buttons) element.hidden = wish === "begin" ? teach.begun : !teach.can[wish];
    },
  };
}
