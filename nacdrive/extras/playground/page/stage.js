// The large view for people: the world from above, turning with the car; or the whole field, to draw a road on.

import { HULL_SHAPES, WHEEL_SHAPE } from "./rigid_car.js";
import { PLAYFIELD } from "./track.js";

const METRES_HIGH = 58; // of the world that the view shows
const CAR_HEIGHT = 0.72; // where the car is, as a share of the view from its top
const GRASS_SIDE = PLAYFIELD / 20;
const SCENE = { field: "#66cc66", grass: "#66e666", tiles: ["#666666", "#686868", "#6b6b6b"], white: "#ffffff", red: "#e02020" };
const PAINTS = { car: "#cc0000", person: "#8a4a8f", ghost: "#0064b0" };

function pathOf(/** @type {number[][][]} */ polygons) {
  const path = new Path2D();
  for (const corners of polygons) {
    corners.forEach(([x, y], i) => i ? path.lineTo(x, y) : path.moveTo(x, y));
    path.closePath();
  }
  return path;
}

// A canvas of as many pixels as it takes on the screen: its size, and pixels per unit of the page.
/** @param {HTMLCanvasElement} canvas */
function fitted(canvas) {
  const scale = Math.min(devicePixelRatio || 1, 2);
  const [width, height] = [Math.round(canvas.clientWidth * scale), Math.round(canvas.clientHeight * scale)];
  if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
  return { width, height, scale };
}

export class Stage {
  /** @param {HTMLCanvasElement} canvas */
  constructor(canvas) {
    this.canvas = canvas;
    this.pen = canvas.getContext("2d");
    const squares = [];
    for (let x = -20; x < 20; x += 2) {
      for (let y = -20; y < 20; y += 2) {
        const [a, b] = [x * GRASS_SIDE, y * GRASS_SIDE];
        squares.push([[a, b], [a + GRASS_SIDE, b], [a + GRASS_SIDE, b + GRASS_SIDE], [a, b + GRASS_SIDE]]);
      }
    }
    this.grass = pathOf(squares);
    this.hull = pathOf(HULL_SHAPES);
    this.wheel = pathOf([WHEEL_SHAPE]);
    /** @type {{path: Path2D, paint: string}[]} */
    this.layers = [];
  }

  /** @param {import("./track.js").Road} road */
  setRoad({ patches, stations }) {
    const groups = new Map();
    for (const { corners, colour } of patches) {
      const paint = colour[0] < 200 ? SCENE.tiles[["102", "104", "107"].indexOf(String(colour[0]))] : colour[1] ? SCENE.white : SCENE.red;
      if (!groups.has(paint)) groups.set(paint, []);
      groups.get(paint).push(corners);
    }
    this.layers = [...groups].map(([paint, polygons]) => ({ path: pathOf(polygons), paint }));
    this.line = stations.map(({ x, y }) => [x, y]);
  }

  // The whole canvas dark; its size.
  #begin() {
    const { pen } = this;
    const { width, height } = fitted(this.canvas);
    pen.resetTransform();
    pen.fillStyle = "#101418";
    pen.fillRect(0, 0, width, height);
    return { width, height };
  }

  /** @param {import("./session.js").Session} session */
  draw({ car, ghost }) {
    const { pen } = this;
    const { width, height } = this.#begin();
    const { rigid } = car.world.car;
    const zoom = height / METRES_HIGH;
    pen.translate(width / 2, height * CAR_HEIGHT);
    pen.scale(zoom, -zoom);
    pen.rotate(-rigid.angle[0]);
    pen.translate(-rigid.originX[0], -rigid.originY[0]);
    this.#world();
    if (ghost) this.#car(ghost.world.car.rigid, PAINTS.ghost, 0.6);
    this.#car(rigid, car.person ? PAINTS.person : PAINTS.car, 1);
  }

  #world() {
    const { pen } = this;
    pen.fillStyle = SCENE.field;
    pen.fillRect(-PLAYFIELD, -PLAYFIELD, 2 * PLAYFIELD, 2 * PLAYFIELD);
    pen.fillStyle = SCENE.grass;
    pen.fill(this.grass);
    for (const { path, paint } of this.layers) {
      pen.fillStyle = paint;
      pen.fill(path);
    }
  }

  #car(/** @type {any} */ rigid, /** @type {string} */ paint, /** @type {number} */ opacity) {
    const { pen } = this;
    pen.globalAlpha = opacity;
    for (const body of [1, 2, 3, 4, 0]) {
      pen.save();
      pen.translate(rigid.originX[body], rigid.originY[body]);
      pen.rotate(rigid.angle[body]);
      pen.fillStyle = body ? "#000000" : paint;
      pen.fill(body ? this.wheel : this.hull);
      pen.restore();
    }
    pen.globalAlpha = 1;
  }

  // The whole field with a line on it that is being drawn.
  /** @param {number[][]} line */
  drawField(line) {
    const { pen } = this;
    const { width, height } = this.#begin();
    const zoom = Math.min(width, height) / (2 * PLAYFIELD);
    pen.translate(width / 2, height / 2);
    pen.scale(zoom, -zoom);
    pen.fillStyle = SCENE.field;
    pen.fillRect(-PLAYFIELD, -PLAYFIELD, 2 * PLAYFIELD, 2 * PLAYFIELD);
    pen.fillStyle = SCENE.grass;
    pen.fill(this.grass);
    pen.lineWidth = 80 / 6;
    pen.lineJoin = pen.lineCap = "round";
    pen.strokeStyle = SCENE.tiles[0];
    pen.beginPath();
    line.forEach(([x, y], i) => i ? pen.lineTo(x, y) : pen.moveTo(x, y));
    pen.stroke();
  }

  // Where on the field a place of the screen is, while the whole field is shown.
  /** @param {PointerEvent} event @returns {import("./track.js").Point} */
  placeOf(event) {
    const box = this.canvas.getBoundingClientRect();
    const zoom = Math.min(box.width, box.height) / (2 * PLAYFIELD);
    return [(event.clientX - box.x - box.width / 2) / zoom, -(event.clientY - box.y - box.height / 2) / zoom];
  }

  // The road from above, small: its line, and where the cars are.
  /** @param {HTMLCanvasElement} canvas @param {import("./session.js").Session} session @param {string} ink */
  drawMap(canvas, { car, ghost }, ink) {
    const { width, height, scale } = fitted(canvas);
    const pen = canvas.getContext("2d");
    const [xs, ys] = [this.line.map((p) => p[0]), this.line.map((p) => p[1])];
    const [left, right, low, high] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
    const zoom = Math.min((width - 16 * scale) / (right - left), (height - 16 * scale) / (high - low));
    const at = (/** @type {number} */ x, /** @type {number} */ y) =>
      /** @type {const} */ ([width / 2 + (x - (left + right) / 2) * zoom, height / 2 - (y - (low + high) / 2) * zoom]);
    pen.clearRect(0, 0, width, height);
    pen.strokeStyle = ink;
    pen.lineWidth = 3 * scale;
    pen.beginPath();
    this.line.forEach(([x, y], i) => i ? pen.lineTo(...at(x, y)) : pen.moveTo(...at(x, y)));
    pen.closePath();
    pen.stroke();
    const dot = (/** @type {any} */ lane, /** @type {string} */ paint) => {
      const { originX, originY } = lane.world.car.rigid;
      pen.fillStyle = paint;
      pen.beginPath();
      pen.arc(...at(originX[0], originY[0]), 5 * scale, 0, 2 * Math.PI);
      pen.fill();
    };
    if (ghost) dot(ghost, PAINTS.ghost);
    dot(car, car.person ? PAINTS.person : PAINTS.car);
  }
}
