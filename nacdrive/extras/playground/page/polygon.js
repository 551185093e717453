// Convex polygons as Box2D has them: hull, mass, and whether two of them touch. Mass is computed in 32-bit floats.

/** @typedef {import("./track.js").Point} Point */

export const f32 = Math.fround;
const SKINS = 0.02 + 1.2e-6; // the skins of two polygons, and what Box2D takes for nothing

/**
 * Corners of the convex hull in Box2D's order, rounded to 32 bits (gift wrapping).
 * @param {Point[]} points
 * @returns {Point[]}
 */
export function convexHull(points) {
  const p = points.map(([x, y]) => [f32(x), f32(y)]);
  let start = 0;
  for (let i = 1; i < p.length; i++) {
    if (p[i][0] > p[start][0] || (p[i][0] === p[start][0] && p[i][1] < p[start][1])) start = i;
  }
  const hull = [];
  let at = start;
  do {
    hull.push(at);
    let end = 0;
    for (let j = 1; j < p.length; j++) {
      if (end === at) {
        end = j;
        continue;
      }
      const [rx, ry] = [f32(p[end][0] - p[at][0]), f32(p[end][1] - p[at][1])];
      const [vx, vy] = [f32(p[j][0] - p[at][0]), f32(p[j][1] - p[at][1])];
      const cross = f32(f32(rx * vy) - f32(ry * vx));
      const farther = f32(f32(vx * vx) + f32(vy * vy)) > f32(f32(rx * rx) + f32(ry * ry));
      if (cross < 0 || (cross === 0 && farther)) end = j;
    }
    at = end;
  } while (at !== start && hull.length < p.length);
  return hull.map((i) => /** @type {Point} */ (p[i]));
}

/**
 * Mass, its centre and its moment of inertia about the origin.
 * @param {Point[]} corners of ``convexHull``
 * @param {number} density
 */
function polygonMass(corners, density) {
  const third = f32(1 / 3);
  let [sx, sy] = [0, 0];
  for (const [x, y] of corners) [sx, sy] = [f32(sx + x), f32(sy + y)];
  const share = f32(1 / corners.length);
  [sx, sy] = [f32(sx * share), f32(sy * share)];
  let [area, inertia, cx, cy] = [0, 0, 0, 0];
  for (let i = 0; i < corners.length; i++) {
    const next = corners[(i + 1) % corners.length];
    const [ax, ay, bx, by] = [f32(corners[i][0] - sx), f32(corners[i][1] - sy), f32(next[0] - sx), f32(next[1] - sy)];
    const cross = f32(f32(ax * by) - f32(ay * bx));
    const triangle = f32(0.5 * cross);
    area = f32(area + triangle);
    const weight = f32(triangle * third);
    cx = f32(cx + f32(weight * f32(ax + bx)));
    cy = f32(cy + f32(weight * f32(ay + by)));
    const alongX = f32(f32(f32(ax * ax) + f32(bx * ax)) + f32(bx * bx));
    const alongY = f32(f32(f32(ay * ay) + f32(by * ay)) + f32(by * by));
    inertia = f32(inertia + f32(f32(f32(0.25 * third) * cross) * f32(alongX + alongY)));
  }
  const mass = f32(density * area);
  const inverse = f32(1 / area);
  [cx, cy] = [f32(cx * inverse), f32(cy * inverse)];
  const [x, y] = [f32(cx + sx), f32(cy + sy)];
  const squares = (/** @type {number} */ u, /** @type {number} */ v) => f32(f32(u * u) + f32(v * v));
  return { mass, x, y, inertia: f32(f32(density * inertia) + f32(mass * f32(squares(x, y) - squares(cx, cy)))) };
}

/**
 * What a body of several polygons weighs: inverse mass, inverse inertia about its centre of mass, and that centre.
 * @param {Point[][]} polygons
 * @param {number} density
 */
export function bodyMass(polygons, density) {
  let [mass, inertia, x, y] = [0, 0, 0, 0];
  // Box2D keeps the newest polygon first.
  for (const polygon of polygons.toReversed()) {
    const part = polygonMass(convexHull(polygon), f32(density));
    mass = f32(mass + part.mass);
    x = f32(x + f32(part.mass * part.x));
    y = f32(y + f32(part.mass * part.y));
    inertia = f32(inertia + part.inertia);
  }
  const inverseMass = f32(1 / mass);
  [x, y] = [f32(x * inverseMass), f32(y * inverseMass)];
  inertia = f32(inertia - f32(mass * f32(f32(x * x) + f32(y * y))));
  return { inverseMass, inverseInertia: f32(1 / inertia), x, y };
}

/**
 * Whether two convex polygons, corners anticlockwise, lie closer than their skins are thick.
 * @param {Point[]} a
 * @param {Point[]} b
 */
export function isTouching(a, b) {
  if (gap(a, b) <= 0 && gap(b, a) <= 0) return true;
  return Math.min(cornerDistance(a, b), cornerDistance(b, a)) <= SKINS;
}

// The widest gap that an edge of a leaves to all of b; above 0 they are apart.
/** @param {Point[]} a @param {Point[]} b */
function gap(a, b) {
  let widest = -Infinity;
  for (let i = 0; i < a.length; i++) {
    const [[x, y], [nextX, nextY]] = [a[i], a[(i + 1) % a.length]];
    let nearest = Infinity;
    for (const [px, py] of b) nearest = Math.min(nearest, (px - x) * (nextY - y) - (py - y) * (nextX - x));
    widest = Math.max(widest, nearest);
  }
  return widest;
}

// The least distance of a corner of a from an edge of b.
/** @param {Point[]} a @param {Point[]} b */
function cornerDistance(a, b) {
  let least = Infinity;
  for (let i = 0; i < b.length; i++) {
    const [[x, y], [nextX, nextY]] = [b[i], b[(i + 1) % b.length]];
    const [dx, dy] = [nextX - x, nextY - y];
    for (const [px, py] of a) {
      const share = Math.min(1, Math.max(0, ((px - x) * dx + (py - y) * dy) / (dx * dx + dy * dy)));
      least = Math.min(least, Math.hypot(px - x - share * dx, py - y - share * dy));
    }
  }
  return least;
}
