// A running drive: every message goes onto the board; the newest one is what is seen.

import { Helm } from "./helm.js";
import { LiveSource } from "./live_source.js";

const SPAN_S = 30;
const SILENCE_MS = 2500;

export function startLive(board) {
  let status = "";
  let told = false;
  let stopped = false;
  let heard = 0;
  const helm = new Helm(document.getElementById("helm"), () => board.ring && $state() !== "lost" && settle());

  function settle() {
    const silent = performance.now() - heard > SILENCE_MS;
    const { paused, person, needs_person: waits } = helm.state;
    board.paused(paused && told);
    if (status) {
      // The whole sentence stands over the frame.
      board.state(/^safety stop/i.test(status) ? "stop" : "waiting", status.split(" (")[0]);
      board.curtain(silent || !told ? status : "");
    } else if (waits && person === null) {
      board.state("waiting", "Nobody is at the wheel");
      board.curtain("The car waits for you: press Take the wheel.");
    } else if (told && paused) {
      board.state("paused", "Paused");
      board.curtain("");
    } else if (!told) {
      board.state("waiting", "Waiting for the first frame …");
      board.curtain("Waiting for the first frame …");
    } else {
      const over = board.ring.at(board.ring.length - 1, "done") === 1;
      if (stopped) board.state("stop", "Safety stop");
      else if (silent) board.state("waiting", over ? "Episode over" : "No new frames");
      else if (person !== null) board.state("person", helm.mine ? "You drive" : "A person drives");
      else board.state("live", "Live");
      board.curtain("");
    }
  }

  function hello(description) {
    board.describe(description);
    helm.allow(description.control);
    told = false;
    status = "";
    settle();
  }

  async function message({ header, parts }) {
    if (header.status !== undefined) status = header.status;
    if (header.control?.person !== undefined) helm.show(header.control);
    for (const row of header.rows) board.push(row);
    for (const event of header.events) {
      board.event(event);
      if (event.text === "started" || /^sound decisions again/i.test(event.text)) stopped = false;
      if (/^safety stop/i.test(event.text)) stopped = true;
    }
    const jpeg = parts.get("frame");
    if (!jpeg || !board.ring.length) return settle();
    const bitmap = document.hidden ? null : await createImageBitmap(new Blob([jpeg.data], { type: "image/jpeg" }));
    heard = performance.now();
    told = true;
    settle();
    const last = board.ring.length - 1;
    const row = board.row(last);
    const gap = board.ring.at(last, "clock_s") - board.ring.at(last - 1, "clock_s");
    // The frame may be a Tick newer than the rows that came with it.
    if (bitmap && header.frame_seq !== row.seq) row.seq = header.frame_seq;
    board.show(row, bitmap, parts, gap);
    const now = row.clock_s;
    board.strips.show({ ring: board.ring, t0: now - SPAN_S, t1: now, now, live: true, events: board.marks });
  }

  function state(name) {
    if (name === "ended") {
      board.state("lost", "The drive has ended");
      if (!told) board.curtain("The drive has ended.");
    } else {
      board.state("lost", told ? "Connection lost, trying again" : "No drive here, trying again");
      if (!told) board.curtain("No drive is running here. This page connects by itself as soon as one begins.");
    }
  }

  new LiveSource({ hello, message, state });
  setInterval(() => $state() !== "lost" && board.ring && settle(), 1000);
}

const $state = () => document.getElementById("state").dataset.state;
