// Light or dark: as the system says until someone presses the button, which is remembered in this browser.

const root = document.documentElement;
const listeners = [];
const system = matchMedia("(prefers-color-scheme: dark)");

function remembered() {
  try { return localStorage.getItem("nacdrive-theme"); } catch { return null; }
}

function apply() {
  root.dataset.theme = remembered() ?? (system.matches ? "dark" : "light");
  for (const listener of listeners) listener();
}

export function toggleTheme() {
  try {
    localStorage.setItem("nacdrive-theme", root.dataset.theme === "dark" ? "light" : "dark");
    apply();
  } catch {
    root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
    for (const listener of listeners) listener();
  }
}

export function onTheme(listener) {
  listeners.push(listener);
}

// The colours of tokens.css for the canvases, read again when the theme changes.
export const colours = {};

function read() {
  const style = getComputedStyle(root);
  for (const name of ["bg", "card", "sunk", "ink", "dim", "line", "policy", "expert", "go", "stop", "other", "person", "alert", "supports", "opposes", "c1", "c2", "c3", "c4", "c5", "c6"]) {
    colours[name] = style.getPropertyValue(`--${name}`).trim();
  }
  for (const name of ["low", "high", "rest"]) {
    colours[name] = style.getPropertyValue(`--${name}`).split(",").map(Number);
  }
}

// -1 .. 1 as a colour: blue below, grey at rest, orange above.
export function activity(value) {
  const v = Math.max(-1, Math.min(1, Number.isFinite(value) ? value : 0));
  const to = v < 0 ? colours.low : colours.high;
  // Steep near zero, so that small activities are seen too.
  const share = Math.abs(v) ** 0.6;
  const mix = colours.rest.map((c, i) => Math.round(c + (to[i] - c) * share));
  return `rgb(${mix[0]},${mix[1]},${mix[2]})`;
}

listeners.push(read);
system.addEventListener("change", apply);
apply();
