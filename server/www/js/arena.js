// The arena's page: several contestants on one track, compared at the same place of it.

import { ArenaMap } from "./arena_map.js";
import { CameraSliders } from "./camera_sliders.js";
import { ControlBar } from "./control_bar.js";
import { DistanceCharts } from "./distance_charts.js";
import { $, button, dialog, fixed, known, onKeys, put } from "./dom.js";
import { LaneCards } from "./lane_cards.js";
import { LiveSource } from "./live_source.js";
import { savePng } from "./png_export.js";
import { Race } from "./race.js";
import { RankingCard } from "./ranking_card.js";
import { StandingsTable } from "./standings_table.js";
import { onTheme, toggleTheme } from "./theme.js";

const SILENCE_MS = 2500;

let race = null;
let cards = null;
let controls = null;
let sliders = null;
let about = {};
let connection = "connecting";
let mayControl = false;
let lastMs = 0;
let drawing = false;
// Which moment is shown of each: where all have been ("place") or the newest ("now").
let view = "place";
// Where a person looks with the pointer, and where one has clicked; NaN without.
let looked = NaN;
let kept = NaN;

const map = new ArenaMap($("map"));
const charts = new DistanceCharts($("strips"), {
  look: (place) => { looked = place; draw(); },
  keep: (place) => { kept = place; looked = NaN; draw(); },
});
const table = new StandingsTable($("standings"));
const ranking = new RankingCard($("ranking"), $("ranking-note"), $("ranking-body"));
const views = {
  place: button("Same place", () => setView("place"), { title: "What each saw where the last one is now (key V)", name: "Same place" }),
  now: button("Now", () => setView("now"), { title: "The newest picture of each (key V)", name: "Now" }),
};
$("views").append(views.place, views.now);

function setView(chosen) {
  view = chosen;
  kept = looked = NaN;
  draw();
}

function draw() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    if (race) show();
  });
}

function show() {
  const chosen = known(looked) ? looked : kept;
  const shared = race.sharedPlace;
  const now = view === "now" && !known(chosen);
  const place = known(chosen) ? chosen : shared;
  const { byTime, time } = race;
  const rows = race.lanes.map((lane) => (now ? lane.length - 1 : lane.index_at(place, byTime)));
  const order = race.order(time);
  const ranks = race.lanes.map((lane) => (race.lanes.some((one) => one.length) ? `${order.indexOf(lane) + 1} of ${race.lanes.length}` : ""));
  cards.show(rows, ranks);
  for (const [name, one] of Object.entries(views)) one.setAttribute("aria-pressed", String(name === view && !known(chosen)));
  const unit = byTime ? "s" : "m";
  const where = known(place) && Number.isFinite(place) ? `all at ${place.toFixed(byTime ? 1 : 0)} ${unit}` : "";
  put($("lanes-note"), now ? "the newest of each" : known(chosen) ? `${where}, ${known(looked) ? "under the pointer" : "kept: Esc lets go"}` : where);
  put($("charts-b"), byTime ? "Over the time" : "Over the distance");
  put($("charts-note"), byTime ? "this environment does not say where a car is on the track, so that all are compared at the same time" : `delta: to ${race.lanes[0].name}`);
  charts.show(race, Number.isFinite(place) ? place : NaN, known(chosen));
  table.show(race, time);
  map.show(race, time, now ? null : rows);
  put($("time"), known(time) && Number.isFinite(time) ? `${time.toFixed(1)} s` : "–");
  state();
}

function pill(name, text) {
  $("state").dataset.state = name;
  put($("state"), text);
}

function curtain(text) {
  $("curtain").hidden = !text;
  put($("curtain"), text);
}

function state() {
  if (connection === "ended") return pill("ended", "The arena has ended");
  if (connection !== "open") return;
  const { paused, person, needs_person: waits } = controls?.state ?? {};
  const started = race.lanes.some((lane) => lane.length);
  curtain("");
  if (about.result) pill("ended", "Track over");
  else if (waits && person === null) {
    pill("waiting", "Nobody drives");
    curtain("All stand still until somebody takes the wheel.");
  } else if (paused) pill("paused", "Paused");
  else if (!started) {
    pill("waiting", "Waiting for the first frame …");
    curtain("The contestants get ready …");
  } else if (performance.now() - lastMs > SILENCE_MS) pill("waiting", "No new frames");
  else if (person !== null && person !== undefined) pill("person", controls.mine ? "You drive" : "A person drives");
  else pill("live", "Live");
}

function hello(description) {
  connection = "open";
  document.title = `${description.title} – nacdrive arena`;
  put($("title"), description.title);
  race = new Race(description);
  cards = new LaneCards($("lanes"), race);
  about = {};
  // Where a person drives, it is the present that counts.
  if (description.people.length) view = "now";
  controls ??= new ControlBar($("controls"), () => race && draw(), { wheel: description.people.length > 0, driving: "The contestants drive." });
  mayControl = description.control;
  controls.allow(mayControl);
  sliders = new CameraSliders($("sliders"), $("camera-note"), (camera) => controls.send({ camera }), description.control);
  draw();
}

async function message({ header, parts }) {
  if (race.begin(header.attempt)) kept = looked = NaN;
  lastMs = performance.now();
  header.rows.forEach((rows, k) => {
    const part = parts.get(String(k));
    race.lanes[k].push(rows, part && { kind: part.kind, data: part.data });
  });
  if (header.about) {
    ({ about } = header);
    // When the last track is over there is nothing left to pause or to start over.
    const over = Boolean(about.result && !about.result.following);
    if ($("controls").hidden !== (over || !mayControl)) controls.allow(mayControl && !over);
    if (about.control.person !== undefined) controls.show(about.control);
    sliders.show(about.camera, about.since_s);
    about.endings.forEach((ending, k) => { race.lanes[k].ending = ending; });
    ranking.show(about.result, race.lanes.map((lane) => lane.name));
    put($("episode"), about.place ? fixed(about.place.episode + 1, 0) : "–");
    put($("seed"), about.place ? trackName(about.place) : "–");
  }
  draw();
  // The next message is wanted when this one is on the screen.
  await new Promise((drawn) => (document.hidden ? setTimeout(drawn, 100) : requestAnimationFrame(drawn)));
}

// A random road has the seed in its name.
function trackName({ seed, track }) {
  return !track ? String(seed) : track.includes(":") ? track : `${seed} ${track}`;
}

function closed(ended) {
  if (ended || connection === "ended") {
    connection = "ended";
    curtain(race ? "" : "The arena has ended.");
    return pill("ended", "The arena has ended");
  }
  connection = "lost";
  pill("lost", race ? "Connection lost, trying again" : "No arena here, trying again");
}

$("theme").addEventListener("click", toggleTheme);
onTheme(draw);
$("png").addEventListener("click", () => savePng());
$("help").addEventListener("click", () => dialog("words").showModal());
onKeys({
  t: toggleTheme,
  p: savePng,
  v: () => setView(view === "place" ? "now" : "place"),
  Escape: () => controls?.mine || setView(view),
  "?": () => $("help").click(),
});
new LiveSource({ hello, message, closed });
setInterval(() => race && draw(), 1000);
