// A car on the road and who drives it: the network, or a person whom the network watches.

const GUST_FRAMES = 25;
const GUST_FORCE = 900; // on each wheel; tyres hold some 400 on the road
const WIND_FORCE = 330;

export class Lane {
  /**
   * @param {import("./carracing.js").CarRacing} world
   * @param {import("./network_driver.js").NetworkDriver} driver
   */
  constructor(world, driver) {
    this.world = world;
    this.driver = driver;
    this.gust = 0; // frames that are left of it, negative to the left
    /** @type {import("./carracing.js").Action | null} */
    this.person = null; // what a person wants; null: the network drives
  }

  // One frame of 0.02 s.
  step() {
    const { world, driver } = this;
    if (world.ended) return;
    if (world.frame % driver.repeat === 0) driver.act(world);
    world.wind = driver.trouble.wind * WIND_FORCE + Math.sign(this.gust) * GUST_FORCE;
    this.gust -= Math.sign(this.gust);
    world.step(this.person ?? driver.decision);
  }

  // Blow from the side for half a second.
  /** @param {number} side 1: to the right, -1: to the left */
  blow(side) {
    this.gust = side * GUST_FRAMES;
  }

  save() {
    return { world: this.world.save(), driver: this.driver.save(), gust: this.gust };
  }

  /** @param {ReturnType<Lane["save"]>} saved */
  restore({ world, driver, gust }) {
    this.world.restore(world);
    this.driver.restore(driver);
    this.gust = gust;
  }
}
