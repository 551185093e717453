// Puts the page together: asks what is served (a running drive or recordings) and shows it.

import { Dashboard } from "./dashboard.js";
import { $ } from "./dom.js";
import { StatisticsCard } from "./statistics_card.js";
import { toggleTheme } from "./theme.js";
import { savePng } from "./png_export.js";
import { togglePresentation } from "./presentation.js";
import { Tour } from "./tour.js";

const dashboard = new Dashboard();
const tour = new Tour();
const names = () => ({ own: $("legend-a").textContent, other: dashboard.otherName, choices: dashboard.decision.names });
const statistics = new StatisticsCard(dashboard.statistics, names);

$("theme").addEventListener("click", toggleTheme);
$("png").addEventListener("click", () => savePng());
$("over-run").addEventListener("click", () => statistics.open());
$("help").addEventListener("click", () => $("words").showModal());
$("tour").addEventListener("click", () => {
  $("words").close();
  tour.start();
});
$("saliency").addEventListener("change", (e) => {
  dashboard.frame.setOverlay(e.target.checked);
  dashboard.again();
});
$("only-input").addEventListener("change", (e) => dashboard.frame.setOnlyInput(e.target.checked));
document.addEventListener("keydown", (press) => {
  if (press.ctrlKey || press.metaKey || press.altKey || $("words").open || $("statistics").open || /^(INPUT|SELECT|TEXTAREA)$/.test(press.target.tagName) && press.target.type !== "checkbox") return;
  const key = press.key.toLowerCase();
  if (key === "t") toggleTheme();
  if (key === "p") savePng();
  if (key === "a") statistics.open();
  if (key === "f") togglePresentation();
  if (key === "s") $("saliency").click();
  if (key === "n" && !$("input-switch").hidden) $("only-input").click();
  if (key === "?") $("help").click();
});

const answer = await fetch("/what");
const { mode } = await answer.json();
if (mode === "replay") {
  const { startReplay } = await import("./replay.js");
  startReplay(dashboard, statistics);
} else {
  const { startLive } = await import("./live.js");
  startLive(dashboard);
}
