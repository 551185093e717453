// Decisions in words, built from numbers only; the same on the live page and on a shared one.

import { known } from "./dom.js";

/**
 * What an action does.
 * @param {{steering: number, throttle?: number, brake?: number}} action
 */
export function verb({ steering, throttle, brake }) {
  if (!known(steering)) return "–";
  if (brake > 0.05 && brake >= throttle) return "Brakes";
  if (steering < -0.05) return "Steers left";
  if (steering > 0.05) return "Steers right";
  return throttle > 0.05 ? "Accelerates" : throttle === undefined ? "Steers straight on" : "Coasts";
}

// The verb as another sentence needs it: "would steer left".
export function infinitive(row) {
  const doing = verb(row).toLowerCase();
  return { accelerates: "accelerate", coasts: "coast", brakes: "brake" }[doing] ?? doing.replace("steers", "steer");
}

export function side(steering) {
  return Math.abs(steering) < 0.005 ? "straight on" : `${steering < 0 ? "left" : "right"} ${Math.abs(steering).toFixed(2)}`;
}

// The wheel as a number: "left 0.13".
export const turn = (v) => (!known(v) ? "–" : v === 0 ? "0" : `${v < 0 ? "left" : "right"} ${Math.abs(v).toFixed(2)}`);

// A place beside the middle, with its side as a letter.
export const sideOf = (v) => (!known(v) ? "–" : v === 0 ? "0" : `${Math.abs(v).toFixed(2)} ${v < 0 ? "L" : "R"}`);
