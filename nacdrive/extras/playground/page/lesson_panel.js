// The lessons in the page: which there are, what the chosen one asks for, and whether it is solved.

import { $, put } from "/js/dom.js";
import { lessonsFor } from "./lessons.js";

export class LessonPanel {
  /** @param {any} network @param {import("./journal.js").Journal} journal */
  constructor(network, journal) {
    this.network = network;
    this.journal = journal;
    this.lessons = lessonsFor(network);
    /** @type {Set<string>} */
    this.solved = new Set();
    this.chosen = this.lessons[0];
    this.buttons = this.lessons.map((lesson, i) => {
      const button = document.createElement("button");
      button.type = "button";
      put(button, `${i + 1}`);
      button.title = lesson.title;
      button.addEventListener("click", () => this.choose(lesson));
      return button;
    });
    $("lessons").replaceChildren(...this.buttons);
    this.choose(this.chosen);
  }

  /** @param {import("./lessons.js").Lesson} lesson */
  choose(lesson) {
    this.chosen = lesson;
    put($("lesson-title"), `${this.lessons.indexOf(lesson) + 1}. ${lesson.title}`);
    $("lesson-text").replaceChildren(...lesson.text.map((text) => {
      const paragraph = document.createElement("p");
      put(paragraph, text);
      return paragraph;
    }));
    put($("lesson-task"), lesson.task);
    this.#show();
  }

  // Look whether something new is solved; cheap enough for twice a second.
  look() {
    const before = this.solved.size;
    for (const { id, isSolved } of this.lessons) if (!this.solved.has(id) && isSolved(this.journal, this.network)) this.solved.add(id);
    if (this.solved.size !== before) this.#show();
  }

  #show() {
    const done = this.solved.has(this.chosen.id);
    put($("lesson-state"), done ? "✓ Solved." : "Not yet solved.");
    $("lesson-state").dataset.solved = done ? "yes" : "no";
    $("lesson-next").hidden = !done || this.chosen === this.lessons.at(-1);
    put($("lessons-note"), `${this.solved.size} of ${this.lessons.length} solved`);
    this.buttons.forEach((button, i) => {
      const lesson = this.lessons[i];
      const solved = this.solved.has(lesson.id);
      put(button, solved ? `${i + 1} ✓` : `${i + 1}`);
      button.setAttribute("aria-label", `Lesson ${i + 1}: ${lesson.title}${solved ? ", solved" : ""}`);
      button.setAttribute("aria-pressed", String(lesson === this.chosen));
    });
  }

  next() {
    this.choose(this.lessons[this.lessons.indexOf(this.chosen) + 1]);
  }
}
