// The car's five bodies and four joints, moved as Box2D 2.3 moves them: sequential impulses in 32-bit floats, operation
// by operation in Box2D's order, so that a drive is the same as in Python. Nothing collides: the road's tiles are sensors.

import { bodyMass, f32 } from "./polygon.js";

export const UNIT = 0.02; // metres in a unit of the car's shapes
const scaled = (/** @type {number[][]} */ points) => points.map(([x, y]) => /** @type {import("./track.js").Point} */ ([x * UNIT, y * UNIT]));
export const WHEEL_RADIUS = 27 * UNIT;
export const WHEEL_SHAPE = scaled([[-14, 27], [14, 27], [14, -27], [-14, -27]]);
export const HULL_SHAPES = [
  [[-60, 130], [60, 130], [60, 110], [-60, 110]],
  [[-15, 120], [15, 120], [20, 20], [-20, 20]],
  [[25, 20], [50, -10], [50, -40], [20, -90], [-20, -90], [-50, -40], [-50, -10], [-25, 20]],
  [[-50, -120], [50, -120], [50, -90], [-50, -90]],
].map(scaled);
const WHEEL_PLACES = scaled([[-55, 80], [55, 80], [-55, -82], [55, -82]]);
const HULL = bodyMass(HULL_SHAPES, 1);
const WHEEL = bodyMass([WHEEL_SHAPE], 0.1);

const DT = f32(1 / 50);
const INVERSE_DT = f32(1 / DT);
const [VELOCITY_ROUNDS, POSITION_ROUNDS] = [180, 60];
const LARGEST_ANGLE = f32(0.4);
const LARGEST_IMPULSE = f32(DT * f32(180 * 900 * UNIT * UNIT));
const LINEAR_SLOP = f32(0.005);
const ANGULAR_SLOP = 0.03490658849477768;
const LARGEST_CORRECTION = 0.13962635397911072;
const [LARGEST_MOVE, LARGEST_TURN] = [2, 1.5707963705062866];
// A car that stands falls asleep: what is left of its motion is taken away.
const [SLEEPY_SPEED, SLEEPY_TURN, SLEEP_AFTER] = [f32(f32(0.01) * f32(0.01)), f32(ANGULAR_SLOP * ANGULAR_SLOP), 0.5];
const [FREE, AT_LOWER, AT_UPPER] = [0, 1, 2];
const ARRAYS = /** @type {const} */ (["x", "y", "angle", "vx", "vy", "turn", "forceX", "forceY", "asleep", "sin", "cos", "originX", "originY",
  "impulseX", "impulseY", "impulseZ", "motorImpulse", "motorSpeed", "limit", "ax", "ay", "bx", "by"]);

const five = () => new Float32Array(5);

export class RigidCar {
  // Bodies: 0 is the hull, 1 to 4 the wheels, front left, front right, rear left, rear right. x, y: centres of mass.
  x = five();
  y = five();
  angle = five();
  vx = five();
  vy = five();
  turn = five();
  forceX = five();
  forceY = five();
  asleep = five();
  sin = five();
  cos = five();
  originX = five();
  originY = five();
  // Joints, by the wheel's number: what they have pushed so far, and the arms from the bodies' centres to the joint.
  impulseX = five();
  impulseY = five();
  impulseZ = five();
  motorImpulse = five();
  motorSpeed = five();
  limit = five();
  ax = five();
  ay = five();
  bx = five();
  by = five();

  /** @param {number} x @param {number} y @param {number} angle */
  constructor(x, y, angle) {
    this.warm = 0; // how much of the last frame's impulses is the beginning of this one's
    for (let body = 0; body < 5; body++) {
      const [dx, dy] = body ? WHEEL_PLACES[body - 1] : [0, 0];
      const mass = body ? WHEEL : HULL;
      this.angle[body] = angle;
      [this.originX[body], this.originY[body]] = [x + dx, y + dy];
      this.#rotate(body);
      const [s, c] = [this.sin[body], this.cos[body]];
      this.x[body] = f32(f32(f32(c * mass.x) - f32(s * mass.y)) + this.originX[body]);
      this.y[body] = f32(f32(f32(s * mass.x) + f32(c * mass.y)) + this.originY[body]);
    }
  }

  // Of a wheel against the hull.
  /** @param {number} wheel 1 to 4 */
  jointAngle(wheel) {
    return f32(this.angle[wheel] - this.angle[0]);
  }

  get speed() {
    return f32(Math.sqrt(f32(f32(this.vx[0] * this.vx[0]) + f32(this.vy[0] * this.vy[0]))));
  }

  // A force on a wheel for the next step.
  /** @param {number} wheel @param {number} x @param {number} y */
  push(wheel, x, y) {
    this.forceX[wheel] += f32(x);
    this.forceY[wheel] += f32(y);
  }

  // One frame of 0.02 s.
  step() {
    for (let i = 0; i < 5; i++) {
      const inverseMass = i ? WHEEL.inverseMass : HULL.inverseMass;
      this.vx[i] = f32(this.vx[i] + f32(DT * f32(inverseMass * this.forceX[i])));
      this.vy[i] = f32(this.vy[i] + f32(DT * f32(inverseMass * this.forceY[i])));
    }
    // Box2D visits the newest joint first.
    for (let wheel = 4; wheel >= 1; wheel--) this.#prepare(wheel);
    const masses = [0, 1, 2, 3, 4].map((wheel) => (wheel ? this.#massMatrix(wheel) : null));
    for (let round = 0; round < VELOCITY_ROUNDS; round++) {
      for (let wheel = 4; wheel >= 1; wheel--) this.#solveVelocity(wheel, masses[wheel]);
    }
    this.#move();
    let solved = false;
    for (let round = 0; round < POSITION_ROUNDS && !solved; round++) {
      solved = true;
      for (let wheel = 4; wheel >= 1; wheel--) solved = this.#solvePosition(wheel) && solved;
    }
    for (let i = 0; i < 5; i++) this.#place(i);
    this.forceX.fill(0);
    this.forceY.fill(0);
    this.warm = f32(INVERSE_DT * DT);
    this.#rest(solved);
  }

  // All of its state, to go on from later.
  save() {
    return { warm: this.warm, ...Object.fromEntries(ARRAYS.map((name) => [name, this[name].slice()])) };
  }

  /** @param {ReturnType<RigidCar["save"]>} state */
  restore(state) {
    this.warm = state.warm;
    for (const name of ARRAYS) this[name].set(state[name]);
  }

  #rotate(/** @type {number} */ body) {
    this.sin[body] = Math.sin(this.angle[body]);
    this.cos[body] = Math.cos(this.angle[body]);
  }

  // Where the body's origin is, from its centre of mass.
  #place(/** @type {number} */ body) {
    this.#rotate(body);
    const mass = body ? WHEEL : HULL;
    const [s, c] = [this.sin[body], this.cos[body]];
    this.originX[body] = f32(this.x[body] - f32(f32(c * mass.x) - f32(s * mass.y)));
    this.originY[body] = f32(this.y[body] - f32(f32(s * mass.x) + f32(c * mass.y)));
  }

  // The arms of a joint as the bodies stand.
  #arms(/** @type {number} */ wheel) {
    const [ha, wa] = [this.angle[0], this.angle[wheel]];
    const [hs, hc, ws, wc] = [f32(Math.sin(ha)), f32(Math.cos(ha)), f32(Math.sin(wa)), f32(Math.cos(wa))];
    const place = WHEEL_PLACES[wheel - 1];
    const [px, py, qx, qy] = [f32(f32(place[0]) - HULL.x), f32(f32(place[1]) - HULL.y), f32(0 - WHEEL.x), f32(0 - WHEEL.y)];
    this.ax[wheel] = f32(f32(hc * px) - f32(hs * py));
    this.ay[wheel] = f32(f32(hs * px) + f32(hc * py));
    this.bx[wheel] = f32(f32(wc * qx) - f32(ws * qy));
    this.by[wheel] = f32(f32(ws * qx) + f32(wc * qy));
  }

  // b2RevoluteJoint::InitVelocityConstraints
  #prepare(/** @type {number} */ wheel) {
    const [mA, iA, mB, iB] = [HULL.inverseMass, HULL.inverseInertia, WHEEL.inverseMass, WHEEL.inverseInertia];
    this.#arms(wheel);
    const angle = this.jointAngle(wheel);
    const limit = angle <= -LARGEST_ANGLE ? AT_LOWER : angle >= LARGEST_ANGLE ? AT_UPPER : FREE;
    if (limit === FREE || limit !== this.limit[wheel]) this.impulseZ[wheel] = 0;
    this.limit[wheel] = limit;
    this.impulseX[wheel] *= this.warm;
    this.impulseY[wheel] *= this.warm;
    this.impulseZ[wheel] *= this.warm;
    this.motorImpulse[wheel] *= this.warm;
    const [x, y, z, motor] = [this.impulseX[wheel], this.impulseY[wheel], this.impulseZ[wheel], this.motorImpulse[wheel]];
    const [ax, ay, bx, by] = [this.ax[wheel], this.ay[wheel], this.bx[wheel], this.by[wheel]];
    this.vx[0] = f32(this.vx[0] - f32(mA * x));
    this.vy[0] = f32(this.vy[0] - f32(mA * y));
    this.turn[0] = f32(this.turn[0] - f32(iA * f32(f32(f32(f32(ax * y) - f32(ay * x)) + motor) + z)));
    this.vx[wheel] = f32(this.vx[wheel] + f32(mB * x));
    this.vy[wheel] = f32(this.vy[wheel] + f32(mB * y));
    this.turn[wheel] = f32(this.turn[wheel] + f32(iB * f32(f32(f32(f32(bx * y) - f32(by * x)) + motor) + z)));
  }

  // How the bodies answer to a push at the joint: entries of a symmetric 3 x 3 matrix, and the motor's mass.
  #massMatrix(/** @type {number} */ wheel) {
    const [mA, iA, mB, iB] = [HULL.inverseMass, HULL.inverseInertia, WHEEL.inverseMass, WHEEL.inverseInertia];
    const [ax, ay, bx, by] = [this.ax[wheel], this.ay[wheel], this.bx[wheel], this.by[wheel]];
    const xx = f32(f32(f32(mA + mB) + f32(f32(ay * ay) * iA)) + f32(f32(by * by) * iB));
    const yx = f32(f32(f32(-ay * ax) * iA) - f32(f32(by * bx) * iB));
    const zx = f32(f32(-ay * iA) - f32(by * iB));
    const yy = f32(f32(f32(mA + mB) + f32(f32(ax * ax) * iA)) + f32(f32(bx * bx) * iB));
    const zy = f32(f32(ax * iA) + f32(bx * iB));
    const zz = f32(iA + iB);
    return { xx, yx, zx, yy, zy, zz, motor: f32(1 / zz) };
  }

  // b2RevoluteJoint::SolveVelocityConstraints
  #solveVelocity(/** @type {number} */ wheel, /** @type {any} */ m) {
    const [mA, iA, mB, iB] = [HULL.inverseMass, HULL.inverseInertia, WHEEL.inverseMass, WHEEL.inverseInertia];
    const [ax, ay, bx, by] = [this.ax[wheel], this.ay[wheel], this.bx[wheel], this.by[wheel]];
    let [wA, wB] = [this.turn[0], this.turn[wheel]];
    const before = this.motorImpulse[wheel];
    const wanted = f32(before + f32(-m.motor * f32(f32(wB - wA) - this.motorSpeed[wheel])));
    const motor = Math.max(-LARGEST_IMPULSE, Math.min(wanted, LARGEST_IMPULSE));
    this.motorImpulse[wheel] = motor;
    const pushed = f32(motor - before);
    wA = f32(wA - f32(iA * pushed));
    wB = f32(wB + f32(iB * pushed));
    const dx = f32(f32(f32(this.vx[wheel] + f32(-wB * by)) - this.vx[0]) - f32(-wA * ay));
    const dy = f32(f32(f32(this.vy[wheel] + f32(wB * bx)) - this.vy[0]) - f32(wA * ax));
    let x, y, z = 0;
    if (this.limit[wheel] === FREE) {
      [x, y] = solveTwo(m, -dx, -dy);
      this.impulseX[wheel] += x;
      this.impulseY[wheel] += y;
    } else {
      [x, y, z] = solveThree(m, dx, dy, f32(wB - wA)).map((v) => -v);
      const total = f32(this.impulseZ[wheel] + z);
      if (this.limit[wheel] === AT_LOWER ? total < 0 : total > 0) {
        const held = this.impulseZ[wheel];
        [x, y] = solveTwo(m, f32(-dx + f32(held * m.zx)), f32(-dy + f32(held * m.zy)));
        z = -held;
        this.impulseZ[wheel] = 0;
      } else {
        this.impulseZ[wheel] = total;
      }
      this.impulseX[wheel] += x;
      this.impulseY[wheel] += y;
    }
    this.vx[0] = f32(this.vx[0] - f32(mA * x));
    this.vy[0] = f32(this.vy[0] - f32(mA * y));
    this.turn[0] = f32(wA - f32(iA * f32(f32(f32(ax * y) - f32(ay * x)) + z)));
    this.vx[wheel] = f32(this.vx[wheel] + f32(mB * x));
    this.vy[wheel] = f32(this.vy[wheel] + f32(mB * y));
    this.turn[wheel] = f32(wB + f32(iB * f32(f32(f32(bx * y) - f32(by * x)) + z)));
  }

  #move() {
    for (let i = 0; i < 5; i++) {
      const [dx, dy, turned] = [f32(DT * this.vx[i]), f32(DT * this.vy[i]), f32(DT * this.turn[i])];
      const squares = f32(f32(dx * dx) + f32(dy * dy));
      if (squares > LARGEST_MOVE * LARGEST_MOVE) {
        const ratio = f32(LARGEST_MOVE / f32(Math.sqrt(squares)));
        this.vx[i] *= ratio;
        this.vy[i] *= ratio;
      }
      if (f32(turned * turned) > f32(LARGEST_TURN * LARGEST_TURN)) this.turn[i] *= f32(LARGEST_TURN / Math.abs(turned));
      this.x[i] = f32(this.x[i] + f32(DT * this.vx[i]));
      this.y[i] = f32(this.y[i] + f32(DT * this.vy[i]));
      this.angle[i] = f32(this.angle[i] + f32(DT * this.turn[i]));
    }
  }

  // b2RevoluteJoint::SolvePositionConstraints; whether the joint holds.
  #solvePosition(/** @type {number} */ wheel) {
    const [mA, iA, mB, iB] = [HULL.inverseMass, HULL.inverseInertia, WHEEL.inverseMass, WHEEL.inverseInertia];
    let angularError = 0;
    if (this.limit[wheel] !== FREE) {
      const lower = this.limit[wheel] === AT_LOWER;
      const over = f32(this.jointAngle(wheel) - (lower ? -LARGEST_ANGLE : LARGEST_ANGLE));
      angularError = lower ? -over : over;
      const eased = f32(over + (lower ? ANGULAR_SLOP : -ANGULAR_SLOP));
      const most = f32(LARGEST_CORRECTION);
      const clamped = lower ? Math.max(-most, Math.min(eased, 0)) : Math.max(0, Math.min(eased, most));
      const impulse = f32(-f32(1 / f32(iA + iB)) * clamped);
      this.angle[0] = f32(this.angle[0] - f32(iA * impulse));
      this.angle[wheel] = f32(this.angle[wheel] + f32(iB * impulse));
    }
    this.#arms(wheel);
    const [ax, ay, bx, by] = [this.ax[wheel], this.ay[wheel], this.bx[wheel], this.by[wheel]];
    const dx = f32(f32(f32(this.x[wheel] + bx) - this.x[0]) - ax);
    const dy = f32(f32(f32(this.y[wheel] + by) - this.y[0]) - ay);
    const xx = f32(f32(f32(mA + mB) + f32(f32(iA * ay) * ay)) + f32(f32(iB * by) * by));
    const yx = f32(f32(f32(-iA * ax) * ay) - f32(f32(iB * bx) * by));
    const yy = f32(f32(f32(mA + mB) + f32(f32(iA * ax) * ax)) + f32(f32(iB * bx) * bx));
    const [x, y] = solveTwo({ xx, yx, yy }, dx, dy).map((v) => -v);
    this.x[0] = f32(this.x[0] - f32(mA * x));
    this.y[0] = f32(this.y[0] - f32(mA * y));
    this.angle[0] = f32(this.angle[0] - f32(iA * f32(f32(ax * y) - f32(ay * x))));
    this.x[wheel] = f32(this.x[wheel] + f32(mB * x));
    this.y[wheel] = f32(this.y[wheel] + f32(mB * y));
    this.angle[wheel] = f32(this.angle[wheel] + f32(iB * f32(f32(bx * y) - f32(by * x))));
    return f32(Math.sqrt(f32(f32(dx * dx) + f32(dy * dy)))) <= LINEAR_SLOP && angularError <= ANGULAR_SLOP;
  }

  #rest(/** @type {boolean} */ solved) {
    for (let i = 0; i < 5; i++) {
      const speed = f32(f32(this.vx[i] * this.vx[i]) + f32(this.vy[i] * this.vy[i]));
      const moving = f32(this.turn[i] * this.turn[i]) > SLEEPY_TURN || speed > SLEEPY_SPEED;
      this.asleep[i] = moving ? 0 : f32(this.asleep[i] + DT);
    }
    if (Math.min(...this.asleep) < SLEEP_AFTER || !solved) return;
    for (const motion of [this.vx, this.vy, this.turn, this.asleep]) motion.fill(0);
  }
}

// The first two unknowns of the matrix.
/** @param {{xx: number, yx: number, yy: number}} m @param {number} x @param {number} y */
function solveTwo({ xx, yx, yy }, x, y) {
  let determinant = f32(f32(xx * yy) - f32(yx * yx));
  if (determinant !== 0) determinant = f32(1 / determinant);
  return [f32(determinant * f32(f32(yy * x) - f32(yx * y))), f32(determinant * f32(f32(xx * y) - f32(yx * x)))];
}

/** @param {any} m @param {number} x @param {number} y @param {number} z */
function solveThree(m, x, y, z) {
  const cross = (/** @type {number[]} */ [a, b, c], /** @type {number[]} */ [d, e, f]) =>
    [f32(f32(b * f) - f32(c * e)), f32(f32(c * d) - f32(a * f)), f32(f32(a * e) - f32(b * d))];
  const dot = (/** @type {number[]} */ [a, b, c], /** @type {number[]} */ [d, e, f]) => f32(f32(f32(a * d) + f32(b * e)) + f32(c * f));
  const [first, second, third, right] = [[m.xx, m.yx, m.zx], [m.yx, m.yy, m.zy], [m.zx, m.zy, m.zz], [x, y, z]];
  let determinant = dot(first, cross(second, third));
  if (determinant !== 0) determinant = f32(1 / determinant);
  return [
    f32(determinant * dot(right, cross(second, third))),
    f32(determinant * dot(first, cross(right, third))),
    f32(determinant * dot(first, cross(second, right))),
  ];
}
