// The car of CarRacing: steering, engine, brakes and tyres, around the bodies and joints of rigid_car.js.

import { RigidCar, UNIT, WHEEL_RADIUS } from "./rigid_car.js";

const FRAME_S = 1 / 50;
const POWER = 100000000 * UNIT * UNIT;
const WHEEL_INERTIA = 4000 * UNIT * UNIT;
const ROAD_FRICTION = 1000000 * UNIT * UNIT;
const GRASS_FRICTION = ROAD_FRICTION * 0.6;
const STIFFNESS = 205000 * UNIT * UNIT;
const BRAKE_FORCE = 15; // radians per second
export const WHEELS = [1, 2, 3, 4];

export class Car {
  /** @param {number} x @param {number} y @param {number} angle */
  constructor(x, y, angle) {
    this.rigid = new RigidCar(x, y, angle);
    this.steering = 0; // the wish: radians of the front wheels, left is positive
    this.gas = 0;
    this.brake = 0;
    this.omega = new Float64Array(5); // of the wheels, radians per second; by the numbers of the bodies
    this.phase = new Float64Array(5);
  }

  // What the driver wants of the next frames.
  /** @param {number} steering right is positive @param {number} gas @param {number} brake */
  control(steering, gas, brake) {
    this.steering = -steering;
    // The throttle opens slowly and closes at once.
    this.gas += Math.min(Math.min(Math.max(gas, 0), 1) - this.gas, 0.1);
    this.brake = brake;
  }

  // One frame of 0.02 s. onRoad: of each wheel, by its number, whether it touches a tile.
  /** @param {boolean[]} onRoad @param {number} wind a force from the side on each wheel */
  step(onRoad, wind = 0) {
    const { rigid } = this;
    for (const i of WHEELS) {
      const front = i <= 2;
      const error = (front ? this.steering : 0) - rigid.jointAngle(i);
      rigid.motorSpeed[i] = Math.sign(error) * Math.min(50 * Math.abs(error), 3);
      const [sideX, sideY] = [rigid.cos[i], rigid.sin[i]];
      const [aheadX, aheadY] = [-sideY, sideX];
      const forward = aheadX * rigid.vx[i] + aheadY * rigid.vy[i];
      const sideways = sideX * rigid.vx[i] + sideY * rigid.vy[i];
      const omega = this.#turnWheel(i, front ? 0 : this.gas);
      let push = (-forward + omega * WHEEL_RADIUS) * STIFFNESS;
      let grip = -sideways * STIFFNESS;
      const force = Math.sqrt(push * push + grip * grip);
      const limit = onRoad[i] ? ROAD_FRICTION : GRASS_FRICTION;
      if (force > limit) {
        push = (push / force) * limit;
        grip = (grip / force) * limit;
      }
      this.omega[i] = omega - (FRAME_S * push * WHEEL_RADIUS) / WHEEL_INERTIA;
      rigid.push(i, grip * sideX + push * aheadX, grip * sideY + push * aheadY);
      if (wind) rigid.push(i, wind * rigid.cos[0], wind * rigid.sin[0]);
    }
    rigid.step();
  }

  #turnWheel(/** @type {number} */ i, /** @type {number} */ gas) {
    let omega = this.omega[i];
    omega += (FRAME_S * POWER * gas) / WHEEL_INERTIA / (Math.abs(omega) + 5);
    if (this.brake >= 0.9) omega = 0;
    else if (this.brake > 0) omega -= Math.sign(omega) * Math.min(BRAKE_FORCE * this.brake, Math.abs(omega));
    this.phase[i] += omega * FRAME_S;
    return omega;
  }

  save() {
    const { steering, gas, brake } = this;
    return { steering, gas, brake, omega: this.omega.slice(), phase: this.phase.slice(), rigid: this.rigid.save() };
  }

  /** @param {ReturnType<Car["save"]>} state */
  restore({ steering, gas, brake, omega, phase, rigid }) {
    Object.assign(this, { steering, gas, brake });
    this.omega.set(omega);
    this.phase.set(phase);
    this.rigid.restore(rigid);
  }
}
