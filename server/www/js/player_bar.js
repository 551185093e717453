// The bar under the page in a replay: which episode, which one beside it, play, step, seek, speed, export.

import { button, put } from "./dom.js";

const SPEEDS = [0.25, 0.5, 1, 2, 4, 8];

function select(label, act) {
  const element = document.createElement("select");
  element.setAttribute("aria-label", label);
  element.addEventListener("change", () => act(element.value));
  return element;
}

function option(value, text) {
  const element = document.createElement("option");
  element.value = value;
  element.textContent = text;
  return element;
}

export class PlayerBar {
  // acts: toggle(), step(n), seek(t), speed(x), pick(run, episode), compare(run, episode | null), video()
  constructor(root, acts) {
    this.acts = acts;
    this.play = button("▶", acts.toggle, { title: "Play or pause (space)" });
    this.play.className = "main";
    this.slider = document.createElement("input");
    Object.assign(this.slider, { type: "range", min: 0, max: 1, step: "any", value: 0 });
    this.slider.setAttribute("aria-label", "Time in the episode");
    this.slider.addEventListener("input", () => acts.seek(Number(this.slider.value)));
    this.clock = document.createElement("output");
    this.speeds = select("Speed of the replay", (value) => acts.speed(Number(value)));
    this.speeds.append(...SPEEDS.map((s) => option(s, `${s} ×`)));
    this.speeds.value = "1";
    this.episodes = select("Episode", (value) => acts.pick(...value.split("/").map(Number)));
    this.others = select("Episode to compare with", (value) => (value ? acts.compare(...value.split("/").map(Number)) : acts.compare(null)));
    this.video = button("mp4", acts.video, { title: "Save this episode as mp4" });
    this.steps = document.createElement("span");
    this.steps.className = "steps";
    this.steps.append(button("◀|", () => acts.step(-1), { title: "One decision back (comma)" }), this.play, button("|▶", () => acts.step(1), { title: "One decision on (full stop)" }));
    root.append(this.episodes, this.steps, this.slider, this.clock, this.speeds, this.others, this.video);
    root.hidden = false;
  }

  list(runs) {
    const groups = (select) => runs.forEach((run, r) => {
      const group = document.createElement("optgroup");
      group.label = run.name;
      run.episodes.forEach((e, i) => group.append(option(`${r}/${i}`, `track ${e.seed} · ${e.driver} · ${e.episode_return.toFixed(0)}`)));
      select.append(group);
    });
    groups(this.episodes);
    this.others.append(option("", "compare with …"));
    groups(this.others);
  }

  // The episode [run, episode], or none, that is to stand in a list: "episodes" or "others".
  choose(list, which) {
    this[list].value = which ? which.join("/") : "";
  }

  show(head) {
    put(this.play, head.playing ? "❚❚" : "▶");
    this.slider.min = head.start;
    this.slider.max = head.end;
    this.slider.value = head.time;
    this.clock.textContent = `${head.time.toFixed(1)} / ${head.end.toFixed(1)} s`;
    this.slider.setAttribute("aria-valuetext", `${head.time.toFixed(1)} of ${head.end.toFixed(1)} s`);
  }
}
