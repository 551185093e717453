// A lap in the playground: the car that is followed, its ghost, and the world of every second, to go back to.

import { Camera } from "./camera.js";
import { CarRacing, FPS } from "./carracing.js";
import { Lane } from "./lane.js";
import { NetworkDriver } from "./network_driver.js";
import { isTroubled, NO_TROUBLE } from "./trouble.js";
import { WorldMap } from "./world_map.js";

/** @typedef {import("./network_driver.js").Compiled} Compiled */
/** @typedef {{car: ReturnType<Lane["save"]>, ghost: ReturnType<Lane["save"]> | null}} Snapshot */

const LONG = 3000; // frames of a race: people are slow at first

export class Session {
  /** @param {any} network @param {import("./camera.js").Sprites} sprites @param {number} repeat */
  constructor(network, sprites, repeat) {
    this.network = network;
    this.repeat = repeat;
    this.map = new WorldMap();
    this.camera = new Camera(this.map, sprites);
    /** @type {Compiled} */
    this.edits = null;
    this.trouble = NO_TROUBLE;
    this.racing = false;
    this.laps = 0; // begun so far
  }

  // A new lap, from the start of a road. racing: a person against the network.
  /** @param {import("./track.js").Road} road @param {number} seed @param {boolean} racing */
  begin(road, seed, racing = false) {
    if (road !== this.road) this.map.draw(road);
    this.road = road;
    this.seed = seed;
    this.racing = racing;
    this.laps++;
    this.car = this.#lane();
    /** @type {Lane | null} */
    this.ghost = null;
    this.winner = ""; // of a race: "you", "network"
    /** @type {Snapshot[]} */
    this.seconds = [];
    if (racing) {
      this.car.person = { steering: 0, throttle: 0, brake: 0 };
      this.ghost = this.#lane();
    }
    this.change(this.edits, this.trouble);
    this.#remember();
  }

  #lane() {
    const world = new CarRacing(this.road, { maxFrames: this.racing ? LONG : undefined });
    return new Lane(world, new NetworkDriver(this.network, this.camera, this.repeat, this.seed));
  }

  // Edit the network and its camera from the next decision on. The first edit of a lap leaves a ghost without any.
  /** @param {Compiled} edits @param {import("./trouble.js").Trouble} trouble */
  change(edits, trouble) {
    Object.assign(this, { edits, trouble });
    if (!this.car) return;
    if (edits || isTroubled(trouble)) this.#fork();
    const edited = this.racing ? this.ghost : this.car;
    Object.assign(edited.driver, { edits, trouble });
  }

  // A ghost that goes on from here as the car would without edits, wind and people.
  #fork() {
    if (this.ghost || this.racing) return;
    this.ghost = this.#lane();
    this.ghost.restore({ ...this.car.save(), gust: 0 });
  }

  // A person takes the wheel, or lets go of it.
  /** @param {boolean} on */
  takeWheel(on) {
    if (on) this.#fork();
    this.car.person = on ? { steering: 0, throttle: 0, brake: 0 } : null;
  }

  /** @param {number} side */
  blow(side) {
    this.#fork();
    (this.racing ? this.ghost : this.car).blow(side);
  }

  get over() {
    return Boolean(this.car.world.ended) || (this.racing && this.winner === "network");
  }

  // One frame of 0.02 s of everybody.
  step() {
    if (this.over) return;
    this.car.step();
    this.ghost?.step();
    if (this.racing) this.#judge();
    if (this.car.world.frame % FPS === 0) this.#remember();
  }

  // Who is home first has won; where nobody comes home, who came farther.
  #judge() {
    const [mine, its] = [this.car.world, this.ghost.world];
    const [home, beaten] = [mine, its].map(({ ended }) => ended === "lap finished");
    if (home) this.winner ||= "you";
    else if (beaten) this.winner ||= "network";
    else if (mine.ended) this.winner ||= mine.progress > its.progress && its.ended ? "you" : "network";
  }

  #remember() {
    this.seconds.push({ car: this.car.save(), ghost: this.ghost?.save() ?? null });
  }

  // Back to a whole second of this lap; what came after it is forgotten. Edits stay as they are.
  /** @param {number} second */
  rewind(second) {
    const at = Math.min(Math.max(Math.round(second), 0), this.seconds.length - 1);
    const { car, ghost } = this.seconds[at];
    this.seconds.length = at + 1;
    this.winner = "";
    this.car.restore(car);
    if (ghost) this.ghost.restore(ghost);
    else {
      this.ghost = null;
      this.change(this.edits, this.trouble);
      if (this.car.person) this.#fork();
    }
  }
}
