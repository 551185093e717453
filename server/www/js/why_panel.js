// Why, on any page: the measured sentence, and a bar for what muting each part alone changes.

import { put } from "./dom.js";

// The longest bar stands for no less than this change of the wheel.
const LEAST_REACH = 0.1;

const piece = (tag, className) => Object.assign(document.createElement(tag), { className });

export class WhyPanel {
  /**
   * @param {HTMLElement} root
   * @param {((bar: any) => void) | null} press for pages on which a part can be muted for good: its name is a button
   */
  constructor(root, press = null) {
    this.root = root;
    this.press = press;
    this.before = piece("p", "reason-before");
    this.sentence = piece("p", "reason");
    this.list = piece("ol", "parts");
    this.list.setAttribute("aria-label", "What muting each part alone changes, the most first");
    this.missing = piece("p", "dim small");
    this.rows = [];
    root.append(this.before, this.sentence, this.list, this.missing);
    this.note("");
  }

  // A sentence in place of all.
  note(text) {
    this.why = null;
    put(this.sentence, text);
    put(this.before, "");
    put(this.missing, "");
    this.list.replaceChildren();
    this.rows = [];
  }

  /**
   * @param {import("./effects.js").Why} why
   * @param {import("./effects.js").Why | null} before without the edits, where something is edited
   */
  show(why, before = null) {
    this.why = why;
    this.root.classList.toggle("edited", Boolean(before));
    put(this.before, before ? `As it is: ${before.sentence}` : "");
    put(this.sentence, before ? `Changed: ${why.sentence}` : why.sentence);
    put(this.missing, why.missing);
    while (this.rows.length < why.bars.length) this.rows.push(this.row());
    this.rows.splice(why.bars.length).forEach(({ root }) => root.remove());
    const degrees = !why.bars[0]?.text.endsWith("%");
    this.list.classList.toggle("degrees", degrees);
    const reach = degrees ? Math.max(LEAST_REACH, ...why.bars.map(({ change }) => change)) : 1;
    why.bars.forEach((bar, i) => {
      const row = this.rows[i];
      row.root.dataset.decides = bar.decides ? "yes" : "no";
      put(row.name, bar.name);
      row.bar = bar;
      row.name.disabled = bar.kind === "time";
      put(row.output, bar.text);
      row.fill.style.transform = `scaleX(${bar.change / reach})`;
      const was = before?.bars.find(({ kind, index }) => kind === bar.kind && index === bar.index);
      row.was.hidden = !was;
      if (was) row.was.style.left = `${Math.min(100, (100 * was.change) / reach)}%`;
    });
  }

  row() {
    const root = document.createElement("li");
    const name = /** @type {any} */ (document.createElement(this.press ? "button" : "span"));
    const track = piece("div", "track");
    const fill = piece("i", "fill");
    const was = piece("i", "was");
    track.append(fill, was);
    const output = document.createElement("output");
    root.append(name, track, output);
    this.list.append(root);
    const row = { root, name, fill, was, output, bar: null };
    if (this.press) Object.assign(name, { type: "button", onclick: () => this.press(row.bar) });
    return row;
  }
}
