// Pictures as bytes [row][column][3]: fill a polygon, look through a turned window, halve; the same bytes as OpenCV's.

/** @typedef {{width: number, height: number, bytes: Uint8Array}} Picture */

/** @param {number} width @param {number} height @returns {Picture} */
export const emptyPicture = (width, height) => ({ width, height, bytes: new Uint8Array(width * height * 3) });

export const FRACTION = 16; // corners of polygons are whole numbers of so many parts of a pixel
const FINE = 65536; // parts of a pixel along an edge
const MORE = FINE / FRACTION;

/** @param {Picture} picture @param {number} x @param {number} y @param {number[]} colour */
function putPixel({ width, height, bytes }, x, y, colour) {
  if (x < 0 || x >= width || y < 0 || y >= height) return;
  bytes.set(colour, (y * width + x) * 3);
}

// The part of a line within the picture, in fine parts; null where there is none (cv::clipLine).
/** @param {Picture} picture @param {number} x1 @param {number} y1 @param {number} x2 @param {number} y2 */
function clipLine({ width, height }, x1, y1, x2, y2) {
  const [right, bottom] = [width * FINE - 1, height * FINE - 1];
  const side = (/** @type {number} */ x) => (x < 0 ? 1 : 0) + (x > right ? 2 : 0);
  const level = (/** @type {number} */ y) => (y < 0 ? 4 : 0) + (y > bottom ? 8 : 0);
  let [first, second] = [side(x1) + level(y1), side(x2) + level(y2)];
  if ((first & second) === 0 && (first | second) !== 0) {
    if (first & 12) {
      const y = first < 8 ? 0 : bottom;
      x1 += Math.trunc(((y - y1) * (x2 - x1)) / (y2 - y1));
      y1 = y;
      first = side(x1);
    }
    if (second & 12) {
      const y = second < 8 ? 0 : bottom;
      x2 += Math.trunc(((y - y2) * (x2 - x1)) / (y2 - y1));
      y2 = y;
      second = side(x2);
    }
    if ((first & second) === 0 && (first | second) !== 0) {
      if (first) {
        const x = first === 1 ? 0 : right;
        y1 += Math.trunc(((x - x1) * (y2 - y1)) / (x2 - x1));
        x1 = x;
        first = 0;
      }
      if (second) {
        const x = second === 1 ? 0 : right;
        y2 += Math.trunc(((x - x2) * (y2 - y1)) / (x2 - x1));
        x2 = x;
        second = 0;
      }
    }
  }
  return (first | second) === 0 ? [x1, y1, x2, y2] : null;
}

// cv::Line2
/** @param {Picture} picture @param {number[]} line in fine parts @param {number[]} colour */
function drawLine(picture, line, colour) {
  const clipped = clipLine(picture, line[0], line[1], line[2], line[3]);
  if (!clipped) return;
  let [x1, y1, x2, y2] = clipped;
  const half = FINE / 2;
  const flat = Math.abs(x2 - x1) > Math.abs(y2 - y1);
  if (flat ? x2 < x1 : y2 < y1) [x1, y1, x2, y2] = [x2, y2, x1, y1];
  putPixel(picture, (x2 + half) >> 16, (y2 + half) >> 16, colour);
  if (flat) {
    const slope = Math.trunc(((y2 - y1) * FINE) / (Math.abs(x2 - x1) | 1));
    for (let x = (x1 + half) >> 16, y = y1 + half, n = (x2 - x1) >> 16; n >= 0; n--, x++, y += slope) putPixel(picture, x, y >> 16, colour);
  } else {
    const slope = Math.trunc(((x2 - x1) * FINE) / (Math.abs(y2 - y1) | 1));
    for (let y = (y1 + half) >> 16, x = x1 + half, n = (y2 - y1) >> 16; n >= 0; n--, y++, x += slope) putPixel(picture, x >> 16, y, colour);
  }
}

/**
 * Fill a convex polygon with its outline (cv::fillConvexPoly).
 * @param {Picture} picture
 * @param {number[][]} corners in sixteenths of a pixel, whole numbers
 * @param {number[]} colour
 */
export function fillConvex(picture, corners, colour) {
  const n = corners.length;
  const whole = (/** @type {number} */ v) => (v + FRACTION / 2) >> 4;
  corners.forEach(([x, y], i) => {
    const [beforeX, beforeY] = corners[(i + n - 1) % n];
    drawLine(picture, [beforeX * MORE, beforeY * MORE, x * MORE, y * MORE], colour);
  });
  let top = 0;
  for (let i = 0; i < n; i++) if (corners[i][1] < corners[top][1]) top = i;
  const last = Math.min(whole(Math.max(...corners.map((c) => c[1]))), picture.height - 1);
  let y = whole(corners[top][1]);
  const edge = [1, n - 1].map((way) => ({ way, at: top, until: y, x: -FINE, slope: 0 }));
  for (let left = n; y <= last; y++) {
    for (const e of edge) {
      if (y < e.until) continue;
      let [from, to] = [e.at, (e.at + e.way) % n];
      for (; left-- > 0; from = to, to = (to + e.way) % n) {
        const end = whole(corners[to][1]);
        if (end <= y) continue;
        const [begin, rows] = [corners[from][0] * MORE, end - y];
        Object.assign(e, { until: end, at: to, x: begin, slope: Math.trunc(((corners[to][0] * MORE - begin) * 2 + rows) / (2 * rows)) });
        break;
      }
    }
    if (left < 0) return;
    if (y >= 0) {
      const [low, high] = edge[0].x > edge[1].x ? [edge[1], edge[0]] : edge;
      const end = Math.min((high.x + FINE / 2) >> 16, picture.width - 1);
      for (let x = Math.max((low.x + FINE / 2) >> 16, 0); x <= end; x++) picture.bytes.set(colour, (y * picture.width + x) * 3);
    }
    for (const e of edge) e.x += e.slope;
  }
}

// To the nearest whole number, halves to the even one.
/** @param {number} value */
export function roundEven(value) {
  const down = Math.floor(value);
  const rest = value - down;
  return rest > 0.5 || (rest === 0.5 && down % 2 !== 0) ? down + 1 : down;
}

/**
 * What lies under a window, linear between pixels; black beside the picture (cv::warpAffine).
 * @param {Picture} from
 * @param {number[][]} place [2][3]: column and row of the window, and 1, to column and row of the picture
 * @param {Picture} to the window; every pixel is written
 */
export function lookThrough(from, [[a, b, c], [d, e, f]], to) {
  const { width, height, bytes } = from;
  const out = to.bytes;
  let at = 0;
  for (let row = 0; row < to.height; row++) {
    for (let column = 0; column < to.width; column++, at += 3) {
      const x = column * a + row * b + c, y = column * d + row * e + f;
      const left = Math.floor(x), top = Math.floor(y);
      const right = x - left, down = y - top;
      const inside = left >= 0 && top >= 0 && left < width - 1 && top < height - 1;
      for (let channel = 0; channel < 3; channel++) {
        const i = (top * width + left) * 3 + channel;
        let upper, lower;
        if (inside) {
          upper = bytes[i] + right * (bytes[i + 3] - bytes[i]);
          lower = bytes[i + width * 3] + right * (bytes[i + width * 3 + 3] - bytes[i + width * 3]);
        } else {
          const pixel = (/** @type {number} */ u, /** @type {number} */ v) =>
            u < 0 || v < 0 || u >= width || v >= height ? 0 : bytes[(v * width + u) * 3 + channel];
          upper = pixel(left, top) + right * (pixel(left + 1, top) - pixel(left, top));
          lower = pixel(left, top + 1) + right * (pixel(left + 1, top + 1) - pixel(left, top + 1));
        }
        out[at + channel] = roundEven(upper + down * (lower - upper));
      }
    }
  }
}

/**
 * Half as wide and high: means of four pixels.
 * @param {Picture} from
 * @param {Picture} to
 */
export function halve(from, to) {
  const line = from.width * 3;
  for (let row = 0, at = 0; row < to.height; row++) {
    for (let i = row * 2 * line; i < row * 2 * line + to.width * 6; i += 6) {
      for (let c = i; c < i + 3; c++) to.bytes[at++] = (from.bytes[c] + from.bytes[c + 3] + from.bytes[c + line] + from.bytes[c + line + 3] + 2) >> 2;
    }
  }
}
