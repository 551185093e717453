// All panels of the page behind one face: what a source of moments (live or replay) gives, they show.

import { DecisionPanel } from "./decision_panel.js";
import { $, known, put } from "./dom.js";
import { EventLog, weight } from "./event_log.js";
import { FrameView } from "./frame_view.js";
import { JumpList } from "./jump_list.js";
import { began, taken } from "./moment_history.js";
import { NetworkPanel } from "./network_panel.js";
import { Neurons } from "./neurons.js";
import { RingBuffer } from "./ring_buffer.js";
import { RunStatistics } from "./run_statistics.js";
import { StripCharts } from "./strip_charts.js";
import { TrackMap } from "./track_map.js";
import { onTheme } from "./theme.js";

// Five minutes at 50 Hz.
const CAPACITY = 15_000;
const MARKED = 200;
const THUMBNAIL_ROWS = 96;
// More than two windows of the longest memory, so that none is closed while it is drawn.
const MOST_THUMBNAILS = 80;

export class Dashboard {
  constructor() {
    this.frame = new FrameView($("frame"));
    this.decision = new DecisionPanel();
    this.network = new NetworkPanel();
    this.strips = new StripCharts($("strips"));
    this.map = new TrackMap($("map"));
    this.log = new EventLog($("events"), $("log-note"));
    this.jumps = new JumpList();
    this.statistics = new RunStatistics();
    // Whom the policy is compared with, for people.
    this.otherName = "the expert";
    this.ring = null;
    this.marks = [];
    this.asked = 0;
    this.shown = 0;
    this.described = 0;
    this.latest = null;
    this.thumbnails = new Map();
    // What the expert scored on a track, by its seed, where a card has let it drive.
    this.scores = new Map();
    onTheme(() => this.repaint());
  }

  describe({ title, circuit, choices, columns, network_input: input }, capacity = CAPACITY) {
    put($("title"), title);
    document.title = `${title} · nacdrive`;
    this.columns = columns;
    this.input = input ?? null;
    this.decision.setChoices(choices ?? []);
    this.network.setWiring(circuit);
    this.frame.describe(this.input);
    // Until there is a map: some drives have none.
    $("saliency-switch").hidden = true;
    this.map.clear();
    // Another drive may be in another world, where the same seed is another track.
    this.scores.clear();
    this.otherName = "the expert";
    this.described++;
    this.shown = ++this.asked;
    this.latest = null;
    $("legend-person").hidden = true;
    $("legend-expert").hidden = true;
    this.forget(capacity);
  }

  forget(capacity) {
    this.log.clear();
    this.jumps.clear();
    this.statistics.clear();
    this.marks = [];
    this.ring = new RingBuffer(this.columns, capacity);
  }

  // All rows and events from the start: of those that are here already they are the beginning.
  retell({ rows, events }) {
    this.forget(this.ring.capacity);
    for (const row of rows) this.push(row);
    for (const event of events) this.event(event);
  }

  state(name, text) {
    if ($("state").dataset.state !== name) $("state").dataset.state = name;
    put($("state"), text);
    if ($("state").title !== text) $("state").title = text;
  }

  // A sentence in place of the frame; '' takes it away.
  curtain(text) {
    if ($("curtain").hidden !== !text) $("curtain").hidden = !text;
    put($("curtain"), text);
  }

  push(row) {
    this.ring.push(row);
    this.jumps.observe(this.ring);
    const last = this.ring.length - 1;
    this.statistics.observe(this.ring, last);
    if ($("legend-person").hidden && this.ring.at(last, "person")) $("legend-person").hidden = false;
    if ($("legend-expert").hidden && known(this.ring.at(last, "expert_steering"))) $("legend-expert").hidden = false;
  }

  paused(on) {
    $("frame").parentElement.dataset.paused = on ? "yes" : "no";
  }

  event(event) {
    this.log.add(event);
    this.jumps.event(event);
    this.marks.push({ clock_s: event.clock_s, weight: weight(event.text) });
    if (this.marks.length > MARKED) this.marks.shift();
  }

  where(row) {
    put($("episode"), `${row.episode + 1}`);
    put($("seed"), `${row.seed}`);
    put($("step"), `${row.step}`);
    put($("time"), `${row.t_s.toFixed(1)} s`);
  }

  // One row of the ring as an object.
  row(i, ring = this.ring) {
    return Object.fromEntries(ring.columns.map((name) => [name, ring.at(i, name)]));
  }

  // A row of numbers as it came, as an object.
  named(values) {
    return Object.fromEntries(this.columns.map((name, i) => [name, values[i] ?? NaN]));
  }

  // Everything of one moment {row, parts, withNeurons, why, withSaliency}: its numbers, its frame, the last neurons, why and
  // saliency up to it (moments too), and the frames that were attended to.
  // frameAt(row, t_s): the encoded frame of that time, or a promise of it, or nothing.
  async show(moment, frameAt) {
    const ticket = ++this.asked;
    this.latest = [moment, frameAt];
    const { row, parts, withNeurons, why, withSaliency } = moment;
    const neurons = Neurons.of(withNeurons?.parts, withNeurons?.row.t_s);
    const [bitmap, film, looked] = await Promise.all([
      decodeFrame(parts.get("frame")),
      neurons ? this.film(neurons, withNeurons.row, frameAt) : null,
      this.frame.overlay && withSaliency ? decodeFrame(withSaliency.parts.get("frame")) : null,
    ]);
    // A later moment stands there already.
    if (ticket < this.shown) {
      bitmap?.close();
      looked?.close();
      return;
    }
    this.shown = ticket;
    this.where(row);
    this.decision.show(row, parts);
    if (bitmap) {
      this.frame.show(bitmap, row.t_s, looked && { frame: looked, map: withSaliency.parts.get("saliency"), t_s: withSaliency.row.t_s });
      const age = row.t_s - taken(row);
      if (age > 0.001) put($("frame-note"), `${this.frame.caption()} · ${age.toFixed(2)} s old`);
      if (this.shape !== bitmap.width / bitmap.height) {
        this.shape = bitmap.width / bitmap.height;
        $("frame").parentElement.style.aspectRatio = String(this.shape);
      }
    }
    if (withSaliency) $("saliency-switch").hidden = false;
    put($("saliency-note"), this.frame.note());
    this.network.show(neurons, row, film, why);
    this.map.show(this.ring, row);
  }

  // The same moment once more, after something about its drawing has changed.
  again() {
    if (this.latest) this.show(...this.latest);
  }

  // Small pictures of the frames that these neurons attend to, in the order of time.
  film(neurons, row, frameAt) {
    if (neurons.times.length < 2) return [];
    return Promise.all(Array.from(neurons.times, async (t_s) => {
      const key = `${this.described}/${row.episode}/${began(row).toFixed(3)}/${t_s.toFixed(3)}`;
      const kept = this.thumbnails.get(key);
      if (kept) return kept;
      const bitmap = await decodeFrame(await frameAt(row, t_s), THUMBNAIL_ROWS);
      if (!bitmap) return null;
      this.thumbnails.set(key, bitmap);
      if (this.thumbnails.size > MOST_THUMBNAILS) {
        const [oldest, picture] = this.thumbnails.entries().next().value;
        this.thumbnails.delete(oldest);
        picture.close();
      }
      return bitmap;
    }));
  }

  repaint() {
    for (const view of [this.frame, this.strips, this.map, this.decision.wheel]) view?.surface.touch();
    this.network?.refresh();
  }
}

// A bitmap of a frame as it travelled, at most so many pixels high.
function decodeFrame(part, height = Infinity) {
  if (!part) return Promise.resolve(null);
  const blob = new Blob([part.data], { type: `image/${part.kind}` });
  return createImageBitmap(blob, part.shape[0] > height ? { resizeHeight: height } : {});
}
