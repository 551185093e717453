// A running drive: every message is kept for five minutes; the newest one is seen, or the one at which a person holds.

import { Cards } from "./cards.js";
import { ControlBar } from "./control_bar.js";
import { $, put } from "./dom.js";
import { EndCard } from "./end_card.js";
import { HistoryBar } from "./history_bar.js";
import { JumpPanel } from "./jump_panel.js";
import { LiveSource } from "./live_source.js";
import { KEPT_S, MomentHistory } from "./moment_history.js";
import { clearAddress, fromAddress, putAddress, toAddress } from "./moment_link.js";
import { openOne } from "./one.js";

const SPAN_S = 30;
const SILENCE_MS = 2500;

function startLive(dashboard) {
  let status = "";
  let connection = "connecting";
  let hasFrame = false;
  let stopped = false;
  let lastFrameMs = 0;
  let result = null;
  let about = null;
  // Time of the last moment of the drive before.
  let ended_s = -Infinity;
  // What came since hello, until what was before it has come.
  /** @type {{rows: number[][], events: any[], asked: boolean} | null} */
  let since = null;
  const history = new MomentHistory();
  const endCard = new EndCard($("end-card"));
  const controls = new ControlBar($("controls"), () => dashboard.ring && showState());
  const wanted = fromAddress();
  const notes = [];
  let shown = null;
  const bar = new HistoryBar($("history"), { hold: holdAt, step, live: backToLive });
  const cards = new Cards({
    dashboard,
    tool: (button) => bar.slider.before(button),
    hold: () => holdAt(bar.newest),
    moment: () => shown && { seq: shown.row.seq },
    changed: address,
    refresh: showResult,
    send: (command) => controls.send(command),
  });
  const jumps = new JumpPanel(dashboard, {
    go: (entry) => holdAt(entry.clock_s),
    notes: () => notes,
    note: (text) => shown && notes.push({ clock_s: shown.row.clock_s, t_s: shown.row.t_s, episode: shown.row.episode, text }),
  });
  dashboard.log.onPick = (event) => holdAt(event.clock_s);

  // The moment that is held stands in the address.
  function address() {
    if (bar.held === null || !shown) return clearAddress();
    const { episode, t_s } = shown.row;
    const head = dashboard.network.chosen ? dashboard.network.head : null;
    putAddress(toAddress({ episode, t_s, head, more: cards.link() }));
  }
  dashboard.strips.onSeek = (t) => Number.isFinite(t) && holdAt(t);

  // What the drive does now, in the pill and over the frame.
  function showState() {
    if (connection === "ended") {
      dashboard.state("ended", "The drive has ended");
      dashboard.curtain(hasFrame ? "" : "The drive has ended.");
      return;
    }
    if (connection !== "open") return;
    const silent = performance.now() - lastFrameMs > SILENCE_MS;
    const { paused, person, needs_person: waits } = controls.state;
    dashboard.paused(paused && hasFrame);
    if (bar.held !== null) {
      dashboard.state("paused", "Held");
      dashboard.curtain("");
    } else if (status) {
      // The whole sentence stands over the frame.
      dashboard.state(/^safety stop/i.test(status) ? "stop" : "waiting", status.split(" (")[0]);
      dashboard.curtain(silent || !hasFrame ? status : "");
    } else if (waits && person === null) {
      dashboard.state("waiting", "Nobody drives");
      dashboard.curtain("The car waits for you: press Take the wheel.");
    } else if (hasFrame && paused) {
      dashboard.state("paused", "Paused");
      dashboard.curtain("");
    } else if (!hasFrame) {
      dashboard.state("waiting", "Waiting for the first frame …");
      dashboard.curtain("Waiting for the first frame …");
    } else {
      const over = dashboard.ring.at(dashboard.ring.length - 1, "done") === 1;
      if (stopped) dashboard.state("stop", "Safety stop");
      else if (over && (silent || !endCard.hidden)) dashboard.state("ended", "Episode over");
      else if (silent) dashboard.state("waiting", "No new frames");
      else if (person !== null) dashboard.state("person", controls.mine ? "You drive" : "A person drives");
      else dashboard.state("live", "Live");
      dashboard.curtain("");
    }
  }

  function hello(description) {
    connection = "open";
    about = null;
    dashboard.describe(description);
    controls.allow(description.control);
    ended_s = history.newest?.clock_s ?? ended_s;
    history.clear((row) => dashboard.named(row));
    jumps.pick(jumps.tab);
    if (wanted.head !== null) dashboard.network.want(wanted.head);
    shown = null;
    result = null;
    endCard.hide();
    bar.show(history, null);
    clearAddress();
    // No moment of the drive before is a moment of this one.
    cards.each("hold", null, null);
    cards.each("live");
    hasFrame = stopped = false;
    status = "";
    since = { rows: [], events: [], asked: false };
    showState();
    cards.expect(description, () => {
      // What came before they were there.
      if (about) cards.each("about", about);
      cards.each("restore", wanted.given, false);
    });
  }

  async function message(decoded, data) {
    await show(decoded, data);
    cards.arrive();
    if (since?.rows.length && !since.asked) recall();
  }

  // What was before this page came, for its lists, counts and charts; the picture does not wait for it.
  async function recall() {
    const own = since;
    const seq = dashboard.columns.indexOf("seq");
    own.asked = true;
    const past = own.rows[0][seq] > 1 ? await fetch("past").then((answer) => answer.json()).catch(() => null) : null;
    if (since !== own) return;
    since = null;
    if (!past) return;
    const [last, n] = [past.rows.at(-1)[seq], past.events.at(-1)?.n ?? 0];
    const events = [...past.events, ...own.events.filter((event) => event.n > n)];
    dashboard.retell({ rows: [...past.rows, ...own.rows.filter((row) => row[seq] > last)], events });
    for (const { text } of events) judge(text);
    dashboard.again();
    drawStrips();
  }

  function judge(text) {
    if (text === "started" || /^sound decisions again/i.test(text)) stopped = false;
    if (/^safety stop/i.test(text)) stopped = true;
  }

  async function show({ header, parts }, data) {
    if (header.about) {
      ({ status, result } = header.about);
      if (header.about.control.person !== undefined) controls.show(header.about.control);
      showResult();
      about = header.about;
      cards.each("about", about);
    }
    const [lane] = header.lanes;
    since?.rows.push(...lane.rows);
    since?.events.push(...lane.events);
    for (const row of lane.rows) dashboard.push(row);
    for (const event of lane.events) {
      dashboard.event(event);
      judge(event.text);
    }
    if (!header.ticks.length) return showState();
    const moment = history.add(data, { header, parts });
    lastFrameMs = performance.now();
    if (!hasFrame) {
      hasFrame = true;
      bar.reveal();
      // Notes are of one drive, which a line that broke does not end.
      if (moment.row.clock_s < ended_s) notes.length = 0;
      jumps.pick(jumps.tab);
    }
    showState();
    if (bar.held === null) shown = moment;
    if (bar.held === null && !document.hidden) await dashboard.show(moment, history.frameAt);
    drawStrips();
    bar.show(history, dashboard.ring.at(dashboard.ring.length - 1, "clock_s"));
  }

  // The expert's score is shown where it is known: the drive says it, or the expert was asked for its line here.
  function showResult() {
    endCard.show(result && { ...result, expert_return: result.expert_return ?? dashboard.scores.get(result.track) });
  }

  function drawStrips() {
    const last = dashboard.ring.at(dashboard.ring.length - 1, "clock_s");
    // The charts stand still with the rest while a person holds, and go along only when the moment leaves them.
    const now = bar.held === null ? last : Math.min(last, Math.max(bar.edge, bar.held));
    dashboard.strips.show({ ring: dashboard.ring, t0: now - SPAN_S, t1: now, now: bar.held ?? now, live: bar.held === null, events: dashboard.marks });
  }

  // Hold the moment at time t of the axis: everything on the page is of that moment.
  async function holdAt(t) {
    const moment = history.near(t);
    if (!moment) return;
    if (t < history.moments[0].clock_s - 0.1) return put($("history-note"), "this browser has no picture of that moment");
    const last = dashboard.ring.at(dashboard.ring.length - 1, "clock_s");
    if (bar.held === null) bar.edge = last;
    bar.held = moment.row.clock_s;
    if (bar.held > bar.edge || bar.held < bar.edge - SPAN_S) bar.edge = Math.min(last, bar.held + SPAN_S / 2);
    bar.show(history, last);
    showState();
    drawStrips();
    shown = moment;
    cards.each("hold", { seq: moment.row.seq }, moment.row);
    address();
    dashboard.network.still();
    await dashboard.show(moment, history.frameAt);
  }

  function step(n) {
    const at = bar.held ?? dashboard.ring.at(dashboard.ring.length - 1, "clock_s");
    const moment = history.near(at, n);
    if (moment) holdAt(moment.row.clock_s);
  }

  function backToLive() {
    bar.held = null;
    const { newest } = history;
    cards.each("hold", null, null);
    cards.each("live");
    clearAddress();
    bar.show(history, dashboard.ring.at(dashboard.ring.length - 1, "clock_s"));
    showState();
    if (newest) dashboard.show((shown = history.view(newest)), history.frameAt);
    drawStrips();
  }

  function closed(ended) {
    // Said once by the drive, true until the next one says hello: a failed attempt to connect is no news then.
    if (ended || connection === "ended") {
      connection = "ended";
      return showState();
    }
    connection = "lost";
    dashboard.state("lost", hasFrame ? "Connection lost, trying again" : "No drive here, trying again");
    dashboard.curtain(hasFrame ? "" : "No drive is running here. This page connects by itself as soon as one begins.");
    if (hasFrame) put($("does-note"), "the last that came before the connection was lost");
  }

  put($("history-note"), `${KEPT_S / 60} minutes are kept in this browser`);
  new LiveSource({ hello, message, closed, several: false });
  setInterval(() => dashboard.ring && showState(), 1000);
}

startLive(openOne().dashboard);
