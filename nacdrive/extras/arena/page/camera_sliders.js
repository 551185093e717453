// What is wrong with everybody's camera: sliders where control is allowed, the same as text where not.

import { button, put } from "/js/dom.js";

// A slider that is dragged says so no more often than this.
const REST_MS = 100;
const SLIDERS = [
  { name: "brightness", label: "brightness", min: 0.1, max: 3, step: 0.05, usual: 1, text: (v) => `× ${v.toFixed(2)}` },
  { name: "noise", label: "noise", min: 0, max: 0.5, step: 0.01, usual: 0, text: (v) => `${(v * 100).toFixed(0)} % of full` },
  { name: "blackout", label: "blackout", min: 0, max: 1, step: 0.05, usual: 0, text: (v) => `${(v * 100).toFixed(0)} % black` },
  { name: "delay_steps", label: "delay", min: 0, max: 12, step: 1, usual: 0, text: (v) => (v ? `${v} decision${v === 1 ? "" : "s"}` : "none") },
];

export class CameraSliders {
  // send(settings) is called with what a person has moved.
  constructor(root, note, send, allowed) {
    this.note = note;
    this.send = send;
    this.allowed = allowed;
    this.sent = -Infinity;
    this.waiting = {};
    this.late = null;
    this.rows = SLIDERS.map((slider) => this.row(slider));
    const usual = button("True camera", () => this.wish(Object.fromEntries(SLIDERS.map(({ name, usual: v }) => [name, v])), true));
    usual.disabled = !allowed;
    root.replaceChildren(...this.rows.map(({ root: row }) => row), usual);
    this.show({}, 0);
  }

  row(slider) {
    const root = document.createElement("label");
    root.className = "slider";
    const input = Object.assign(document.createElement("input"), { type: "range", min: slider.min, max: slider.max, step: slider.step, value: slider.usual });
    input.disabled = !this.allowed;
    const output = document.createElement("output");
    root.append(Object.assign(document.createElement("span"), { textContent: slider.label }), input, output);
    const row = { ...slider, root, input, output, mine: false };
    input.addEventListener("input", () => {
      row.mine = true;
      put(output, slider.text(Number(input.value)));
      this.wish({ [slider.name]: Number(input.value) });
    });
    // Keys drag without an end: what was sent last holds anyway.
    for (const end of ["change", "blur", "pointerup"]) input.addEventListener(end, () => { row.mine = false; });
    // Who has let go of a slider steers with the arrow keys again.
    input.addEventListener("pointerup", () => input.blur());
    return row;
  }

  wish(settings, now = false) {
    Object.assign(this.waiting, settings);
    clearTimeout(this.late);
    const wait = this.sent + REST_MS - performance.now();
    if (now || wait <= 0) this.flush();
    else this.late = setTimeout(() => this.flush(), wait);
  }

  flush() {
    this.sent = performance.now();
    this.send(this.waiting);
    this.waiting = {};
  }

  // What the arena says holds, from which simulated second on.
  show(camera, since) {
    for (const row of this.rows) {
      const value = camera[row.name] ?? row.usual;
      // Nothing pulls a slider out of the hand that moves it.
      if (!row.mine && Number(row.input.value) !== value) row.input.value = value;
      if (!row.mine) put(row.output, row.text(value));
      row.input.setAttribute("aria-valuetext", row.text(value));
    }
    const worse = this.rows.some((row) => (camera[row.name] ?? row.usual) !== row.usual) || camera.dropped > 0 || camera.late > 0;
    const more = [camera.dropped > 0 ? `${Math.round(camera.dropped * 100)} % of the frames lost` : "", camera.late > 0 ? `up to ${camera.late} decisions late` : ""].filter(Boolean).join(", ");
    const who = this.allowed ? "" : "; moved with --allow-control only";
    put(this.note, `${worse ? `worse since ${since.toFixed(1)} s` : "the true picture"}${more ? `, ${more}` : ""}${who}`);
  }
}
