// The rules of CarRacing: 50 frames a second, 1000 points over all tiles, a tenth of a point less for each frame.

import { Car, WHEELS } from "./car.js";
import { Contacts } from "./contacts.js";
import { f32 } from "./polygon.js";
import { PLAYFIELD } from "./track.js";

export const FPS = 50;
const ENOUGH = 0.95; // of the tiles, where the start is touched for the first time after them

/** @typedef {{steering: number, throttle: number, brake: number, choice?: number}} Action right is positive */

// What the five choices mean to the simulator, which steers them at 0.6 and gives a fifth of the gas.
/** @type {[number, number, number][]} */
const CHOICES = [[0, 0, 0], [0.6, 0, 0], [-0.6, 0, 0], [0, 0.2, 0], [0, 0, 0.8]];

export class CarRacing {
  // A lap on a road, the car at its start; one frame has passed, as after Gymnasium's reset.
  /** @param {import("./track.js").Road} road @param {{maxFrames?: number}} options frames after which the lap ends */
  constructor(road, { maxFrames = 1000 } = {}) {
    this.road = road;
    this.maxFrames = maxFrames;
    this.contacts = new Contacts(road.tiles);
    const { x, y, beta } = road.stations[0];
    this.car = new Car(x, y, beta);
    /** @type {Set<number>} */
    this.visited = new Set();
    this.onRoad = [false, false, false, false, false];
    this.wind = 0; // a force from the side on each wheel; to the car's right is positive
    this.frame = 0;
    this.t = 0;
    this.reward = 0;
    this.shownReward = 0; // in the picture, which is drawn before the frame's own tenth of a point is taken off
    this.counted = 0; // of the reward, what earlier frames have returned
    this.lapDone = false;
    this.ended = ""; // how the lap ended: "lap finished", "left the field", "time is up"
    this.#simulate();
  }

  // Seconds since the start, as the driver is told.
  get t_s() {
    return this.frame / FPS;
  }

  // Share of the tiles that were visited.
  get progress() {
    return this.visited.size / this.road.tiles.length;
  }

  // Share of the wheels beside the road.
  get grassShare() {
    return WHEELS.filter((i) => !this.onRoad[i]).length / 4;
  }

  // Hold an action for some frames, fewer where the lap ends. Returns the reward.
  /** @param {Action} action @param {number} frames */
  hold(action, frames) {
    let reward = 0;
    for (let i = 0; i < frames && !this.ended; i++) reward += this.step(action);
    return reward;
  }

  // One frame of 0.02 s. Returns its reward.
  /** @param {Action} action */
  step({ steering, throttle, brake, choice = -1 }) {
    this.frame++;
    const [steer, gas, stop] = choice >= 0 ? CHOICES[choice] : [f32(steering), f32(throttle), f32(brake)];
    this.car.control(steer, gas, stop);
    this.#simulate();
    this.reward -= 0.1;
    let gained = this.reward - this.counted;
    this.counted = this.reward;
    const { rigid } = this.car;
    if (this.visited.size === this.road.tiles.length || this.lapDone) this.ended = "lap finished";
    if (Math.abs(rigid.originX[0]) > PLAYFIELD || Math.abs(rigid.originY[0]) > PLAYFIELD) {
      this.ended = "left the field";
      this.reward -= 100 + gained;
      gained = -100;
    }
    if (!this.ended && this.frame >= this.maxFrames) this.ended = "time is up";
    return gained;
  }

  #simulate() {
    // As in Box2D: tyres grip by the tiles of the frame before, and tiles are looked for before the car moves.
    const before = this.onRoad;
    this.onRoad = [false, ...WHEELS.map((i) => this.#touch(i))];
    this.car.step(before, this.wind);
    this.t += 1 / FPS;
    this.shownReward = this.reward;
  }

  // Visit the tiles that a wheel touches; whether there are any.
  #touch(/** @type {number} */ wheel) {
    const touched = this.contacts.of(this.car.rigid, wheel);
    for (const tile of touched) {
      if (this.visited.has(tile)) continue;
      this.visited.add(tile);
      this.reward += 1000 / this.road.tiles.length;
      if (tile === 0 && this.progress > ENOUGH) this.lapDone = true;
    }
    return touched.length > 0;
  }

  // All of its state, to go on from later; the road is not in it.
  save() {
    const { frame, t, reward, shownReward, counted, ended, wind, lapDone } = this;
    return { frame, t, reward, shownReward, counted, ended, wind, lapDone, visited: [...this.visited], onRoad: [...this.onRoad], car: this.car.save() };
  }

  /** @param {ReturnType<CarRacing["save"]>} state */
  restore({ visited, onRoad, car, ...rest }) {
    Object.assign(this, rest);
    this.visited = new Set(visited);
    this.onRoad = [...onRoad];
    this.car.restore(car);
  }
}
