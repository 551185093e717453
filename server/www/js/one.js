// The page of one drive, which goes on or was recorded: its switches and keys.

import { Dashboard } from "./dashboard.js";
import { $, dialog, input, onKeys } from "./dom.js";
import { openPage } from "./main.js";
import { togglePresentation } from "./presentation.js";
import { StatisticsCard } from "./statistics_card.js";
import { PAGE_STOPS, Tour } from "./tour.js";

export function openOne() {
  openPage();
  const dashboard = new Dashboard();
  const tour = new Tour(PAGE_STOPS, $("help"));
  const names = () => ({ own: $("legend-a").textContent, other: dashboard.otherName, choices: dashboard.decision.names });
  const statistics = new StatisticsCard(dashboard.statistics, names);
  $("over-run").addEventListener("click", () => statistics.open());
  $("tour").addEventListener("click", () => {
    dialog("words").close();
    tour.start();
  });
  $("saliency").addEventListener("change", () => {
    dashboard.frame.setOverlay(input("saliency").checked);
    dashboard.again();
  });
  $("only-input").addEventListener("change", () => dashboard.frame.setOnlyInput(input("only-input").checked));
  $("large").addEventListener("click", togglePresentation);
  onKeys({
    a: () => statistics.open(),
    f: togglePresentation,
    s: () => !$("saliency-switch").hidden && $("saliency").click(),
    n: () => !$("input-switch").hidden && $("only-input").click(),
  });
  return { dashboard, statistics };
}
