// The steering wheel as the policy holds it; a diamond at the rim shows where the expert would hold it.

import { Surface } from "./canvas.js";
import { colours } from "./theme.js";

const FULL_LOCK = (Math.PI / 180) * 100;

export class Wheel {
  constructor(canvas) {
    this.surface = new Surface(canvas, (c, w, h) => this.draw(c, w, h));
    this.steering = NaN;
    this.expert = NaN;
    this.policy = NaN;
    this.person = false;
  }

  // policy: where it would hold the wheel while a person does.
  set(steering, expert, policy = NaN, person = false) {
    if ([steering, expert, policy, person].every((v, i) => Object.is(v, [this.steering, this.expert, this.policy, this.person][i]))) return;
    Object.assign(this, { steering, expert, policy, person });
    this.surface.touch();
  }

  draw(c, width, height) {
    const r = Math.min(width, height) / 2;
    const rim = r * 0.8;
    c.save();
    c.translate(width / 2, height / 2);
    c.lineCap = "round";
    // The arc from straight ahead to where the policy steers.
    const angle = (Number.isFinite(this.steering) ? this.steering : 0) * FULL_LOCK;
    c.lineWidth = r * 0.07;
    c.strokeStyle = colours.line;
    c.beginPath();
    c.arc(0, 0, r * 0.95, -Math.PI / 2 - FULL_LOCK, -Math.PI / 2 + FULL_LOCK);
    c.stroke();
    const held = this.person ? colours.person : colours.policy;
    if (angle) {
      c.strokeStyle = held;
      c.beginPath();
      c.arc(0, 0, r * 0.95, -Math.PI / 2 + Math.min(0, angle), -Math.PI / 2 + Math.max(0, angle));
      c.stroke();
    }
    c.save();
    c.rotate(angle);
    c.strokeStyle = colours.ink;
    c.lineWidth = r * 0.13;
    c.beginPath();
    c.arc(0, 0, rim, 0, 2 * Math.PI);
    c.stroke();
    c.lineWidth = r * 0.11;
    for (const spoke of [Math.PI, 0, Math.PI / 2]) {
      c.beginPath();
      c.moveTo(0.12 * r * Math.cos(spoke), 0.12 * r * Math.sin(spoke));
      c.lineTo(rim * Math.cos(spoke), rim * Math.sin(spoke));
      c.stroke();
    }
    c.fillStyle = colours.ink;
    c.beginPath();
    c.arc(0, 0, r * 0.2, 0, 2 * Math.PI);
    c.fill();
    c.strokeStyle = held;
    c.lineCap = "butt";
    c.lineWidth = r * 0.135;
    c.beginPath();
    c.arc(0, 0, rim, -Math.PI / 2 - 0.13, -Math.PI / 2 + 0.13);
    c.stroke();
    c.restore();
    if (Number.isFinite(this.policy)) {
      c.fillStyle = colours.policy;
      c.strokeStyle = colours.card;
      c.lineWidth = r * 0.03;
      c.beginPath();
      c.arc(r * 0.93 * Math.sin(this.policy * FULL_LOCK), -r * 0.93 * Math.cos(this.policy * FULL_LOCK), r * 0.085, 0, 2 * Math.PI);
      c.fill();
      c.stroke();
    }
    if (Number.isFinite(this.expert)) {
      c.rotate(this.expert * FULL_LOCK);
      c.translate(0, -r * 0.93);
      c.rotate(Math.PI / 4);
      c.fillStyle = colours.expert;
      c.strokeStyle = colours.card;
      c.lineWidth = r * 0.03;
      const s = r * 0.15;
      c.fillRect(-s / 2, -s / 2, s, s);
      c.strokeRect(-s / 2, -s / 2, s, s);
    }
    c.restore();
  }
}
