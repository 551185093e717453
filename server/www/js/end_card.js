// What came of an episode, over the picture until the next one begins.

import { fixed, known, percent } from "./dom.js";

export class EndCard {
  constructor(root) {
    this.root = root;
    this.hide();
  }

  get hidden() {
    return this.root.hidden;
  }

  hide() {
    this.root.hidden = true;
  }

  // result: the fields of DriveResult; null where there is none. In a replay with a policy that looks on: ``driver``, who
  // drove, and ``policy``, whose decisions are compared with the expert's.
  show(result) {
    this.root.hidden = !result;
    if (!result) return;
    const numbers = [
      [result.driver ? `return of ${result.driver}` : "return", fixed(result.episode_return, 1), known(result.expert_return) ? `the expert here: ${result.expert_return.toFixed(1)}` : ""],
      ["of the road", percent(result.progress), ""],
      ["time", known(result.time_s) ? `${result.time_s.toFixed(1)} s` : "–", ""],
      [`${result.policy ? `${result.policy} ` : ""}as the expert`, percent(result.expert_agreement), "of the decisions"],
    ].filter(([, value]) => value !== "–");
    const heading = document.createElement("p");
    heading.className = "ending";
    heading.textContent = `Track ${result.track}: ${result.ending}`;
    const list = document.createElement("dl");
    for (const [name, value, more] of numbers) {
      const cell = document.createElement("div");
      cell.append(Object.assign(document.createElement("dt"), { textContent: name }), Object.assign(document.createElement("dd"), { textContent: value }));
      if (more) cell.append(Object.assign(document.createElement("dd"), { className: "more", textContent: more }));
      list.append(cell);
    }
    const next = document.createElement("p");
    next.className = "dim";
    next.textContent = result.following ?? "";
    this.root.replaceChildren(heading, list, next);
  }
}
