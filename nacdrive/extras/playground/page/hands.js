// A person at the wheel: arrow keys or WASD, a finger on the view, a gamepad.

import { wantsKey } from "/js/dom.js";
import { Gamepad } from "/js/gamepad.js";

const KEYS = { arrowleft: "left", a: "left", arrowright: "right", d: "right", arrowup: "gas", w: "gas", arrowdown: "brake", s: "brake" };
const [KEY_GAS, KEY_BRAKE] = [0.7, 0.6]; // of a key that is pressed
const TURN_A_SECOND = 5; // of the wheel, by keys
const FINGER_PX = 70; // from the middle to full lock

export class Hands {
  // acts: driving(): whether this person drives now; toggle(): take the wheel or let go.
  /** @param {HTMLCanvasElement} view @param {{driving: () => boolean, toggle: () => void}} acts */
  constructor(view, acts) {
    this.acts = acts;
    /** @type {Set<string>} */
    this.held = new Set();
    /** @type {number[] | null} */
    this.finger = null; // how far the finger is from where it came down: to the right, upwards
    /** @type {number[] | null} */
    this.pad = null;
    this.steering = 0;
    new Gamepad({
      mine: acts.driving,
      toggle: acts.toggle,
      steer: (/** @type {number[] | null} */ axes) => (this.pad = axes),
      changed: () => {},
    });
    this.#bind(view);
  }

  #bind(/** @type {HTMLCanvasElement} */ view) {
    document.addEventListener("keydown", (press) => {
      const act = KEYS[press.key.toLowerCase()];
      if (!act || !this.acts.driving() || press.ctrlKey || press.metaKey || press.altKey || wantsKey(press)) return;
      press.preventDefault();
      this.held.add(act);
    });
    document.addEventListener("keyup", (press) => this.held.delete(KEYS[press.key.toLowerCase()]));
    addEventListener("blur", () => this.held.clear());
    let from = [0, 0];
    view.addEventListener("pointerdown", (event) => {
      if (!this.acts.driving()) return;
      view.setPointerCapture(event.pointerId);
      from = [event.clientX, event.clientY];
      this.finger = [0, 0];
    });
    view.addEventListener("pointermove", (event) => {
      if (this.finger) this.finger = [event.clientX - from[0], from[1] - event.clientY];
    });
    for (const end of ["pointerup", "pointercancel"]) view.addEventListener(end, () => (this.finger = null));
  }

  // What the person wants now; called once a frame of 0.02 s.
  read() {
    const within = (/** @type {number} */ v) => Math.min(1, Math.max(-1, v));
    if (this.finger || this.pad?.some((v) => v !== 0)) {
      const [aside, pedal] = this.finger ? this.finger.map((v) => within(v / FINGER_PX)) : this.pad;
      this.steering = aside;
      return { steering: aside, throttle: KEY_GAS * Math.max(0, pedal), brake: KEY_BRAKE * Math.max(0, -pedal) };
    }
    const wish = Number(this.held.has("right")) - Number(this.held.has("left"));
    const most = TURN_A_SECOND / 50;
    this.steering += within((wish - this.steering) / most) * most;
    return { steering: this.steering, throttle: this.held.has("gas") ? KEY_GAS : 0, brake: this.held.has("brake") ? KEY_BRAKE : 0 };
  }
}
