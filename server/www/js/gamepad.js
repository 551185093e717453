// A gamepad at the wheel: read many times a second while its person drives. Steering is the left stick, the pedals are the
// triggers, Start takes the wheel and hands it back.

const READ_MS = 33;
// A stick that nobody touches does not stand quite in the middle.
const DEAD = 0.1;
const [BRAKE, THROTTLE, START] = [6, 7, 9];

export class Gamepad {
  // acts: mine() whether this browser drives, toggle() takes the wheel or hands it back, steer(axes): [steering, pedal],
  // -1 .. 1, or null where there is nothing to read; changed(): a pad has come or gone.
  constructor(acts) {
    this.acts = acts;
    this.timer = null;
    this.started = false;
    this.connected = false;
    for (const event of ["gamepadconnected", "gamepaddisconnected"]) addEventListener(event, () => this.look());
  }

  // The first pad whose buttons are where every driver expects them.
  get pad() {
    return [...navigator.getGamepads()].find((pad) => pad?.connected && pad.mapping === "standard") ?? null;
  }

  look() {
    const there = this.pad !== null;
    if (there === this.connected) return;
    this.connected = there;
    clearInterval(this.timer);
    this.timer = there ? setInterval(() => this.read(), READ_MS) : null;
    if (!there) this.acts.steer(null);
    this.acts.changed();
  }

  read() {
    const { pad } = this;
    if (!pad) return this.look();
    // Nobody steers by a page that is not looked at.
    if (document.hidden || !document.hasFocus()) return this.acts.steer(null);
    const start = Boolean(pad.buttons[START]?.pressed);
    if (start && !this.started) this.acts.toggle();
    this.started = start;
    if (!this.acts.mine()) return;
    this.acts.steer([beyond(pad.axes[0]), beyond(pad.buttons[THROTTLE]?.value) - beyond(pad.buttons[BRAKE]?.value)]);
  }
}

// 0 within the dead zone, from its edge on 0 .. 1, with the sign; what is no number is nothing.
function beyond(value) {
  const size = Math.min(1, Math.abs(Number.isFinite(value) ? value : 0));
  return size <= DEAD ? 0 : Math.sign(value) * Math.round(((size - DEAD) / (1 - DEAD)) * 100) / 100;
}
