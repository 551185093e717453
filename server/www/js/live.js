// A running drive: every message goes onto the board; the newest one is what is seen.

import { LiveSource } from "./live_source.js";

const SPAN_S = 30;
const SILENCE_MS = 2500;

export function startLive(board) {
  let status = "";
  let told = false;
  let heard = 0;

  function settle() {
    const silent = performance.now() - heard > SILENCE_MS;
    if (status) {
      board.state("waiting", status);
      if (silent || !told) board.curtain(status);
    } else if (!told) {
      board.state("waiting", "Waiting for the first frame …");
      board.curtain("Waiting for the first frame …");
    } else {
      const over = board.ring.at(board.ring.length - 1, "done") === 1;
      board.state(silent ? "waiting" : "live", !silent ? "Live" : over ? "Episode over" : "No new frames");
      board.curtain("");
    }
  }

  function hello(description) {
    board.describe(description);
    told = false;
    status = "";
    settle();
  }

  async function message({ header, parts }) {
    if (header.status !== undefined) status = header.status;
    for (const row of header.rows) board.ring.push(row);
    for (const event of header.events) board.event(event);
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
