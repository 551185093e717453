// Recorded runs on the board: a playhead in this browser, frames fetched around it, a second run on the same axis.

import { EpisodeStore } from "./episode_store.js";
import { PlayerBar } from "./player_bar.js";
import { Playhead } from "./playhead.js";
import { put } from "./does_view.js";
import { download } from "./snapshot.js";

const $ = (id) => document.getElementById(id);
const WINDOW = 16;
const WHOLE_S = 45;
const SPAN_S = 30;

export async function startReplay(board) {
  const { title, columns, runs } = await (await fetch("/replay/runs")).json();
  let store = null;
  let other = null;
  let chosen = [0, 0];
  let shown = -1;
  let drawing = false;
  let asked = 0;

  const head = new Playhead(() => refresh());
  const bar = new PlayerBar($("player"), {
    toggle: () => head.play(!head.playing),
    step: (n) => stepBy(n),
    seek: (t) => head.seek(t),
    speed: (x) => { head.speed = x; },
    pick,
    compare,
    video: () => store && download(`${store.base}/video.mp4`),
  });
  bar.list(runs);

  async function pick(run, episode) {
    const ticket = ++asked;
    chosen = [run, episode];
    head.play(false);
    board.state("waiting", "Reading the episode …");
    board.curtain(runs[run].circuit ? "The policy looks at the recorded frames …" : "Reading the episode …");
    const fresh = await new EpisodeStore(run, episode, columns).open();
    if (ticket !== asked) return;
    store = fresh;
    put($("legend-a"), runs[run].circuit ? "policy" : "driven");
    board.why.without = "Replay with --model to see what a policy's neurons do here.";
    board.describe({ title: `${title} · ${runs[run].name}`, circuit: runs[run].circuit, choices: runs[run].choices, columns }, 1);
    board.log.onPick = (event) => head.seek(event.clock_s);
    board.ring = store.ring;
    for (const event of store.events) board.event(event);
    shown = -1;
    board.curtain("");
    head.load(store.ring.at(0, "clock_s"), store.ring.at(store.length - 1, "clock_s"));
    head.play(true);
  }

  async function compare(run, episode) {
    other = run === null ? null : (await new EpisodeStore(run, episode, columns).open()).ring;
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
    board.state("replay", head.playing ? `Replay ${head.speed} ×` : "Paused");
    strips();
    const step = Math.max(0, store.ring.upTo(head.time));
    if (step !== shown && !drawing) draw(step);
  }

  function strips() {
    const whole = head.end - head.start <= WHOLE_S;
    const t0 = whole ? head.start : Math.max(head.start, Math.min(head.end - SPAN_S, head.time - SPAN_S / 2));
    const t1 = whole ? Math.max(head.end, other ? other.at(other.length - 1, "clock_s") : 0) : t0 + SPAN_S;
    put($("charts-b"), whole ? "Whole episode" : "30 s around here");
    board.strips.show({ ring: store.ring, other, t0, t1, now: head.time, live: false, events: board.marks });
  }

  // Shows a step: its frame, and the frames of the window before it for the film strip.
  async function draw(step) {
    drawing = true;
    const source = store;
    try {
      const { parts } = (source.tick(step) ?? await source.whole(step)) || {};
      if (!parts || source !== store) return;
      await film(source, step);
      if (source !== store) return;
      shown = step;
      const gap = source.ring.at(step, "clock_s") - source.ring.at(step - 1, "clock_s");
      board.show(board.row(step), board.why.attention.film.get(step + 1) ?? null, parts, gap);
    } finally {
      drawing = false;
    }
    // The playhead has gone on meanwhile.
    if (Math.max(0, store.ring.upTo(head.time)) !== shown) refresh();
  }

  async function film(source, step) {
    const strip = board.why.attention;
    const from = runs[chosen[0]].circuit ? Math.max(0, step - WINDOW + 1) : step;
    for (let i = from; i <= step; i++) {
      if (strip.film.has(i + 1)) continue;
      const jpeg = (source.tick(i) ?? await source.whole(i))?.parts.get("frame");
      if (!jpeg) continue;
      const bitmap = await createImageBitmap(new Blob([jpeg.data], { type: "image/jpeg" }));
      if (source === store) strip.keep(i + 1, bitmap);
    }
  }

  board.strips.onSeek = (t) => Number.isFinite(t) && head.seek(t);
  document.addEventListener("keydown", (press) => {
    if (!store || press.ctrlKey || press.metaKey || press.altKey || /^(BUTTON|SELECT)$/.test(press.target.tagName) && press.key === " ") return;
    if (press.target.tagName === "SELECT" || (press.target.type === "range" && press.key.startsWith("Arrow"))) return;
    const act = {
      " ": () => head.play(!head.playing),
      ",": () => stepBy(-1),
      ".": () => stepBy(1),
      ArrowLeft: () => head.seek(head.time - 1),
      ArrowRight: () => head.seek(head.time + 1),
      Home: () => head.seek(head.start),
      End: () => head.seek(head.end),
    }[press.key];
    if (!act) return;
    press.preventDefault();
    act();
  });
  await pick(0, 0);
}
