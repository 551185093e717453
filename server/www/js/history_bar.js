// The bar of a live drive: hold a moment, go back and forth in the last minutes, return to what happens now.

import { $, button, onKeys, put } from "./dom.js";

export class HistoryBar {
  // acts: hold(t), step(n), live()
  constructor(root, acts) {
    this.root = root;
    this.acts = acts;
    // Time of the moment that is held, null while the page is live; edge: right end of the charts meanwhile.
    this.held = null;
    this.edge = NaN;
    this.newest = NaN;
    this.toggle = button("Hold", () => (this.held === null ? acts.hold(this.newest) : acts.live()), { key: "H" });
    this.toggle.className = "hold";
    this.slider = document.createElement("input");
    Object.assign(this.slider, { type: "range", min: 0, max: 1, step: "any", value: 1 });
    this.slider.setAttribute("aria-label", "Moment of the drive");
    this.slider.addEventListener("input", () => acts.hold(Number(this.slider.value)));
    this.clock = document.createElement("output");
    this.note = document.createElement("span");
    this.note.id = "history-note";
    this.note.className = "dim";
    root.append(
      this.toggle,
      button("◀|", () => acts.step(-1), { title: "One decision back (comma)" }),
      button("|▶", () => acts.step(1), { title: "One decision on (full stop)" }),
      this.slider,
      this.clock,
      this.note,
    );
    const shown = (act) => () => root.hidden || act();
    onKeys({ h: shown(() => this.toggle.click()), ",": shown(() => acts.step(-1)), ".": shown(() => acts.step(1)) });
  }

  reveal() {
    this.root.hidden = false;
  }

  show(history, newest) {
    if (newest === null) {
      this.root.hidden = true;
      this.held = null;
      return;
    }
    this.newest = newest;
    const held = this.held !== null;
    this.slider.min = history.moments[0]?.clock_s ?? newest;
    this.slider.max = newest;
    this.slider.value = held ? this.held : newest;
    this.root.dataset.held = held ? "yes" : "no";
    $("dashboard").dataset.held = held ? "yes" : "no";
    put(this.toggle.firstChild, held ? "Back to live" : "Hold");
    put(this.clock, held ? `${(newest - this.held).toFixed(1)} s ago` : "now");
    this.slider.setAttribute("aria-valuetext", this.clock.textContent);
  }
}
