// The axis below a chart: upright lines at round places, each with its label.

import { font, rem } from "./canvas.js";
import { colours } from "./theme.js";

const SECONDS = [1, 2, 5, 10, 20, 30, 60, 120, 300];
const METRES = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000];
const LABEL_ROOM = 4.2; // rem from one label to the next

/**
 * @param {CanvasRenderingContext2D} c
 * @param {(place: number) => number} x of a place in pixels, linear
 * @param {[number, number]} ends first and last place
 * @param {number} bottom of the lines in pixels; the labels stand below
 * @param {{unit?: "s" | "m", origin?: number, named?: string}} [labels] origin: the place that is called 0, or `named`
 */
export function drawAxis(c, x, [from, to], bottom, { unit = "s", origin = 0, named = "" } = {}) {
  const u = rem();
  const steps = unit === "s" ? SECONDS : METRES;
  const step = steps.find((s) => x(s) - x(0) > LABEL_ROOM * u) ?? steps.at(-1);
  c.font = font(0.82);
  c.textAlign = "center";
  c.textBaseline = "alphabetic";
  c.lineWidth = 1;
  for (let k = Math.ceil((from - origin) / step - 1e-9); origin + k * step <= to + 1e-9; k++) {
    const at = Math.round(x(origin + k * step)) + 0.5;
    c.strokeStyle = colours.line;
    c.beginPath();
    c.moveTo(at, 0);
    c.lineTo(at, bottom);
    c.stroke();
    c.fillStyle = colours.dim;
    c.fillText(named && k === 0 ? named : `${k * step} ${unit}`.replace("-", "−"), at, bottom + 1.1 * u);
  }
}
