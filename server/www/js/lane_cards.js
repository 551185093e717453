// The contestants side by side: of each the picture, the decision, how far and how fast, all of the moment that is asked for.

import { fixed, known, percent, put } from "./dom.js";
import { WhyPanel } from "./why_panel.js";
import { verb } from "./words.js";

// So many rows back a measurement of why is looked for.
const REASON_ROWS = 60;

export const colourOf = (index) => `c${index + 1}`;

// The number of a contestant in its colour: colours alone do not tell six apart for everybody.
export function badge(index) {
  const mark = document.createElement("span");
  mark.className = "badge";
  mark.style.setProperty("--lane", `var(--${colourOf(index)})`);
  mark.textContent = index + 1;
  return mark;
}

const element = (tag, className, text = "") => Object.assign(document.createElement(tag), { className, textContent: text });

function meter(name, centred, fill) {
  const root = element("div", "meter");
  const track = element("div", `track${centred ? " centre" : ""}`);
  const bar = element("i", `fill ${fill}`);
  track.append(bar);
  const output = document.createElement("output");
  root.append(element("span", "", name), track, output);
  return { root, bar, output };
}

class LaneCard {
  constructor(lane) {
    this.lane = lane;
    this.root = element("article", "lane");
    // Who drives by this picture needs it large.
    this.root.classList.toggle("person", lane.person);
    this.root.style.setProperty("--lane", `var(--${colourOf(lane.index)})`);
    const heading = document.createElement("h3");
    this.place = element("span", "place");
    heading.append(badge(lane.index), element("span", "name", lane.name), this.place);
    const frame = element("div", "frame");
    this.frame = frame;
    this.canvas = document.createElement("canvas");
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", `What ${lane.name} sees`);
    this.blank = element("p", "");
    frame.append(this.canvas, this.blank);
    this.verb = element("p", "verb", "–");
    this.sure = document.createElement("small");
    this.steering = meter("steering", true, "own");
    this.pedal = meter("gas", false, "go");
    this.line = element("p", "numbers-line");
    this.why = element("div", "reasons lane-why");
    this.why.hidden = true;
    this.root.append(heading, frame, this.verb, this.steering.root, this.pedal.root, this.line, this.why);
    this.measured = element("p", "dim small");
    this.reasons = new WhyPanel(this.why);
    this.why.append(this.measured);
    this.drawn = undefined;
  }

  // i: row; -1 where it has not been so far.
  show(i, rank) {
    const { lane } = this;
    put(this.place, rank);
    const behind = i < 0;
    const at = behind ? lane.length - 1 : i;
    const row = lane.row(at);
    const sure = known(row.sure) ? ` ${percent(row.sure)} sure` : row.person ? " by a person" : "";
    if (this.verb.firstChild?.data !== verb(row) || this.sure.textContent !== sure) {
      this.sure.textContent = sure;
      this.verb.replaceChildren(verb(row), this.sure);
    }
    const side = row.steering < -0.005 ? "left" : row.steering > 0.005 ? "right" : "";
    this.steering.bar.style.transform = `scaleX(${known(row.steering) ? row.steering : 0})`;
    put(this.steering.output, known(row.steering) ? `${side} ${Math.abs(row.steering).toFixed(2)}`.trim() : "–");
    const braking = row.brake > 0.05 && row.brake >= row.throttle;
    this.pedal.bar.className = `fill ${braking ? "stop" : "go"}`;
    put(this.pedal.root.firstChild, braking ? "brake" : "gas");
    const pedal = braking ? row.brake : row.throttle;
    this.pedal.bar.style.transform = `scaleX(${known(pedal) ? pedal : 0})`;
    put(this.pedal.output, fixed(pedal, 2));
    const place = known(row.station_m) ? `${row.station_m.toFixed(0)} m, ` : "";
    const ended = lane.done && at === lane.length - 1;
    this.line.dataset.ended = ended ? (lane.ending?.failed ? "failed" : "yes") : "no";
    const what = ended ? `: ${lane.ending?.text ?? "ended"}` : behind && lane.length ? ": not there yet" : "";
    put(this.line, lane.length ? `${place}${fixed(row.t_s, 1)} s, ${fixed(row.speed_mps, 1)} m/s${what}` : "waits for its first frame");
    this.reason(at);
    this.picture(lane.frameAt(at));
  }

  // The last that was measured before this moment, and when: a contestant is asked at every fifth decision.
  reason(at) {
    const { lane } = this;
    let i = at;
    while (i > 0 && i > at - REASON_ROWS && !lane.reasons[i]) i--;
    const why = lane.reasons[i];
    if (why === this.reasons.why) return;
    this.why.hidden &&= !why;
    put(this.measured, why ? `measured at ${fixed(lane.at(i, "t_s"), 1)} s` : "");
    if (why) this.reasons.show(why);
    else this.reasons.note("");
  }

  // A moment of which this browser has no picture, for it came later or was too slow, gets none.
  async picture(frame) {
    put(this.blank, frame || !this.lane.length ? "" : "no picture of this moment was sent to this browser");
    if (frame === this.drawn) return;
    this.drawn = frame;
    if (!frame) return this.canvas.getContext("2d").clearRect(0, 0, this.canvas.width, this.canvas.height);
    const image = await createImageBitmap(new Blob([frame.data], { type: `image/${frame.kind}` }));
    // A newer one may have been asked for meanwhile.
    if (this.drawn !== frame) return image.close();
    if (this.canvas.width !== image.width || this.canvas.height !== image.height) {
      [this.canvas.width, this.canvas.height] = [image.width, image.height];
      this.frame.style.setProperty("--shape", `${image.width} / ${image.height}`);
    }
    this.canvas.getContext("2d").drawImage(image, 0, 0);
    image.close();
  }
}

export class LaneCards {
  constructor(root, race) {
    this.cards = race.lanes.map((lane) => new LaneCard(lane));
    root.replaceChildren(...this.cards.map((card) => card.root));
    root.dataset.count = this.cards.length;
  }

  // rows: of each contestant the row to show, ranks: its place in the race, in words.
  show(rows, ranks) {
    this.cards.forEach((card, k) => card.show(rows[k], ranks[k]));
  }
}
