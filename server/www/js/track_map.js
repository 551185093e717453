// Where the car is, from above: the line it has driven on this track, the expert's line, and the ghosts of what if.

import { font, rem, yardstick } from "./canvas.js";
import { $, button, fixed, known, percent, put } from "./dom.js";
import { SECTORS, lapSeconds, passedSectors } from "./lap_times.js";
import { MapView } from "./map_view.js";
import { began, same } from "./moment_history.js";
import { colours } from "./theme.js";

const SPEED_STEPS = 16;

const places = (points) => points.map(({ x_m, y_m }) => [x_m, y_m]);

export class TrackMap extends MapView {
  constructor(canvas) {
    super(canvas, 90);
    this.bySpeed = false;
    // Whether a person chose the colours: then they stay.
    this.chosen = false;
    // Asked for the expert's line of the track that is shown; null where nobody can be asked.
    this.onExpert = null;
    this.paint = button("speed", () => this.chooseSpeed(), { title: "Colour the line by speed instead of by disagreement with the expert" });
    this.paint.setAttribute("aria-pressed", "false");
    this.ask = button("expert", () => this.onExpert?.(), { title: "Let the expert drive this track in another process, and lay its line beneath" });
    this.ask.setAttribute("aria-pressed", "false");
    this.ask.hidden = true;
    $("map-tools").append(this.paint, this.ask);
    this.clear();
  }

  clear() {
    this.ring = null;
    this.row = null;
    this.ghosts = null;
    this.expert = null;
    this.card.hidden = true;
  }

  chooseSpeed() {
    this.chosen = true;
    this.colourBySpeed(!this.bySpeed);
  }

  // Where nobody could disagree with the driver, speed tells more; a person's own choice stays.
  preferSpeed(on) {
    if (!this.chosen) this.colourBySpeed(on);
  }

  colourBySpeed(on) {
    this.bySpeed = on;
    this.paint.setAttribute("aria-pressed", String(this.bySpeed));
    this.surface.touch();
  }

  // lines: {edited, unedited} of points {x_m, y_m, ...}, and the road; null for none.
  setGhosts(lines) {
    this.ghosts = lines;
    this.surface.touch();
  }

  // line: {seed, points} of the expert on that track; null for none.
  setExpert(line) {
    this.expert = line;
    this.pressed();
    this.surface.touch();
  }

  // A line of another track is not shown.
  pressed() {
    this.ask.setAttribute("aria-pressed", String(this.expertLine.length > 0));
  }

  show(ring, row) {
    this.ring = ring;
    this.row = row;
    if (this.card.hidden === known(row.x_m)) {
      this.card.hidden = !known(row.x_m);
      this.surface.fit();
    }
    if (this.card.hidden) return;
    this.ask.hidden = !this.onExpert;
    this.pressed();
    put($("map-note"), this.note());
    this.surface.touch();
  }

  note() {
    const { row } = this;
    if (!known(row.progress)) return "the line driven so far";
    const passed = passedSectors(this.ring, this.rows(), row.t_s);
    const lap = passed.length ? passed.at(-1).lap : 0;
    const thirds = passed.filter((one) => one.lap === lap).map(({ seconds }) => seconds.toFixed(1));
    const laps = lapSeconds(passed).map((seconds) => seconds.toFixed(1));
    const parts = [`${percent(row.progress)} in ${fixed(row.t_s, 1)} s`];
    if (thirds.length) parts.push(`${lap ? `lap ${lap + 1}, ` : ""}thirds ${thirds.join(" · ")} s`);
    if (lap && laps.length) parts.push(`laps ${laps.join(" · ")} s`);
    // What has no room goes as a whole (see widgets.css): lines break between the parts alone.
    return parts.map((part, i) => `${i ? "· " : "\u200b"}${part}`.replaceAll(" ", "\u00a0")).join(" ");
  }

  // First and one past the last row of the episode that is shown.
  rows() {
    const { ring, row } = this;
    let end = ring.length;
    const isOwn = (i) => ring.at(i, "episode") === row.episode && same(began({ clock_s: ring.at(i, "clock_s"), t_s: ring.at(i, "t_s") }), began(row));
    while (end > 0 && !isOwn(end - 1)) end--;
    let first = end;
    while (first > 0 && ring.at(first - 1, "episode") === row.episode && (first === end || ring.at(first - 1, "t_s") < ring.at(first, "t_s"))) first--;
    return { first, end };
  }

  get expertLine() {
    return this.expert && this.expert.seed === this.row?.seed ? this.expert.points : [];
  }

  draw(c, width, height) {
    if (!this.row || this.card.hidden) return;
    const u = rem();
    const rows = this.rows();
    const { edited = [], unedited = [] } = this.ghosts ?? {};
    const driven = Array.from({ length: rows.end - rows.first }, (_, k) => [this.ring.at(rows.first + k, "x_m"), this.ring.at(rows.first + k, "y_m")]);
    const fitted = this.fit([...driven, ...places([...this.expertLine, ...edited, ...unedited])], [width, height], [2.4 * u, 2.4 * u], 40);
    if (!fitted) return;
    const { at, scale } = fitted;
    c.lineCap = c.lineJoin = "round";
    this.road(c, this.ghosts?.road, at, colours.line);
    this.path(c, places(this.expertLine), at, { colour: colours.expert, width: 0.45 * u, alpha: 0.35 });
    this.line(c, rows, at, u);
    this.sectorMarks(c, rows, at, u);
    if (this.ghosts) {
      this.path(c, places(unedited), at, { colour: colours.ink, width: 0.14 * u, dash: [0.3 * u, 0.35 * u] });
      this.path(c, places(edited), at, { colour: colours.stop, width: 0.26 * u });
    }
    this.car(c, this.row, at, u, colours.ink);
    if (this.ghosts?.edited.length) this.car(c, this.ghosts.edited.at(-1), at, u, colours.stop);
    yardstick(c, scale, height, u);
    this.legend(c, width, height, u);
  }

  // Where a third of the road was done, and how many seconds it took: beside the mark, where it covers least of the line
  // and no other word; left out where all places are taken.
  sectorMarks(c, rows, at, u) {
    const line = Array.from({ length: rows.end - rows.first }, (_, k) => at(this.ring.at(rows.first + k, "x_m"), this.ring.at(rows.first + k, "y_m")));
    const taken = [];
    for (const { i, lap, sector, seconds } of passedSectors(this.ring, rows, this.row.t_s).slice(-SECTORS)) {
      const [x, y] = [this.ring.at(i, "x_m"), this.ring.at(i, "y_m")];
      if (!known(x) || !known(y)) continue;
      const [px, py] = at(x, y);
      c.fillStyle = colours.card;
      c.strokeStyle = colours.ink;
      c.lineWidth = 0.12 * u;
      c.beginPath();
      c.arc(px, py, 0.32 * u, 0, 2 * Math.PI);
      c.fill();
      c.stroke();
      c.font = font(0.78, 600);
      c.textBaseline = "middle";
      c.textAlign = "left";
      const label = `${lap ? `${lap + 1}.` : ""}${sector + 1}: ${seconds.toFixed(1)} s`;
      const box = roomFor([px, py], [c.measureText(label).width, u], 0.6 * u, [this.surface.width, this.surface.height - 1.4 * u], line, taken);
      if (!box) continue;
      taken.push(box);
      // Over lines that may lie below.
      c.lineWidth = 0.3 * u;
      c.strokeStyle = colours.card;
      c.lineJoin = "round";
      c.strokeText(label, box[0], box[1] + u / 2);
      c.fillStyle = colours.ink;
      c.fillText(label, box[0], box[1] + u / 2);
    }
  }

  line(c, { first, end }, at, u) {
    let before = null;
    let fastest = 1;
    this.differs = false;
    if (this.bySpeed) for (let i = first; i < end; i++) fastest = Math.max(fastest, this.ring.at(i, "speed_mps") || 0);
    this.fastest = fastest;
    for (let i = first; i < end; i++) {
      const [x, y] = [this.ring.at(i, "x_m"), this.ring.at(i, "y_m")];
      if (!known(x) || !known(y)) {
        before = null;
        continue;
      }
      const here = at(x, y);
      if (before) {
        const differs = disagrees(this.ring, i);
        this.differs ||= differs;
        c.strokeStyle = this.bySpeed ? speedColour(this.ring.at(i, "speed_mps") / fastest) : this.ring.at(i, "person") ? colours.person : differs ? colours.expert : colours.policy;
        c.lineWidth = (this.bySpeed ? 0.26 : differs ? 0.34 : 0.18) * u;
        c.beginPath();
        c.moveTo(...before);
        c.lineTo(...here);
        c.stroke();
      }
      before = here;
    }
  }

  car(c, { x_m: x, y_m: y, heading_rad: heading }, at, u, colour) {
    if (!known(x) || !known(y)) return;
    c.save();
    c.translate(...at(x, y));
    c.rotate(-(known(heading) ? heading : 0));
    c.fillStyle = colour;
    c.strokeStyle = colours.card;
    c.lineWidth = 0.12 * u;
    c.beginPath();
    if (known(heading)) {
      c.moveTo(0.75 * u, 0);
      c.lineTo(-0.5 * u, 0.45 * u);
      c.lineTo(-0.25 * u, 0);
      c.lineTo(-0.5 * u, -0.45 * u);
      c.closePath();
    } else c.arc(0, 0, 0.45 * u, 0, 2 * Math.PI);
    c.fill();
    c.stroke();
    c.restore();
  }

  // Names of the lines that are there, in their colours, right below.
  legend(c, width, height, u) {
    const names = [];
    if (this.ghosts?.edited.length) names.push(["ghost", colours.stop]);
    if (this.ghosts?.unedited.length) names.push(["unedited", colours.ink]);
    if (this.expertLine.length) names.push(["expert", colours.expert]);
    else if (this.differs && !this.bySpeed) names.push(["the expert differs", colours.expert]);
    c.font = font(0.78, 600);
    c.textBaseline = "alphabetic";
    c.textAlign = "right";
    let x = width;
    if (this.bySpeed) {
      const wide = 4 * u;
      for (let i = 0; i < SPEED_STEPS; i++) {
        c.fillStyle = speedColour(i / (SPEED_STEPS - 1));
        c.fillRect(x - wide + (i * wide) / SPEED_STEPS, height - 0.75 * u, wide / SPEED_STEPS + 0.5, 0.45 * u);
      }
      c.fillStyle = colours.dim;
      c.fillText(`0 to ${this.fastest.toFixed(0)} m/s`, x, height - 1.05 * u);
      x -= wide + 1.2 * u;
    }
    for (const [name, colour] of names) {
      c.fillStyle = colour;
      c.fillText(name, x, height - 0.3 * u);
      x -= c.measureText(name).width + 0.7 * u;
    }
  }
}

/**
 * Where a word of this size beside a point covers the fewest points of a line and none of the boxes that are taken, within
 * [0, 0, ...limits]; null where it has no room.
 * @returns {number[] | null} its box [left, top, right, bottom]
 */
export function roomFor([px, py], [wide, high], gap, limits, line, taken) {
  const lefts = [px + gap, px - gap - wide, px - wide / 2];
  const tops = [py - high / 2, py - gap - high, py + gap];
  let best = null;
  let least = Infinity;
  for (const [i, left] of lefts.entries()) for (const [k, top] of tops.entries()) {
    if (i === 2 && k === 0) continue;
    const box = [left, top, left + wide, top + high];
    if (left < 0 || top < 0 || box[2] > limits[0] || box[3] > limits[1]) continue;
    if (taken.some((one) => box[0] < one[2] && one[0] < box[2] && box[1] < one[3] && one[1] < box[3])) continue;
    const covered = line.filter(([x, y]) => x > box[0] && x < box[2] && y > box[1] && y < box[3]).length;
    if (covered < least) [best, least] = [box, covered];
  }
  return best;
}

// Slow is dark blue, fast is yellow (viridis, thinned out), readable in both themes.
const SPEED_RAMP = [[70, 50, 126], [54, 92, 141], [39, 127, 142], [31, 161, 135], [74, 193, 109], [160, 218, 57], [240, 215, 40]];

function speedColour(share) {
  const x = Math.max(0, Math.min(1, share || 0)) * (SPEED_RAMP.length - 1);
  const i = Math.min(SPEED_RAMP.length - 2, Math.floor(x));
  return `rgb(${SPEED_RAMP[i].map((v, k) => Math.round(v + (SPEED_RAMP[i + 1][k] - v) * (x - i))).join()})`;
}

// Whether the expert would have done something else than what was driven.
export function disagrees(ring, i) {
  const [choice, expert] = [ring.at(i, "choice"), ring.at(i, "expert_choice")];
  if (known(choice) && known(expert)) return choice !== expert;
  return Math.abs(ring.at(i, "steering") - ring.at(i, "expert_steering")) >= 0.1;
}
