// Recorded runs on the page: a playhead in this browser, frames fetched around it, a second run on the same axis.

import { Cards } from "./cards.js";
import { $, known, onKeys, put } from "./dom.js";
import { EndCard } from "./end_card.js";
import { EpisodeStore, Refusal } from "./episode_store.js";
import { JumpPanel } from "./jump_panel.js";
import { same, taken } from "./moment_history.js";
import { fromAddress, putAddress, toAddress } from "./moment_link.js";
import { openOne } from "./one.js";
import { PlayerBar } from "./player_bar.js";
import { Playhead } from "./playhead.js";
import { download } from "./png_export.js";
import { disagrees } from "./track_map.js";

const WHOLE_S = 45;
const SPAN_S = 30;
const RETRY_MS = 1000;
const REASON_MS = 800;
// A reason is shown no longer than this after its moment.
const REASON_S = 3;
// A saliency map is looked for so many decisions back.
const LOOK_BACK = 16;

async function startReplay({ dashboard, statistics }) {
  const listing = await (await fetch("replay/runs")).text();
  const { columns, runs } = JSON.parse(listing);
  /** @type {EpisodeStore} */
  let store = null;
  let other = null;
  let shown = -1;
  let drawing = false;
  // Of each list of the bar: how often an episode was asked for, and the one that came.
  const asked = { episodes: 0, others: 0 };
  const chosen = { episodes: null, others: null };
  let away = false;
  // What failed because the server is away: of each kind the latest.
  const unfinished = new Map();
  // Where the playhead stands while a refusal is shown.
  let refusedAt = NaN;
  let reason = null;
  let asking = false;
  /** @type {[number, number]} */
  let place = [0, 0];
  let notes = [];
  const wanted = fromAddress();
  const endCard = new EndCard($("end-card"));
  const jumps = new JumpPanel(dashboard, {
    go: (entry) => {
      head.play(false);
      head.seek(entry.clock_s);
    },
    notes: () => notes,
    note: (text) => {
      const { clock_s, t_s, episode } = dashboard.row(Math.max(0, shown));
      notes.push({ clock_s, t_s, episode, text });
      keepNotes();
    },
  });

  function notesKey() {
    return `nacdrive-notes:${runs[place[0]].name}/${place[1]}/${runs[place[0]].episodes[place[1]].seed}`;
  }

  function keepNotes() {
    try {
      localStorage.setItem(notesKey(), JSON.stringify(notes));
    } catch { /* a browser that keeps nothing: the notes last as long as the page */ }
  }

  function readNotes() {
    try {
      const kept = JSON.parse(localStorage.getItem(notesKey()) ?? "[]");
      return Array.isArray(kept) ? kept.filter((one) => Number.isFinite(one?.t_s) && typeof one.text === "string") : [];
    } catch {
      return [];
    }
  }

  // A moment that stands still is in the address, and may be asked what would be if.
  function address() {
    if (!store || shown < 0 || head.playing) return;
    const chosen = dashboard.network.chosen ? dashboard.network.head : null;
    putAddress(toAddress({ run: place[0], episode: place[1], t_s: store.ring.at(shown, "t_s"), head: chosen, more: cards.link() }));
  }

  function standing() {
    const still = store && shown >= 0 && !head.playing;
    cards.each("hold", still ? { run: place[0], episode: place[1], seq: shown + 1 } : null, still ? dashboard.row(shown) : null);
    if (still) address();
  }

  // What came of the episode, when it has been played to its end.
  function showEnd() {
    endCard.hide();
    if (!head.ended || !store) return;
    const { policy, expert, episodes } = runs[place[0]];
    const { driver, seed, expert_return: scored } = episodes[place[1]];
    const { ring } = store;
    const last = dashboard.row(store.length - 1);
    let [asked, same] = [0, 0];
    for (let i = 0; i < store.length; i++) {
      if (!known(ring.at(i, "expert_choice")) || !known(ring.at(i, "choice"))) continue;
      asked++;
      same += ring.at(i, "choice") === ring.at(i, "expert_choice") ? 1 : 0;
    }
    const itself = driver === expert;
    endCard.show({
      track: seed,
      ending: store.events.at(-1)?.text ?? "ended",
      driver: policy ? driver : null,
      policy,
      episode_return: last.episode_return,
      progress: last.progress,
      time_s: last.t_s,
      // Nobody is compared with itself.
      expert_agreement: asked && (policy || !itself) ? same / asked : NaN,
      expert_return: itself ? NaN : scored ?? dashboard.scores.get(seed),
    });
  }

  const head = new Playhead(() => refresh());
  const bar = new PlayerBar($("player"), {
    toggle: () => head.play(!head.playing),
    step: (n) => stepBy(n),
    seek: (t) => head.seek(t),
    speed: (x) => { head.speed = x; },
    pick: (run, episode) => guarded(() => pick(run, episode), "pick"),
    compare: (run, episode) => guarded(() => compare(run, episode), "compare"),
    video: () => store && download(`${store.base}/video.mp4`),
  });
  bar.list(runs);

  // Does what needs the server; where that is away, everything stands still, says so, and goes on when it is back. kind: of
  // what is to be done then; what is shown is drawn anew anyway.
  async function guarded(work, kind = "") {
    const source = store;
    unfinished.delete(kind);
    try {
      await work();
    } catch (error) {
      // Of an episode that is shown no more.
      if (!kind && source !== store) return;
      if (error instanceof Refusal) refused(error.message);
      else if (error instanceof TypeError) lost(work, kind);
      else throw error;
    }
  }

  // The sentence lies over what is shown until somebody goes on with that.
  function refused(sentence) {
    head.play(false);
    refusedAt = head.time;
    dashboard.state("stop", "Cannot be read");
    dashboard.curtain(sentence);
  }

  function lost(work, kind) {
    if (kind) unfinished.set(kind, work);
    const already = away;
    away = true;
    head.play(false);
    dashboard.state("lost", "The replay's server does not answer");
    if (already) return;
    const retry = setInterval(async () => {
      let there;
      try {
        there = await (await fetch("replay/runs")).text();
      } catch {
        return;
      }
      clearInterval(retry);
      // Another replay is served here now, or a drive.
      if (there !== listing) return location.reload();
      away = false;
      for (const [which, again] of unfinished) if (!away) await guarded(again, which);
      redraw();
    }, RETRY_MS);
  }

  // The episode that was chosen in a list of the bar, or null; undefined where another one was chosen meanwhile, and nobody
  // waits for this one or for its failure.
  async function read(list, run, episode) {
    const ticket = ++asked[list];
    try {
      const fresh = run === null ? null : await new EpisodeStore(run, episode, columns).open();
      if (ticket !== asked[list]) return undefined;
      chosen[list] = fresh && [run, episode];
      return fresh;
    } catch (error) {
      if (ticket !== asked[list]) return undefined;
      if (error instanceof Refusal) bar.choose(list, chosen[list]);
      throw error;
    }
  }

  async function pick(run, episode) {
    const { circuit, choices, network_input, name, policy, expert, episodes } = runs[run];
    head.play(false);
    refusedAt = NaN;
    dashboard.state("waiting", "Reading the episode …");
    dashboard.curtain(policy ? "The policy looks at the recorded frames …" : "Reading the episode …");
    const fresh = await read("episodes", run, episode);
    if (!fresh) return;
    store = fresh;
    place = [run, episode];
    notes = readNotes();
    reason = null;
    cards.describe(runs[run].cards, { choices });
    const { driver } = episodes[episode];
    // A policy that only looks on has driven nothing: speed, return and time are those of whoever drove.
    const who = policy ? `${policy} looks on, ${driver} drove` : `${driver} drove`;
    dashboard.network.without = "Replay with --model to see why a policy decides so here.";
    dashboard.describe({ title: `${who} · ${name}`, circuit, choices, columns, network_input }, 1);
    dashboard.decision.describe({ driver: policy ? driver : null, expert: !policy && expert && driver === expert ? expert : null });
    put($("legend-a"), policy ? `${policy} (looks on)` : driver);
    $("legend-driver").hidden = !policy;
    put($("legend-driver-name"), `${driver} (drove)`);
    dashboard.strips.driven = policy ? "ink" : "policy";
    dashboard.log.onPick = (event) => head.seek(event.clock_s);
    dashboard.ring = store.ring;
    learnJumps();
    const itself = !policy && Boolean(expert) && driver === expert;
    dashboard.statistics.clear({ itself, scores: Boolean(policy) });
    dashboard.otherName = store.has("expert_steering") ? expert ?? "the expert" : driver;
    count(store);
    statistics.allowMore(episodes.length > 1 ? () => guarded(() => countAll(fresh, run, episode), "count") : null);
    statistics.gathering("");
    // A driver beside whom nobody rode along, or who is the expert itself, is never contradicted.
    dashboard.map.preferSpeed(!contradicted());
    $("legend-expert").hidden = !store.has("expert_steering");
    for (const event of store.events) dashboard.event(event);
    shown = -1;
    jumps.pick(jumps.tab);
    cards.each("open", { store, name: { run, episode, seq: store.length }, redraw });
    dashboard.curtain("");
    head.load(store.ring.at(0, "clock_s"), store.ring.at(store.length - 1, "clock_s"));
    head.play(true);
  }

  function count(episode) {
    for (let i = 0; i < episode.length; i++) dashboard.statistics.observe(episode.ring, i, episode.driven?.[i]);
  }

  // Every other episode of the run beside the one that is shown; a policy that looks on takes its time for each.
  async function countAll(source, run, shownEpisode) {
    const { episodes } = runs[run];
    const others = [];
    try {
      for (let i = 0; i < episodes.length && source === store; i++) {
        statistics.gathering(`reading episode ${i + 1} of ${episodes.length} …`);
        if (i !== shownEpisode) others.push(await new EpisodeStore(run, i, columns).open());
      }
      if (source !== store) return;
      others.forEach(count);
      statistics.allowMore(null);
    } catch (error) {
      if (source !== store) return;
      if (error instanceof Refusal) put($("statistics-note"), error.message);
      throw error;
    } finally {
      if (source === store) statistics.gathering("");
    }
  }

  function contradicted() {
    for (let i = 0; i < store.length; i++) if (disagrees(store.ring, i)) return true;
    return false;
  }

  // What is worth a look in the whole episode, as it would have been found while it was driven.
  function learnJumps() {
    const part = Object.create(store.ring);
    for (let n = 1; n <= store.length; n++) {
      Object.defineProperty(part, "length", { value: n, configurable: true });
      dashboard.jumps.observe(part);
    }
  }

  async function compare(run, episode) {
    const fresh = await read("others", run, episode);
    if (fresh === undefined) return;
    other = fresh?.ring ?? null;
    $("legend-b").hidden = !other;
    if (other) put($("legend-b-name"), `${runs[run].name}, track ${runs[run].episodes[episode].seed}`);
    refresh();
  }

  function stepBy(n) {
    head.play(false);
    const at = Math.max(0, Math.min(store.length - 1, store.ring.upTo(head.time) + n));
    head.seek(store.ring.at(at, "clock_s"));
  }

  function refresh() {
    if (!store) return;
    bar.show(head);
    showEnd();
    if (known(refusedAt) && (head.playing || head.time !== refusedAt)) {
      refusedAt = NaN;
      dashboard.curtain("");
    }
    if (!away && !known(refusedAt)) dashboard.state(head.playing ? "replay" : "paused", head.playing ? `Replay ${head.speed} ×` : "Paused");
    strips();
    const step = Math.max(0, store.ring.upTo(head.time));
    if (step !== shown && !drawing && !away) guarded(() => draw(step));
    else if (step === shown || head.playing) standing();
  }

  // The moment that is shown once more: something about it has become known.
  function redraw() {
    shown = -1;
    refresh();
  }

  function strips() {
    const whole = head.end - head.start <= WHOLE_S;
    const t0 = whole ? head.start : Math.max(head.start, Math.min(head.end - SPAN_S, head.time - SPAN_S / 2));
    const t1 = whole ? Math.max(head.end, other ? other.at(other.length - 1, "clock_s") : 0) : t0 + SPAN_S;
    put($("charts-b"), whole ? "Whole episode" : "30 s around here");
    dashboard.strips.show({ ring: store.ring, other, t0, t1, now: head.time, live: false, events: dashboard.marks });
  }

  async function draw(step) {
    drawing = true;
    const source = store;
    try {
      const parts = await source.tick(step);
      if (!parts || source !== store) return;
      const row = dashboard.row(step);
      const moment = { row, parts };
      moment.withNeurons = moment;
      moment.why = reason && (head.playing ? reason.step <= step && row.t_s - reason.t_s < REASON_S : reason.step === step) ? reason : null;
      moment.withSaliency = dashboard.frame.overlay || step === 0 ? await lookedAt(source, step) : parts.has("saliency") ? moment : null;
      if (source !== store) return;
      shown = step;
      standing();
      if (!head.playing) dashboard.network.still();
      await dashboard.show(moment, (_, t_s) => frameAt(source, step, t_s));
      if (reason?.step !== step) guarded(() => ask(source, step));
    } finally {
      drawing = false;
    }
    // The playhead has gone on meanwhile.
    if (Math.max(0, store.ring.upTo(head.time)) !== shown) refresh();
  }

  // Why it decides so: asked of one step at a time, while it plays no faster than a sentence is read.
  async function ask(source, step) {
    if (asking || !runs[place[0]].policy) return;
    asking = true;
    try {
      const answer = await source.why(step);
      if (source !== store) return;
      reason = answer;
      if (answer && (head.playing || step === shown)) dashboard.network.answer(answer);
      if (head.playing) await new Promise((done) => setTimeout(done, REASON_MS));
    } finally {
      asking = false;
    }
    // The page has come to stand elsewhere meanwhile.
    if (source === store && !head.playing && shown !== step) guarded(() => ask(source, shown));
  }

  // The last decision up to step that has a saliency map.
  async function lookedAt(source, step) {
    for (let i = step; i >= Math.max(0, step - LOOK_BACK); i--) {
      const parts = await source.tick(i);
      if (parts?.has("saliency")) return { row: dashboard.row(i), parts };
    }
    return null;
  }

  async function frameAt(source, step, t_s) {
    for (let i = step; i >= 0 && source.ring.at(i, "t_s") > t_s - 1; i--) {
      const row = { t_s: source.ring.at(i, "t_s"), frame_t_s: source.ring.at(i, "frame_t_s") };
      if (same(taken(row), t_s)) return (await source.tick(i))?.get("frame");
    }
    return null;
  }

  $("saliency").addEventListener("change", redraw);
  dashboard.strips.onSeek = (t) => Number.isFinite(t) && head.seek(t);
  const opened = (act) => () => store && act();
  onKeys({
    " ": opened(() => head.play(!head.playing)),
    ",": opened(() => stepBy(-1)),
    ".": opened(() => stepBy(1)),
    ArrowLeft: opened(() => head.seek(head.time - 1)),
    ArrowRight: opened(() => head.seek(head.time + 1)),
    Home: opened(() => head.seek(head.start)),
    End: opened(() => head.seek(head.end)),
  });
  // Another link that is put into the address of this page.
  addEventListener("hashchange", () => location.reload());
  const cards = new Cards({
    dashboard,
    tool: (button) => bar.steps.append(button),
    hold: () => head.play(false),
    moment: () => store && { run: place[0], episode: place[1], seq: Math.max(0, shown) + 1 },
    changed: address,
    refresh,
  });
  await cards.load(new Set(runs.flatMap((run) => Object.keys(run.cards))));
  const there = runs[wanted.run ?? 0]?.episodes[wanted.episode ?? 0];
  await guarded(() => (there ? pick(wanted.run ?? 0, wanted.episode ?? 0) : pick(0, 0)), "pick");
  if (store && there && wanted.t_s !== null) {
    head.play(false);
    bar.choose("episodes", place);
    if (wanted.head !== null) dashboard.network.want(wanted.head);
    head.seek(wanted.t_s + store.ring.at(0, "clock_s") - store.ring.at(0, "t_s"));
    if (wanted.note) notes.push({ clock_s: head.time, t_s: wanted.t_s, episode: place[1], text: wanted.note });
    cards.each("restore", wanted.given, true);
  }
}

startReplay(openOne());
