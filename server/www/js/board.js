// All views of the page behind one face: what a source of Ticks (live or replay) tells, they show.

import { DoesView, put } from "./does_view.js";
import { EventLog, weight } from "./event_log.js";
import { FrameView } from "./frame_view.js";
import { Ring } from "./ring.js";
import { Strips } from "./strips.js";
import { WhyView } from "./why_view.js";
import { onTheme } from "./theme.js";

const $ = (id) => document.getElementById(id);
const CAPACITY = 2400;
const MARKED = 60;

export class Board {
  constructor() {
    this.frame = new FrameView($("frame"));
    this.does = new DoesView();
    this.why = new WhyView();
    this.strips = new Strips($("strips"));
    this.log = new EventLog($("events"), $("log-note"));
    this.ring = null;
    this.marks = [];
    onTheme(() => this.repaint());
  }

  describe({ title, circuit, choices, columns }, capacity = CAPACITY) {
    put($("title"), title);
    document.title = `${title} · nacdrive`;
    this.does.setChoices(choices ?? []);
    this.why.setPlan(circuit);
    this.why.attention.clear();
    this.frame.clear();
    this.log.clear();
    this.marks = [];
    $("legend-person").hidden = true;
    this.ring = new Ring(columns, capacity);
  }

  state(name, text) {
    if ($("state").dataset.state !== name) $("state").dataset.state = name;
    put($("state"), text);
  }

  // A sentence in place of the frame; '' takes it away.
  curtain(text) {
    if ($("curtain").hidden !== !text) $("curtain").hidden = !text;
    put($("curtain"), text);
  }

  push(row) {
    this.ring.push(row);
    if (row[this.ring.columns.indexOf("person")] && $("legend-person").hidden) $("legend-person").hidden = false;
  }

  paused(on) {
    $("frame").parentElement.dataset.paused = on ? "yes" : "no";
  }

  event(event) {
    this.log.add(event);
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

  // Everything of one Tick: its numbers, its frame and what came with it.
  show(row, bitmap, parts, gap) {
    this.where(row);
    this.does.show(row, parts);
    if (bitmap) {
      this.why.attention.keep(row.seq, bitmap);
      this.frame.show(bitmap, parts.get("saliency"));
      if (this.shape !== bitmap.width / bitmap.height) {
        this.shape = bitmap.width / bitmap.height;
        $("frame").parentElement.style.aspectRatio = this.shape;
      }
      put($("frame-note"), `what the network sees, ${bitmap.width} × ${bitmap.height}`);
    }
    if (parts?.has("saliency")) put($("saliency-note"), "");
    else if (!this.frame.saliency) put($("saliency-note"), "(none in this drive)");
    this.why.show(parts, row.seq, gap);
  }

  repaint() {
    for (const view of [this.frame, this.strips, this.does.wheel]) view?.surface.touch();
    this.why?.refresh();
  }
}
