// The card of events has three lists: what happened, moments worth a look, and notes of one's own.

import { $, put } from "./dom.js";
import { KINDS, sentence } from "./jump_list.js";

const TABS = ["Events", "Jump to", "Notes"];
const SHOWN = 120;
const LISTING_MS = 1000;

export class JumpPanel {
  // acts: go(entry), notes() -> entries, note(text)
  constructor(dashboard, acts) {
    this.dashboard = dashboard;
    this.acts = acts;
    this.list = document.createElement("div");
    this.list.setAttribute("role", "group");
    this.list.className = "events";
    this.list.id = "jumps";
    this.list.tabIndex = 0;
    this.list.hidden = true;
    this.field = document.createElement("form");
    this.field.className = "note-field";
    this.field.hidden = true;
    const input = document.createElement("input");
    Object.assign(input, { type: "text", maxLength: 200, placeholder: "a note on the moment that is shown" });
    input.setAttribute("aria-label", "A note on the moment that is shown");
    this.field.append(input);
    this.field.addEventListener("submit", (event) => {
      event.preventDefault();
      if (input.value.trim()) acts.note(input.value.trim());
      input.value = "";
      this.show();
    });
    $("events").after(this.list, this.field);
    this.tabs = TABS.map((name, i) => {
      const tab = document.createElement("button");
      tab.type = "button";
      tab.textContent = name;
      tab.addEventListener("click", () => this.pick(i));
      return tab;
    });
    $("log-tabs").replaceChildren(...this.tabs);
    this.shown = "";
    /** @type {WeakMap<object, [string, HTMLDivElement]>} */
    this.items = new WeakMap();
    this.pick(0);
    setInterval(() => this.tab === 1 && this.show(), LISTING_MS);
  }

  pick(tab) {
    this.tab = tab;
    this.tabs.forEach((button, i) => button.setAttribute("aria-pressed", String(i === tab)));
    $("events").hidden = tab !== 0;
    $("log-note").hidden = tab !== 0;
    this.list.hidden = tab === 0;
    this.field.hidden = tab !== 2;
    this.list.setAttribute("aria-label", TABS[tab]);
    put($("log-b"), TABS[tab]);
    this.shown = "";
    this.show();
  }

  show() {
    if (this.tab === 0) return;
    const { jumps, decision } = this.dashboard;
    const entries = this.tab === 1 ? jumps.entries : this.acts.notes();
    const key = `${this.tab}/${jumps.version}/${entries.length}`;
    if (key === this.shown) return;
    this.shown = key;
    // An entry that stands there stays the same element, so that the keyboard keeps its place in the list.
    const items = entries.slice(-SHOWN).reverse().map((entry) => this.kept(entry, this.tab === 1 ? sentence(entry, decision.names) : entry.text));
    if (!items.length) items.push(this.empty());
    for (const gone of [...this.list.children]) if (!items.includes(/** @type {HTMLDivElement} */ (gone))) gone.remove();
    items.forEach((item, i) => {
      if (this.list.children[i] !== item) this.list.insertBefore(item, this.list.children[i] ?? null);
    });
  }

  kept(entry, text) {
    const [, item] = this.items.get(entry) ?? [];
    if (item?.lastChild.textContent === text) return item;
    const made = this.item(entry, text);
    this.items.set(entry, [text, made]);
    return made;
  }

  item(entry, text) {
    const item = document.createElement("div");
    item.tabIndex = 0;
    item.setAttribute("role", "button");
    item.dataset.weight = entry.kind === "off the road" || entry.kind === "late" ? "alert" : "plain";
    item.append(...[`${entry.t_s.toFixed(1)} s`, `ep. ${entry.episode + 1}`, text].map((part) => Object.assign(document.createElement("span"), { textContent: part })));
    item.addEventListener("click", () => this.acts.go(entry));
    item.addEventListener("keydown", (press) => {
      if (press.key !== "Enter" && press.key !== " ") return;
      press.preventDefault();
      press.stopPropagation();
      this.acts.go(entry);
    });
    return item;
  }

  empty() {
    const item = document.createElement("div");
    const none = document.createElement("span");
    none.className = "dim";
    none.style.gridColumn = "1 / -1";
    none.textContent = this.tab === 1 ? `Nothing yet: ${KINDS.join(", ")} will stand here.` : "No notes yet.";
    item.append(none);
    return item;
  }
}
