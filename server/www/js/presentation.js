// For a room full of people: the picture, the verb, one reason, all of it large.

import { $, onKeys, put } from "./dom.js";

export function togglePresentation() {
  const { dataset } = $("dashboard");
  const on = dataset.present !== "yes";
  if (on && dataset.whatIf === "open") return;
  dataset.present = on ? "yes" : "no";
  put($("large"), on ? "End" : "Large");
  // A browser that refuses the whole screen (a phone, a frame) shows it in its window.
  if (on) document.documentElement.requestFullscreen?.().catch(() => {});
  else if (document.fullscreenElement) document.exitFullscreen();
}

// Whoever drives hands back first.
onKeys({ Escape: () => $("dashboard")?.dataset.present === "yes" && $("controls").dataset.mine !== "yes" && togglePresentation() });

// Leaving the whole screen by the browser's own Esc ends it too.
document.addEventListener("fullscreenchange", () => {
  if (!document.fullscreenElement && $("dashboard").dataset.present === "yes") togglePresentation();
});
