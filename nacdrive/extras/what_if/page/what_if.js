// What if? At a held moment: edits, the question to the policy in its own process, the answer everywhere on the page.

import { $, button, input, onKeys, percent } from "/js/dom.js";
import { alike, decodeEdits, encode, phrase } from "/js/edits.js";
import { effect } from "/js/effect.js";
import { readOcclusion } from "/js/occlusion.js";
import { PatchLayer } from "/js/patch_layer.js";
import { Neurons } from "/js/neurons.js";
import { softmax } from "/js/protocol.js";
import { side, verb } from "/js/words.js";
import { WhatIfPanel } from "./what_if_panel.js";
import { LapLines } from "./lap_lines.js";
import { Questions } from "./questions.js";

const MOST = 24;

export class WhatIf {
  /** @param {import("/js/cards.js").Page} page */
  constructor(page) {
    this.page = page;
    this.dashboard = page.dashboard;
    this.can = null;
    this.isOpen = false;
    /** @type {import("/js/edits.js").Edit[]} */
    this.edits = [];
    this.moment = null;
    this.choices = [];
    this.ghost = null;
    this.map = null;
    this.button = button("What if?", () => this.show(!this.isOpen), { key: "I", title: "Change something at this moment, and see what it would do (key I)" });
    this.button.className = "ask";
    this.button.hidden = true;
    page.tool(this.button);
    this.questions = new Questions((ask, answer, body) => this.receive(ask, answer, body));
    this.laps = new LapLines(this.dashboard.map, page.moment, (seed, score) => {
      this.dashboard.scores.set(seed, score);
      page.refresh();
    });
    this.root = Object.assign(document.createElement("section"), { id: "what-if", className: "card what-if", hidden: true });
    this.root.setAttribute("aria-labelledby", "what-if-h");
    this.root.innerHTML = '<h2 id="what-if-h"><b>What if?</b></h2>';
    document.querySelector(".why").after(this.root);
    const patches = Object.assign(document.createElement("canvas"), { id: "patches", className: "patches", tabIndex: 0, hidden: true });
    patches.setAttribute("role", "application");
    patches.setAttribute("aria-label", "Paint over the picture: drag, or move with the arrow keys, widen with shift and the arrow keys, paint with Enter");
    $("frame").after(patches);
    this.panel = new WhatIfPanel(this.root, {
      set: (kind, edit) => this.change([...this.edits.filter((one) => one.kind !== kind), ...(edit ? [edit] : [])]),
      toggle: (edit) => this.toggle(edit),
      drop: (i) => this.change(this.edits.filter((_, k) => k !== i)),
      undo: () => this.change(this.edits.slice(0, -1)),
      clear: () => this.change([]),
      map: () => this.askMap(),
      drive: () => (this.ghost?.driving ? this.stopGhost() : this.askGhost()),
      copy: () => this.copyLink(),
      close: () => this.show(false),
    });
    this.layer = new PatchLayer(patches, this.dashboard.frame, {
      paint: (box) => {
        const { value } = this.panel.level;
        this.change([...this.edits, { kind: "paint", ...box, level: value === "mean" ? null : Number(value) }]);
      },
    });
    const { network } = this.dashboard;
    network.circuit.onPick = ({ group, neuron }) => this.can && this.isOpen && this.toggle({ kind: "mute", head: this.own, group, neuron });
    network.onHead = () => this.isOpen && this.describePanel();
    onKeys({ i: () => this.can && this.show(!this.isOpen) });
    this.layer.show(false);
  }

  // can: {window, ghost, expert} or null where nobody can be asked.
  describe(can, { choices }) {
    this.described = can;
    this.choices = choices ?? [];
    this.offer(can);
  }

  offer(can) {
    this.can = can;
    this.button.hidden = !can;
    if (!can) this.show(false);
    // Whoever answers is loaded meanwhile.
    else this.questions.open();
    this.laps.allow(can);
  }

  // Whom it asks has learnt nothing.
  about({ teach }) {
    const can = teach?.taught ? null : this.described;
    if (can !== this.can) this.offer(can);
  }

  live() {
    if (this.isOpen) this.show(false);
  }

  // A recording that knows no places is driven once more for them.
  open({ store, name, redraw }) {
    if (this.can?.ghost && !store.has("x_m")) this.laps.driven(store, name, redraw);
  }

  link() {
    return this.isOpen && this.edits.length ? { if: encode(this.edits) } : {};
  }

  restore(address, stands) {
    const edits = decodeEdits(address.get("if"));
    this.edits = edits;
    if (!edits.length) return;
    this.show(stands);
  }

  show(on) {
    if (on === this.isOpen || (on && !this.can)) return;
    this.isOpen = on;
    this.root.hidden = !on;
    $("dashboard").dataset.whatIf = on ? "open" : "closed";
    this.layer.show(on);
    if (on) {
      if (input("saliency").checked) input("saliency").click();
      if (input("only-input").checked) input("only-input").click();
      this.describePanel();
      if (!this.moment) this.page.hold();
      this.panel.say(this.moment ? "The policy is being asked …" : "It has not decided yet: there is nothing to ask about.");
      this.ask();
    } else {
      this.stopGhost();
      this.questions.close();
      this.map = null;
      this.dashboard.network.answer(this.dashboard.network.why, null);
    }
    this.paint();
    this.page.changed();
  }

  // The edits that hold.
  get asked() {
    return this.isOpen ? this.edits : [];
  }

  // The head whose neurons are muted; null where all heads share theirs.
  get own() {
    const { circuit, head } = this.dashboard.network;
    return circuit.ofPairs ? head : null;
  }

  describePanel() {
    const { network } = this.dashboard;
    this.panel.describe({ window: this.can.window, heads: network.wired ? network.neurons?.heads ?? 0 : 0, ghost: this.can.ghost, own: this.own });
    this.panel.show(this.edits, alike);
  }

  // name: what the server calls the moment that is shown and stands still; null while time goes on.
  hold(name, row) {
    const same = JSON.stringify(name) === JSON.stringify(this.moment);
    this.moment = name;
    this.row = row;
    // A moment of a drive that goes on is in nobody else's browser, and soon not in this one.
    this.panel.copy.hidden = !(name && "run" in name);
    if (same) return;
    // Ghosts are of their moment, whether or not it is asked about any more.
    this.dashboard.map.setGhosts(null);
    if (!this.isOpen) {
      // A drive that goes on was not measured at every decision; a replay's server says it itself.
      if (!name) this.questions.close();
      else if (this.can && !("run" in name)) this.questions.ask("decide", { moment: name, edits: this.asked });
      return;
    }
    this.map = null;
    this.stopGhost();
    if (name) this.ask();
    else this.panel.say("Hold the drive to ask what would be if.");
    this.paint();
  }

  toggle(edit) {
    const rest = this.edits.filter((one) => !alike(one, edit));
    this.change(rest.length < this.edits.length ? rest : [...this.edits, edit]);
  }

  change(edits) {
    if (edits.length > MOST) return this.panel.say(`No more than ${MOST} edits at a time.`);
    this.edits = edits;
    this.map = null;
    this.stopGhost();
    this.dashboard.map.setGhosts(null);
    this.paint();
    this.ask();
    this.page.changed();
  }

  ask() {
    if (!this.isOpen || !this.moment) return;
    this.questions.ask("decide", { moment: this.moment, edits: this.edits });
  }

  askMap() {
    if (this.map) {
      this.map = null;
      return this.paint();
    }
    if (!this.moment) return;
    this.panel.say("Painting over each part in turn …");
    this.questions.ask("occlusion", { moment: this.moment, edits: this.edits });
  }

  askGhost() {
    if (!this.moment) return;
    this.ghost = { edited: [], unedited: [], road: null, text: "", driving: true };
    this.panel.tell("Driving the past once more, to come to this moment …", true);
    this.questions.ask("ghost", { moment: this.moment, edits: this.edits, seconds: 10 });
  }

  stopGhost() {
    if (this.ghost?.driving) this.questions.stop("ghost");
    this.ghost = null;
    this.panel.tell("", false);
    this.panel.see(null);
  }

  // What is changed, to be seen where it is changed.
  paint() {
    const edits = this.isOpen ? this.edits : [];
    const { network, frame } = this.dashboard;
    this.panel.show(edits, alike);
    this.layer.set(edits.filter(({ kind }) => kind === "paint"), this.map);
    $("frame").classList.toggle("under-map", Boolean(this.map));
    frame.setLook(["blur", "dim"].flatMap((kind) => edits.filter((edit) => edit.kind === kind)));
    network.setEdits(edits);
  }

  receive(ask, answer, body) {
    // An answer belongs to the question that asked it: of another moment, or of other edits, it says nothing.
    if (JSON.stringify(body.moment) !== JSON.stringify(this.moment)) return;
    const stands = JSON.stringify(body.edits) === JSON.stringify(this.asked);
    if (ask === "decide" && stands && !answer.error) this.explained(answer);
    // A sentence names its own edits; while a slider is drawn along, that of a moment ago is better than none.
    if (!this.isOpen || (ask !== "decide" && !stands)) return;
    if (answer.error && ask !== "ghost") return this.panel.say(capital(answer.error));
    if (answer.error) {
      this.ghost = null;
      return this.panel.tell(capital(answer.error), false);
    }
    if (ask === "decide") this.decided(answer, body.edits);
    if (ask === "occlusion") this.mapped(answer);
    if (ask === "ghost" && this.ghost) this.drove(answer);
  }

  // Why, of the very moment that stands still; under edits of the edited network, beside as it is.
  explained({ base, edited }) {
    const changed = this.asked.length ? { why: edited.why, neurons: Neurons.ofJson(edited.neurons) } : null;
    this.dashboard.network.answer({ why: base.why, t_s: this.row.t_s }, changed);
  }

  decided({ base, edited, tookMs }, edits) {
    const discrete = Boolean(base.logits);
    this.chosen = edited.choice;
    if (discrete) {
      const [before, after] = [softmax(base.logits), softmax(edited.logits)];
      this.panel.bar(before.map((share, i) => ({ name: this.choices[i] ?? `choice ${i}`, base: share, edited: after[i], chosen: i === edited.choice, was: i === base.choice })), false);
      this.panel.say(edits.length ? effect(edits, { ...base, shares: before }, { ...edited, shares: after }, this.choices) : asks(`It ${verb(base).toLowerCase()}, ${percent(before[base.choice])} sure.`));
    } else {
      this.panel.bar([{ name: "steering", base: base.steering, edited: edited.steering, chosen: true, was: true }], true);
      this.panel.say(edits.length ? effect(edits, base, edited, []) : asks(`It steers ${side(base.steering)}.`));
    }
    this.panel.root.dataset.tookMs = Math.round(tookMs);
  }

  mapped({ map, tookMs }) {
    this.map = readOcclusion(map, this.choices.length ? this.choices[this.chosen] ?? "it" : null);
    this.panel.say(this.map.sentence);
    this.panel.root.dataset.mapMs = Math.round(tookMs);
    this.paint();
  }

  drove(answer) {
    const { ghost } = this;
    if (answer.points) ghost[answer.who].push(...answer.points);
    this.panel.see(ghost.edited.at(-1)?.picture);
    if (answer.effect) {
      ghost.driving = false;
      ghost.road = answer.road;
      ghost.text = consequence(answer.effect, this.edits);
      this.panel.tell(ghost.text, false);
    } else if (answer.who) {
      const line = ghost[answer.who];
      const seconds = line.length ? line.at(-1).t_s - line[0].t_s : 0;
      this.panel.tell(`${answer.who === "edited" ? "The ghost drives on" : "And the same without the edits, to compare"}: ${seconds.toFixed(1)} s …`, true);
    }
    this.dashboard.map.setGhosts(ghost);
  }

  async copyLink() {
    try {
      await navigator.clipboard.writeText(location.href);
      this.panel.say("The link to this moment with these edits is copied.");
    } catch {
      // Without a secure context there is no clipboard; the address bar has the same link.
      this.panel.say("The address above leads to this moment with these edits.");
    }
  }
}

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);
const asks = (text) => `${text} Change something, and see what it would do then.`;

// What came of a ghost's drive, in a sentence.
export function consequence(e, edits) {
  const parts = [];
  const plain = e.unedited_off_road_s === null ? "unedited it stays on the road" : `unedited after ${e.unedited_off_road_s.toFixed(1)} s`;
  if (e.off_road_s !== null) parts.push(`it leaves the road after ${e.off_road_s.toFixed(1)} s (${plain})`);
  else parts.push(e.unedited_off_road_s === null ? "it stays on the road, as without the edits" : `it stays on the road, which it leaves unedited after ${e.unedited_off_road_s.toFixed(1)} s`);
  if (e.decides_otherwise_s === null) return `${phrase(edits)}, ${e.seconds.toFixed(0)} s driven on: the very same decisions and the very same line.`;
  if (e.decides_otherwise_s > 0.005) parts.push(`it first decides otherwise after ${e.decides_otherwise_s.toFixed(2)} s`);
  if (e.apart_m !== null) parts.push(`at most ${e.apart_m < 10 ? e.apart_m.toFixed(1) : e.apart_m.toFixed(0)} m apart at the same time`);
  if (e.ahead !== null && Math.abs(e.ahead) >= 0.005) parts.push(`${Math.round(Math.abs(e.ahead) * 100)} % of the road ${e.ahead > 0 ? "ahead" : "behind"}`);
  if (e.over_s !== null) parts.push(`over after ${e.over_s.toFixed(1)} s`);
  return `${phrase(edits)}, ${e.seconds.toFixed(0)} s driven on: ${parts.join(", ")}.`;
}
