// Puts the page together: asks what is served (a running drive or recordings) and shows it.

import { Dashboard } from "./dashboard.js";
import { $, dialog, input, onKeys } from "./dom.js";
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
$("help").addEventListener("click", () => dialog("words").showModal());
$("tour").addEventListener("click", () => {
  dialog("words").close();
  tour.start();
});
$("saliency").addEventListener("change", () => {
  dashboard.frame.setOverlay(input("saliency").checked);
  dashboard.again();
});
$("only-input").addEventListener("change", () => dashboard.frame.setOnlyInput(input("only-input").checked));
onKeys({
  t: toggleTheme,
  p: savePng,
  a: () => statistics.open(),
  f: togglePresentation,
  s: () => $("saliency").click(),
  n: () => !$("input-switch").hidden && $("only-input").click(),
  "?": () => $("help").click(),
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
