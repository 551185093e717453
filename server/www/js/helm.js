// The bar for a person: pause, start over, take the wheel with keys or fingers, hand back. Only where the drive allows it.

import { put } from "./does_view.js";

const ARROWS = { ArrowLeft: "left", ArrowRight: "right", ArrowUp: "up", ArrowDown: "down" };
const GLYPHS = { left: "◀", right: "▶", up: "▲", down: "▼" };
const NAMES = { left: "Steer left", right: "Steer right", up: "Accelerate", down: "Brake" };
// Said so often while at the wheel: the server lets go of it after half a second of silence.
const HEARTBEAT_MS = 100;
const RETRY_MS = 1000;

function button(text, key, act) {
  const element = document.createElement("button");
  element.type = "button";
  const label = document.createElement("span");
  label.textContent = text;
  element.append(label);
  if (key) {
    const hint = document.createElement("kbd");
    hint.textContent = key;
    element.append(hint);
  }
  element.addEventListener("click", act);
  return element;
}

export class Helm {
  // onState() is called when something has changed that the page shows elsewhere too.
  constructor(root, onState) {
    this.root = root;
    this.onState = onState;
    this.state = { paused: false, person: null, needs_person: false };
    this.me = null;
    // From the wish for the wheel on, for the answer may take a moment.
    this.wanted = false;
    this.held = new Set();
    this.pause = button("Pause", "space", () => this.order(this.state.paused ? "resume" : "pause"));
    this.reset = button("Start over", "", () => this.order("reset"));
    this.take = button("Take the wheel", "W", () => this.order(this.mine ? "back" : "take"));
    this.take.className = "take";
    this.say = document.createElement("span");
    this.say.className = "say";
    this.say.setAttribute("role", "status");
    this.pad = this.makePad();
    root.append(this.take, this.pause, this.reset, this.say, this.pad);
    document.addEventListener("keydown", (press) => this.key(press), true);
    document.addEventListener("keyup", (press) => this.lift(ARROWS[press.key]), true);
    addEventListener("blur", () => this.release());
    // Nobody steers by a page that is not seen.
    document.addEventListener("visibilitychange", () => document.hidden && this.mine && this.order("back"));
    setInterval(() => this.wanted && this.beat(), HEARTBEAT_MS);
    this.show(this.state);
  }

  get mine() {
    return this.me !== null && this.state.person === this.me;
  }

  allow(on) {
    this.root.hidden = !on;
    if (on && !this.socket) this.connect();
  }

  connect() {
    const socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/control`);
    this.socket = socket;
    socket.onmessage = ({ data }) => {
      this.me = JSON.parse(data).you;
      this.show(this.state);
    };
    socket.onclose = () => {
      this.socket = null;
      this.me = null;
      this.release();
      this.show(this.state);
      setTimeout(() => !this.root.hidden && !this.socket && this.connect(), RETRY_MS);
    };
  }

  tell(message) {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(message));
  }

  order(what) {
    this.tell({ do: what });
    if (what === "take") this.wanted = true;
    if (what === "back") this.wanted = false;
  }

  beat() {
    this.tell({ keys: [...this.held] });
  }

  show(state) {
    const had = this.mine;
    this.state = state;
    const { mine } = this;
    if (!mine) this.held.clear();
    if ((had && !mine) || (!mine && state.person !== null)) this.wanted = false;
    this.root.dataset.mine = mine ? "yes" : "no";
    put(this.pause.firstChild, state.paused ? "Resume" : "Pause");
    put(this.take.firstChild, mine ? "Hand back" : "Take the wheel");
    if (this.take.lastChild !== this.take.firstChild) put(this.take.lastChild, mine ? "esc" : "W");
    this.take.disabled = this.me === null || (!mine && state.person !== null);
    this.pause.disabled = this.reset.disabled = this.me === null;
    this.pad.hidden = !mine;
    put(this.say, this.sentence());
    this.paintPad();
    this.onState();
  }

  sentence() {
    const { state } = this;
    if (this.me === null) return "connecting the controls …";
    if (this.mine) return "You drive: arrow keys or the buttons. What you do is recorded.";
    if (state.person !== null) return "Another person has the wheel.";
    return state.needs_person ? "Nobody is at the wheel; the car waits for you." : "The policy drives.";
  }

  key(press) {
    if (this.root.hidden || press.ctrlKey || press.metaKey || press.altKey) return;
    if (/^(INPUT|SELECT|TEXTAREA)$/.test(press.target.tagName) && press.target.type !== "checkbox") return;
    const arrow = ARROWS[press.key];
    if (arrow && !this.mine) return;
    const act = arrow ? () => this.press(arrow) : {
      " ": press.target.tagName === "BUTTON" || press.target.type === "checkbox" ? null : () => this.pause.click(),
      w: () => !this.mine && this.take.click(),
      Escape: this.mine ? () => this.take.click() : null,
    }[press.key];
    if (!act) return;
    press.preventDefault();
    press.stopPropagation();
    if (!press.repeat) act();
  }

  press(key) {
    if (!this.mine || this.held.has(key)) return;
    this.held.add(key);
    this.beat();
    this.paintPad();
  }

  lift(key) {
    if (!this.held.delete(key)) return;
    this.beat();
    this.paintPad();
  }

  release() {
    if (!this.held.size) return;
    this.held.clear();
    this.beat();
    this.paintPad();
  }

  makePad() {
    const pad = document.createElement("span");
    pad.className = "pad";
    pad.hidden = true;
    this.keys = Object.fromEntries(Object.keys(GLYPHS).map((key) => {
      const element = button(GLYPHS[key], "", () => {});
      element.setAttribute("aria-label", NAMES[key]);
      element.addEventListener("pointerdown", (touch) => {
        touch.preventDefault();
        element.setPointerCapture(touch.pointerId);
        this.press(key);
      });
      for (const end of ["pointerup", "pointercancel", "lostpointercapture"]) element.addEventListener(end, () => this.lift(key));
      element.addEventListener("contextmenu", (menu) => menu.preventDefault());
      return [key, element];
    }));
    pad.append(this.keys.left, this.keys.right, this.keys.down, this.keys.up);
    return pad;
  }

  paintPad() {
    for (const [key, element] of Object.entries(this.keys)) element.setAttribute("aria-pressed", String(this.held.has(key)));
  }
}
