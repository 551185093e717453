// The bar for a person: pause, start over, take the wheel with keys, fingers or a gamepad, hand back. Only where the drive allows it.

import { button, dialogOpen, keyOf, put, wantsKey } from "./dom.js";
import { Gamepad } from "./gamepad.js";

const ARROWS = { ArrowLeft: "left", ArrowRight: "right", ArrowUp: "up", ArrowDown: "down" };
const GLYPHS = { left: "◀", right: "▶", up: "▲", down: "▼" };
const NAMES = { left: "Steer left", right: "Steer right", up: "Accelerate", down: "Brake" };
// The keys are sent so often while a person drives: after half a second of silence the server hands back.
const HEARTBEAT_MS = 100;
const RETRY_MS = 1000;
const NOBODY = { paused: false, person: null, needs_person: false };

export class ControlBar {
  // onState() is called when something has changed that the page shows elsewhere too. driving: what the bar says while
  // nobody has the wheel.
  constructor(root, onState, driving = "The policy drives.") {
    this.root = root;
    this.onState = onState;
    this.wheel = true;
    this.driving = driving;
    this.state = NOBODY;
    this.me = null;
    // From the wish for the wheel on, for the answer may take a moment.
    this.wanted = false;
    this.held = new Set();
    // Steering and pedal of a gamepad; null without one.
    this.axes = null;
    this.pause = button("Pause", () => this.command(this.state.paused ? "resume" : "pause"), { key: "space" });
    this.reset = button("Start over", () => this.command("reset"));
    this.take = button("Take the wheel", () => this.command(this.mine ? "back" : "take"), { key: "W" });
    this.take.className = "take";
    this.sentenceLine = document.createElement("span");
    this.sentenceLine.className = "say";
    this.sentenceLine.setAttribute("role", "status");
    this.pad = this.makePad();
    root.append(this.take, this.pause, this.reset, this.sentenceLine, this.pad);
    // Pressed by a pointer (detail counts its clicks), a button keeps no key: space is the pause then.
    for (const element of [this.take, this.pause, this.reset]) element.addEventListener("click", (press) => press.detail && element.blur());
    document.addEventListener("keydown", (press) => this.key(press), true);
    document.addEventListener("keyup", (press) => this.keyUp(ARROWS[press.key]), true);
    addEventListener("blur", () => this.releaseKeys());
    // Nobody steers by a page that is not seen.
    document.addEventListener("visibilitychange", () => document.hidden && this.mine && this.command("back"));
    this.gamepad = new Gamepad({
      mine: () => this.mine,
      toggle: () => !this.root.hidden && this.take.click(),
      steer: (axes) => this.steer(axes),
      changed: () => this.show(this.state),
    });
    setInterval(() => this.wanted && this.sendKeys(), HEARTBEAT_MS);
    this.show(this.state);
  }

  get mine() {
    return this.me !== null && this.state.person === this.me;
  }

  // A drive begins, in which people may have control or not, and take the wheel or not: nothing of the one before holds.
  allow(on, wheel = true) {
    this.root.hidden = !on;
    this.wheel = wheel;
    this.take.hidden = !wheel;
    this.show(NOBODY);
    if (on && !this.socket) this.connect();
  }

  connect() {
    const socket = new WebSocket(new URL("control", document.baseURI.replace("http", "ws")));
    this.socket = socket;
    socket.onmessage = ({ data }) => {
      this.me = JSON.parse(data).you;
      this.show(this.state);
    };
    socket.onclose = () => {
      this.socket = null;
      this.me = null;
      this.releaseKeys();
      this.show(this.state);
      setTimeout(() => !this.root.hidden && !this.socket && this.connect(), RETRY_MS);
    };
  }

  send(message) {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(message));
  }

  command(what) {
    this.send({ do: what });
    if (what === "take") this.wanted = true;
    if (what === "back") this.wanted = false;
  }

  sendKeys() {
    this.send({ keys: [...this.held], ...(this.axes && !this.held.size ? { axes: this.axes } : {}) });
  }

  // What the gamepad says; told at once when it has changed.
  steer(axes) {
    if (String(axes) === String(this.axes)) return;
    this.axes = axes;
    if (this.mine) this.sendKeys();
  }

  show(state) {
    const had = this.mine;
    this.state = state;
    const { mine } = this;
    if (!mine) {
      this.held.clear();
      this.axes = null;
    }
    // The arrow keys are the car's now, and not those of a slider that was moved last.
    if (mine && !had && document.activeElement instanceof HTMLInputElement) document.activeElement.blur();
    if ((had && !mine) || (!mine && state.person !== null)) this.wanted = false;
    this.root.dataset.mine = mine ? "yes" : "no";
    put(this.pause.firstChild, state.paused ? "Resume" : "Pause");
    put(this.take.firstChild, mine ? "Hand back" : "Take the wheel");
    if (this.take.lastChild !== this.take.firstChild) put(this.take.lastChild, mine ? "esc" : "W");
    this.take.disabled = !this.wheel || this.me === null || (!mine && state.person !== null);
    // Who does not drive leaves the one who does alone.
    this.pause.disabled = this.reset.disabled = this.me === null || (!mine && state.person !== null);
    this.pad.hidden = !mine;
    put(this.sentenceLine, this.sentence());
    this.paintPad();
    this.onState();
  }

  sentence() {
    const { state } = this;
    if (this.me === null) return "connecting the controls …";
    const pad = this.wheel && this.gamepad?.connected;
    if (this.mine) return `You drive: ${pad ? "stick and triggers, " : ""}arrow keys or the buttons. What you do is recorded.`;
    if (state.person !== null) return "Another person drives.";
    const how = pad ? " A gamepad is there: Start takes the wheel." : "";
    return `${state.needs_person ? "Nobody drives; the car waits for you." : this.driving}${how}`;
  }

  key(press) {
    if (this.root.hidden || press.ctrlKey || press.metaKey || press.altKey || wantsKey(press)) return;
    const arrow = ARROWS[press.key];
    // Who drives goes on steering behind a dialog; all other keys are the dialog's then.
    if (arrow ? !this.mine : dialogOpen()) return;
    const act = arrow ? () => this.keyDown(arrow) : {
      " ": () => this.pause.click(),
      w: () => !this.mine && this.take.click(),
      Escape: this.mine ? () => this.take.click() : null,
    }[keyOf(press)];
    if (!act) return;
    press.preventDefault();
    press.stopPropagation();
    // A key that was held before the wheel was one's own counts from its next repetition on.
    if (!press.repeat || arrow) act();
  }

  keyDown(key) {
    if (!this.mine || this.held.has(key)) return;
    this.held.add(key);
    this.sendKeys();
    this.paintPad();
  }

  keyUp(key) {
    if (!this.held.delete(key)) return;
    this.sendKeys();
    this.paintPad();
  }

  releaseKeys() {
    if (!this.held.size) return;
    this.held.clear();
    this.sendKeys();
    this.paintPad();
  }

  makePad() {
    const pad = document.createElement("span");
    pad.className = "pad";
    pad.hidden = true;
    this.keys = Object.fromEntries(Object.keys(GLYPHS).map((key) => {
      const element = button(GLYPHS[key], () => {}, { name: NAMES[key] });
      element.addEventListener("pointerdown", (touch) => {
        touch.preventDefault();
        element.setPointerCapture(touch.pointerId);
        this.keyDown(key);
      });
      for (const end of ["pointerup", "pointercancel", "lostpointercapture"]) element.addEventListener(end, () => this.keyUp(key));
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
