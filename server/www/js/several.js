// The page of several lanes: who drives side by side on one track, compared at the same place of it.

import { ArenaMap } from "./arena_map.js";
import { Cards } from "./cards.js";
import { ControlBar } from "./control_bar.js";
import { DistanceCharts } from "./distance_charts.js";
import { $, button, fixed, known, onKeys, put } from "./dom.js";
import { LaneCards } from "./lane_cards.js";
import { LiveSource } from "./live_source.js";
import { openPage } from "./main.js";
import { Race } from "./race.js";
import { StandingsTable } from "./standings_table.js";
import { onTheme } from "./theme.js";

const SILENCE_MS = 2500;

function startSeveral() {
  /** @type {Race} */
  let race = null;
  let pictures = null;
  /** @type {ControlBar} */
  let controls = null;
  let about = { control: {}, result: null };
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
  const cards = new Cards({ send: (command) => controls.send(command) });
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
    pictures.show(rows, ranks);
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
    if (connection === "ended") return pill("ended", "The drive has ended");
    if (connection !== "open") return;
    const { paused, person, needs_person: waits } = controls?.state ?? {};
    const started = race.lanes.some((lane) => lane.length);
    curtain("");
    if (about.ranking) pill("ended", "Track over");
    else if (waits && person === null) {
      pill("waiting", "Nobody drives");
      curtain(`${started ? "The wheel is free and all stand still. " : ""}Press W to drive: ↑ gas, ↓ brake, ← → steer; gas and wheel may be held together. All wait for you.`);
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
    document.title = `${description.title} – nacdrive`;
    put($("title"), description.title);
    race = new Race(description);
    pictures = new LaneCards($("lanes"), race);
    about = { control: {}, result: null };
    // Where a person drives, it is the present that counts.
    if (description.people.length) view = "now";
    controls ??= new ControlBar($("controls"), () => race && draw(), "The contestants drive.");
    mayControl = description.control;
    allow(mayControl);
    draw();
    cards.expect(description, () => cards.each("about", about));
  }

  function allow(on) {
    controls.allow(on, race.lanes.some(({ person }) => person));
  }

  async function message({ header, parts }) {
    if (race.begin(header.attempt)) kept = looked = NaN;
    lastMs = performance.now();
    header.lanes.forEach(({ rows }, k) => race.lanes[k].push(rows, parts[k].get("frame"), parts[k].get("why")?.data));
    if (header.about) {
      ({ about } = header);
      // When the last track is over there is nothing left to pause or to start over.
      const over = Boolean(about.ranking && !about.ranking.following);
      if ($("controls").hidden !== (over || !mayControl)) allow(mayControl && !over);
      if (about.control.person !== undefined) controls.show(about.control);
      about.endings.forEach((ending, k) => { race.lanes[k].ending = ending; });
      put($("episode"), about.place ? fixed(about.place.episode + 1, 0) : "–");
      put($("seed"), about.place ? trackName(about.place) : "–");
      cards.each("about", about);
    }
    draw();
    // The next message is wanted when this one is on the screen.
    await new Promise((drawn) => (document.hidden ? setTimeout(drawn, 100) : requestAnimationFrame(drawn)));
    cards.arrive();
  }

  // A random road has the seed in its name.
  function trackName({ seed, track }) {
    return !track ? String(seed) : track.includes(":") ? track : `${seed} ${track}`;
  }

  function closed(ended) {
    if (ended || connection === "ended") {
      connection = "ended";
      curtain(race ? "" : "The drive has ended.");
      return pill("ended", "The drive has ended");
    }
    connection = "lost";
    pill("lost", race ? "Connection lost, trying again" : "No drive here, trying again");
  }

  onTheme(draw);
  onKeys({ v: () => setView(view === "place" ? "now" : "place"), Escape: () => controls?.mine || setView(view) });
  new LiveSource({ hello, message, closed, several: true });
  setInterval(() => race && draw(), 1000);
}

openPage();
startSeveral();
