// What the policy decides: the verb, the meters, the probabilities, the numbers. The expert stands beside every one.

import { $, fixed, input, known, percent, put } from "./dom.js";
import { softmax } from "./protocol.js";
import { Wheel } from "./wheel.js";
import { sideOf, turn, verb } from "./words.js";

const SPEAK_MS = 2000;

function meter(id, centred) {
  const element = $(id);
  /** @type {HTMLElement} */
  const fill = element.querySelector(".fill");
  const needles = /** @type {HTMLElement[]} */ ([...element.querySelectorAll(".needle")]);
  const output = element.querySelector("output");
  const last = [];
  return (value, ...others) => {
    fill.style.transform = `scaleX(${known(value) ? value : 0})`;
    needles.forEach((needle, i) => {
      if (Object.is(others[i], last[i])) return;
      last[i] = others[i];
      needle.style.visibility = known(last[i]) ? "visible" : "hidden";
      needle.style.left = `${centred ? 50 + 50 * last[i] : 100 * last[i]}%`;
    });
    put(output, centred ? turn(value) : fixed(value, 2));
  };
}

// Of a drive without rewards, such as one of a simulator that connects, a return says nothing.
export function rewarded(row) {
  return known(row.choice) || row.episode_return !== 0;
}

// Where one of a few actions is chosen the reward is what counts; where the steering is continuous, the place in the lane.
export function offsetTellsMore(row) {
  return known(row.lane_offset_m) && !known(row.choice);
}

export class DecisionPanel {
  constructor() {
    this.wheel = new Wheel($("wheel"));
    this.meters = { steering: meter("steering", true), throttle: meter("throttle"), brake: meter("brake") };
    this.latency = meter("latency");
    /** @type {HTMLElement} */
    this.card = $("verb").closest(".card");
    this.names = [];
    this.rows = [];
    this.spoken = "";
    this.spokeMs = -Infinity;
    this.describe({});
  }

  // driver: who drove, where what is decided here did not drive (a replay with a model); expert: name of the expert.
  describe({ driver = null, expert = null }) {
    this.driver = driver;
    this.expert = expert;
    const whose = driver ? ` of ${driver}` : "";
    $("speed-name").firstChild.textContent = `speed${whose} `;
    this.whose = whose;
  }

  setChoices(names) {
    this.names = names;
    this.rows = [];
    // Where one of a few actions is chosen their bars say it all, until a person drives by degrees.
    $("meters").hidden = names.length > 0;
    $("choices").replaceChildren();
    $("choices").hidden = !names.length;
  }

  show(row, parts) {
    this.wheel.set(row.steering, row.expert_steering, row.policy_steering, row.person === 1);
    for (const name of ["steering", "throttle", "brake"]) this.meters[name](row[name], row[`expert_${name}`], row[`policy_${name}`]);
    this.card.dataset.person = row.person ? "yes" : "no";
    if (row.person) $("meters").hidden = false;
    put($("does-note"), this.driver ? `what it would decide; ${this.driver} drove` : !row.person ? "what it decides now" : known(row.policy_steering) ? "a person drives, the policy beside" : "a person drives");
    put($("verb"), verb(row));
    this.speak(verb(row));
    this.showChoices(row, parts);
    this.showExpert(row);
    put($("speed"), fixed(row.speed_mps, 1));
    const offset = offsetTellsMore(row);
    put($("return-name"), `${offset ? "lane offset m" : "return"}${this.whose}`);
    put($("return"), offset ? sideOf(row.lane_offset_m) : fixed(row.episode_return, row.episode_return >= 1000 ? 0 : 1));
    $("return").parentElement.hidden = !offset && !rewarded(row);
    put($("progress"), percent(row.progress));
    $("progress").parentElement.hidden = !known(row.progress);
    put($("missed"), fixed(row.missed, 0));
    // One in a hundred is no news.
    $("missed").classList.toggle("bad", row.missed > row.seq / 100);
    this.showLatency(row);
  }

  // For who wants to hear it: what it does, when that becomes something else, at most once in two seconds.
  speak(doing) {
    const now = performance.now();
    if (!input("speak").checked || doing === this.spoken || now - this.spokeMs < SPEAK_MS) return;
    this.spoken = doing;
    this.spokeMs = now;
    put($("spoken"), doing);
  }

  showChoices(row, parts) {
    const part = parts?.get("logits");
    const own = row.person ? { steering: row.policy_steering, throttle: row.policy_throttle, brake: row.policy_brake, choice: row.policy_choice } : row;
    // What the policy would do, where a person drives in its stead.
    const would = row.person && known(own.steering) ? `policy: ${verb(own).toLowerCase()}` : "";
    if (!part) {
      // No scores came with this decision: those of an older one would be a lie.
      for (const { fill, output } of this.rows) {
        fill.style.transform = "scaleX(0)";
        put(output, "–");
      }
      this.mark(row, own);
      put($("sure"), would || "\u00a0");
      return;
    }
    if (this.rows.length !== part.data.length) this.build(part.data.length);
    const shares = softmax(part.data);
    this.rows.forEach((entry, i) => {
      entry.fill.style.transform = `scaleX(${known(shares[i]) ? shares[i] : 0})`;
      put(entry.output, percent(shares[i]));
    });
    this.mark(row, own);
    const sure = known(own.choice) && own.choice >= 0 ? `${percent(shares[own.choice])} sure` : "";
    put($("sure"), would ? `${would}, ${percent(shares[own.choice])}` : sure || "\u00a0");
  }

  // Whose choice is which.
  mark(row, own) {
    this.rows.forEach((entry, i) => {
      entry.row.dataset.chosen = own.choice === i ? "yes" : "no";
      entry.row.dataset.person = row.person && row.choice === i ? "yes" : "no";
      entry.row.dataset.expert = row.expert_choice === i ? "yes" : "no";
    });
  }

  build(count) {
    this.rows = Array.from({ length: count }, (_, i) => {
      const row = document.createElement("div");
      row.className = "choice";
      const mark = document.createElement("i");
      mark.className = "mark expert";
      const name = document.createElement("span");
      name.textContent = this.names[i] ?? `choice ${i}`;
      const track = document.createElement("div");
      track.className = "track";
      const fill = document.createElement("i");
      fill.className = "fill";
      track.append(fill);
      const output = document.createElement("output");
      row.append(mark, name, track, output);
      return { row, fill, output };
    });
    $("choices").hidden = false;
    $("choices").replaceChildren(...this.rows.map((entry) => entry.row));
  }

  showExpert(row) {
    const rides = known(row.expert_steering);
    const same = rides && (known(row.choice) && known(row.expert_choice) && row.choice >= 0
      ? row.choice === row.expert_choice
      : Math.abs(row.steering - row.expert_steering) < 0.1);
    const expert = { steering: row.expert_steering, throttle: row.expert_throttle, brake: row.expert_brake };
    const itself = !this.driver && this.expert;
    const pedals = Math.abs(row.throttle - row.brake - (expert.throttle - expert.brake)) < 0.1;
    const agrees = row.choice >= 0 || pedals ? "the expert agrees" : "the expert steers alike";
    put($("agree"), itself ? "the expert itself drives" : !rides ? "no expert rides along" : same ? agrees : `expert: ${verb(expert).toLowerCase()}`);
    $("agree").parentElement.dataset.agree = !rides || same || itself ? "yes" : "no";
    $("agree").parentElement.dataset.expert = rides ? "yes" : "no";
  }

  // The budget line stands at four fifths of the track, whatever the budget is.
  showLatency(row) {
    const limited = known(row.budget_ms);
    const late = limited && row.decision_ms > row.budget_ms;
    const full = limited ? row.budget_ms / 0.8 : 50;
    this.latency(Math.min(1, row.decision_ms / full));
    $("latency").querySelector(".fill").classList.toggle("late", late);
    put($("latency").querySelector("output"), known(row.decision_ms) ? `${row.decision_ms.toFixed(1)} ms` : "–");
    $("latency").title = limited ? `dashed: the budget of ${row.budget_ms.toFixed(0)} ms between two decisions` : "";
  }
}
