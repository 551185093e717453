// Puts the page together: asks what is served (a running drive or recordings) and shows it.

import { Board } from "./board.js";
import { toggleTheme } from "./theme.js";
import { savePng } from "./snapshot.js";

const board = new Board();
const $ = (id) => document.getElementById(id);

$("theme").addEventListener("click", toggleTheme);
$("png").addEventListener("click", () => savePng());
$("saliency").addEventListener("change", (e) => board.frame.setOverlay(e.target.checked));
document.addEventListener("keydown", (press) => {
  if (press.ctrlKey || press.metaKey || press.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(press.target.tagName) && press.target.type !== "checkbox") return;
  const key = press.key.toLowerCase();
  if (key === "t") toggleTheme();
  if (key === "p") savePng();
  if (key === "s") $("saliency").click();
});

const answer = await fetch("/what");
const { mode } = await answer.json();
if (mode === "replay") {
  const { startReplay } = await import("./replay.js");
  startReplay(board);
} else {
  const { startLive } = await import("./live.js");
  startLive(board);
}
