// The page: lets the network drive, takes in what people change, and shows what comes of it.

import { $, canvas, dialog, input, onKeys, percent, put } from "/js/dom.js";
import { alike, encode, words } from "/js/edits.js";
import { explain, muting } from "/js/effects.js";
import { WhyPanel } from "/js/why_panel.js";
import { side } from "/js/words.js";
import { chosenMuted, editRow, headMuted, listHeads, listNeurons } from "../../export/page/circuit_lists.js";
import { Edits } from "../../export/page/edits.js";
import { Network, floatsOf } from "../../export/page/network.js";
import { Overlay } from "../../export/page/overlay.js";
import { FPS } from "./carracing.js";
import { Hands } from "./hands.js";
import { Journal } from "./journal.js";
import { LessonPanel } from "./lesson_panel.js";
import { asLinked, fromLink, LARGEST_SEED, toLink } from "./link.js";
import { Panels } from "./panels.js";
import { Session } from "./session.js";
import { readSprites } from "./sprites.js";
import { Stage } from "./stage.js";
import { NO_TROUBLE } from "./trouble.js";
import { roadAlong, roadOfSeed } from "./track.js";

const FIRST_SEED = 4000007;
const FRAME_MS = 1000 / FPS;
const WORK_MS = 12; // of a picture on the screen, for the world and the network
const json = (/** @type {string} */ id) => JSON.parse($(id).textContent);

/** @returns {import("/js/edits.js").Edit} */
const frameHidden = (/** @type {number} */ back) => ({ kind: "hide", back });

class Playground {
  /** @param {any} network @param {Session} session */
  constructor(network, session) {
    this.network = network;
    this.session = session;
    this.edits = new Edits(() => this.changed());
    this.trouble = NO_TROUBLE;
    this.journal = new Journal();
    this.stage = new Stage(canvas("stage"));
    this.panels = new Panels(network, (age) => this.edits.toggle(frameHidden(age)));
    this.reasons = new WhyPanel($("why"), (part) => this.edits.toggle(muting(part, network.description.preprocessing)));
    this.lessons = new LessonPanel(network, this.journal);
    this.hands = new Hands(canvas("stage"), { driving: () => this.person, toggle: () => this.takeWheel(!this.person) });
    this.overlay = new Overlay(() => this.painting, (/** @type {any} */ box) => {
      this.edits.toggle({ kind: "paint", ...box, level: 128 });
      this.setPainting(false);
    });
    this.playing = true;
    this.painting = false;
    this.reversed = false;
    this.drawing = null; // the line that is being drawn, or null
    this.speed = 1;
    this.debt = 0; // milliseconds of the world that are due
    this.last = 0;
    this.work = { pictures: 0, ms: 0, most: 0, frames: 0 }; // what the page has computed so far
    this.build();
    this.bind();
    this.restore();
    requestAnimationFrame((now) => this.picture(now));
  }

  get person() {
    return Boolean(this.session.car?.person);
  }

  // ---------------------------------------------------------------- roads and laps

  // An experiment out of a link, or the first road.
  restore() {
    const { experiment, error } = fromLink(location.hash);
    this.trouble = experiment?.trouble ?? NO_TROUBLE;
    this.time = experiment?.time ?? null;
    this.edits.list = [];
    let notice = error;
    let road = null;
    this.line = null;
    this.seed = experiment?.seed ?? FIRST_SEED;
    if (experiment) {
      this.edits.restore(encode(experiment.edits), this.network);
      if (this.edits.list.length < experiment.edits.length) notice = "This link is for another network: what this one does not have is left out.";
      try {
        if (experiment.line) [road, this.line] = [roadAlong(experiment.line), experiment.line];
      } catch (fault) {
        notice = fault.message;
      }
    }
    this.begin(road ?? roadOfSeed(this.seed));
    if (!notice && this.time) notice = `Somebody drove this road in ${this.time.toFixed(2)} s. Race it?`;
    this.say(notice);
  }

  /** @param {import("./track.js").Road} road @param {boolean} racing */
  begin(road, racing = false) {
    this.road = road;
    this.stage.setRoad(road);
    this.session.change(this.edits.compile(), this.trouble);
    this.session.begin(road, this.seed, racing);
    this.setDrawing(false);
    put($("road-note"), this.line ? "on a road that was drawn by hand" : `on the road of seed ${this.seed}`);
    this.reversed = false;
    this.say("");
    this.changed();
    this.setPlaying(true);
  }

  newRoad() {
    this.seed = Math.floor(Math.random() * LARGEST_SEED);
    [this.line, this.time] = [null, null];
    this.begin(roadOfSeed(this.seed));
  }

  // Draw a road on the field with a finger or the mouse.
  /** @param {boolean} on */
  setDrawing(on) {
    this.drawing = on ? [] : null;
    $("draw").setAttribute("aria-pressed", String(on));
    $("map").hidden = on;
    if (on) {
      this.setPlaying(false);
      $("end").hidden = true;
    }
    this.hint();
  }

  finishRoad() {
    const line = this.drawing;
    try {
      if (line.length < 8) throw new Error("The road is too short: draw a longer loop.");
      const linked = asLinked(line);
      const road = roadAlong(linked);
      // As in its link, which names no seed: what is wrong with a camera is drawn from it.
      [this.line, this.time, this.seed] = [linked, null, 0];
      this.begin(road);
    } catch (fault) {
      this.say(fault.message);
      this.drawing = [];
    }
  }

  /** @param {boolean} on */
  takeWheel(on) {
    if (this.session.racing) return this.begin(this.road);
    if (this.session.over) return;
    this.reversed = !on && this.isReversed();
    this.session.takeWheel(on);
    this.setPlaying(true);
    this.changed();
    this.freeKeys();
  }

  // The arrow keys are the car's while a person drives, and not those of a slider that was moved last.
  freeKeys() {
    const { activeElement: held } = document;
    if (this.person && held instanceof HTMLInputElement) held.blur();
  }

  race() {
    this.begin(this.road, true);
    this.speed = 1;
    input("speed").value = "1";
    this.freeKeys();
  }

  // Whether the car points against the road where it is.
  isReversed() {
    const { rigid } = this.session.car.world.car;
    const [x, y, angle] = [rigid.originX[0], rigid.originY[0], rigid.angle[0]];
    const away = (/** @type {any} */ s) => Math.hypot(s.x - x, s.y - y);
    const nearest = this.road.stations.reduce((best, s) => (away(s) < away(best) ? s : best));
    return Math.cos(angle - nearest.beta) < -0.4;
  }

  // ---------------------------------------------------------------- time

  /** @param {boolean} on */
  setPlaying(on) {
    this.playing = on;
    this.debt = 0;
    put($("play"), on ? "❚❚" : "▶");
    $("play").setAttribute("aria-label", on ? "Hold" : "Drive");
    if (on && this.drawing) this.setDrawing(false);
  }

  // One frame of the world.
  frame() {
    const { session } = this;
    if (session.car.person) session.car.person = this.hands.read();
    session.step();
    this.journal.note(session, this.edits.list, Boolean(this.line), this.reversed);
    this.work.frames++;
  }

  // One picture on the screen.
  /** @param {number} now */
  picture(now) {
    const begun = performance.now();
    const passed = Math.min(now - this.last, 100);
    this.last = now;
    const { session, work } = this;
    const before = session.car.world.frame;
    if (this.playing && !session.over) {
      this.debt = this.speed === Infinity ? Infinity : this.debt + passed * this.speed;
      while (this.debt >= FRAME_MS && !session.over) {
        this.frame();
        this.debt -= FRAME_MS;
        if (performance.now() - begun > WORK_MS) break;
      }
      // What could not be computed in time is not made up for: the world goes slower instead.
      this.debt = Math.min(this.debt, 2 * FRAME_MS);
    }
    if (this.playing || this.stale || before !== session.car.world.frame) this.show();
    const spent = performance.now() - begun;
    Object.assign(work, { pictures: work.pictures + 1, ms: work.ms + spent, most: Math.max(work.most, spent) });
    if (work.pictures % 30 === 0) this.lessons.look();
    requestAnimationFrame((next) => this.picture(next));
  }

  stepOn() {
    this.setPlaying(false);
    const { world } = this.session.car;
    do this.frame(); while (world.frame % this.session.repeat && !this.session.over);
    this.stale = true;
  }

  rewind() {
    this.setPlaying(false);
    this.session.rewind(Number(input("seek").value));
    this.changed();
  }

  // ---------------------------------------------------------------- what is shown

  show() {
    this.stale = false;
    const { session } = this;
    const { car, ghost } = session;
    if (this.drawing) return this.stage.drawField(this.drawing);
    this.stage.draw(session);
    this.stage.drawMap(canvas("map"), session, "#4a5866");
    this.panels.show(car.driver, this.person);
    const { world } = car;
    put($("hud-time"), `${world.t_s.toFixed(1)} s`);
    put($("hud-score"), `${Math.round(world.reward)} points`);
    put($("hud-speed"), `${Math.round(3.6 * world.car.rigid.speed)} km/h`);
    const other = ghost ? ` · ${session.racing ? "it" : "ghost"} ${percent(ghost.world.progress)}` : "";
    put($("hud-progress"), `${percent(world.progress)} of the road${other}`);
    put($("clock"), `${world.t_s.toFixed(1)} s`);
    input("seek").max = String(session.seconds.length - 1);
    if (document.activeElement !== input("seek") || this.playing) input("seek").value = String(Math.floor(world.t_s));
    $("key-ghost").hidden = !ghost;
    this.showEnd();
  }

  showEnd() {
    const { session } = this;
    const ending = session.over && !this.drawing;
    if ($("end").hidden === !ending) return;
    $("end").hidden = !ending;
    if (!ending) return;
    const { world } = session.car;
    const how = { "lap finished": "Home", "left the field": "It left the field", "time is up": "Time is up" }[world.ended];
    const far = `${percent(world.progress)} of the road`;
    if (session.racing && session.winner === "network" && !world.ended) {
      put($("end-text"), `The network has won: it is home after ${world.t_s.toFixed(2)} s, and you have come ${far}.`);
    } else {
      const who = session.racing ? (session.winner === "you" ? "You have won. " : "The network has won. ") : "";
      put($("end-text"), `${who}${how} after ${world.t_s.toFixed(2)} s, with ${far} and ${Math.round(world.reward)} points.`);
    }
    if (session.racing && session.winner === "you" && world.ended === "lap finished") {
      this.time = world.t_s;
      this.remember();
    }
    this.lessons.look();
  }

  // What a finger or a key does to the view now.
  hint() {
    const text = this.drawing ? "Draw a closed road with the finger or the mouse." : this.person ? "You drive: arrow keys, or drag on the view: aside to steer, up for gas, down to brake." : "";
    put($("hint"), text);
    $("hint").hidden = !text;
    document.querySelector(".stage").classList.toggle("held", Boolean(text));
  }

  /** @param {string} text */
  say(text) {
    put($("notice"), text);
  }

  // ---------------------------------------------------------------- edits

  changed() {
    const { session } = this;
    session.change(this.edits.compile(), this.trouble);
    this.stale = true;
    for (const kind of ["dim", "blur"]) {
      const value = this.edits.value(kind);
      input(kind).value = String(value);
      put(input(kind).nextElementSibling, kind === "dim" ? percent(value) : value ? `${value} px` : "none");
    }
    const { trouble } = this;
    const texts = {
      flicker: percent(trouble.flicker), noise: percent(trouble.noise), drop: percent(trouble.drop),
      delay: `${Math.round((1000 * trouble.delay * session.repeat) / FPS)} ms`, wind: trouble.wind ? side(trouble.wind) : "none",
    };
    for (const [name, text] of Object.entries(texts)) {
      input(name).value = String(trouble[name]);
      put(input(name).nextElementSibling, text);
    }
    $("black").setAttribute("aria-pressed", String(trouble.black));
    $("forget").setAttribute("aria-pressed", String(this.isForgetful));
    [...$("heads").children].forEach((b, head) => b.setAttribute("aria-pressed", String(this.edits.has(headMuted(head)))));
    const rows = this.edits.list.map((edit, k) => editRow(words(edit), () => this.edits.remove(k)));
    const troubles = { black: "the camera is black", flicker: `${texts.flicker} of the pictures black`, noise: `noise of ${texts.noise}`,
      delay: `pictures ${texts.delay} late`, drop: `${texts.drop} of the pictures lost`, wind: `wind to the ${texts.wind.split(" ")[0]}` };
    for (const [name, text] of Object.entries(troubles)) {
      if (trouble[name] !== NO_TROUBLE[name]) rows.push(editRow(text, () => this.disturb({ [name]: NO_TROUBLE[name] })));
    }
    $("edits").replaceChildren(...rows);
    input("undo").disabled = !this.edits.list.length;
    input("clear").disabled = !rows.length;
    $("wheel").setAttribute("aria-pressed", String(this.person));
    put($("wheel"), this.person ? "Let it drive" : "Take the wheel");
    input("ask").disabled = session.racing;
    put($("key-car"), this.person ? "you" : rows.length ? "the network, changed" : "the network");
    document.querySelector(".spot.car").classList.toggle("person", this.person);
    put($("key-ghost-text"), session.racing ? "the network" : "its ghost, without what you changed");
    this.hint();
    this.showReasons(null);
    this.remember();
  }

  /** @param {Partial<import("./trouble.js").Trouble>} change */
  disturb(change) {
    this.trouble = { ...this.trouble, ...change };
    this.changed();
  }

  get isForgetful() {
    return this.network.window > 1 && this.#hidden.every((edit) => this.edits.has(edit));
  }

  get #hidden() {
    return Array.from({ length: this.network.window - 1 }, (_, i) => frameHidden(i + 1));
  }

  forgetAll() {
    const on = !this.isForgetful;
    this.edits.list = this.edits.list.filter(({ kind }) => kind !== "hide");
    if (on) this.edits.list.push(...this.#hidden);
    this.changed();
  }

  // What the decision of this moment hangs on, measured.
  async ask() {
    const { driver } = this.session.car;
    if (!driver.decision || this.session.racing) return;
    this.setPlaying(false);
    const why = explain(await driver.measure(), this.network.labels ?? []);
    const bar = why.bars.find(({ kind }) => kind !== "time");
    const strongest = bar ? encode([muting(bar, this.network.description.preprocessing)]) : null;
    this.journal.asked = { steering: driver.decision.steering, strongest };
    this.showReasons(why);
  }

  /** @param {import("/js/effects.js").Why | null} why */
  showReasons(why) {
    $("why").hidden = !why;
    if (why) this.reasons.show(why);
    put($("ask-text"), why ? "Each part muted alone, measured at this moment. Press one to mute it." : "");
  }

  /** @param {boolean} on */
  setPainting(on) {
    this.painting = on;
    $("paint").setAttribute("aria-pressed", String(on));
    document.querySelector(".picture").classList.toggle("painting", on);
  }

  // ---------------------------------------------------------------- the page

  build() {
    const { sequence, description, window } = this.network;
    put($("about"), `${description.name} (${description.model}) drives; change it, blind it, blow at it, race it`);
    $("memory-part").hidden = window < 2;
    listHeads(sequence, (edit) => this.edits.toggle(edit));
  }

  clear() {
    this.trouble = NO_TROUBLE;
    this.edits.clear();
  }

  bind() {
    const on = (/** @type {string} */ id, /** @type {() => void} */ act, event = "click") => $(id).addEventListener(event, act);
    on("play", () => this.setPlaying(!this.playing));
    on("step", () => this.stepOn());
    on("restart", () => this.begin(this.road, this.session.racing));
    on("again", () => this.begin(this.road, this.session.racing));
    on("another", () => this.newRoad());
    on("new-road", () => this.newRoad());
    on("race", () => this.race());
    on("wheel", () => this.takeWheel(!this.person));
    on("draw", () => (this.drawing ? this.begin(this.road) : this.setDrawing(true), this.stale = true));
    on("seek", () => this.rewind(), "input");
    on("speed", () => (this.speed = Number(input("speed").value)), "change");
    on("link", () => this.copyLink());
    on("ask", () => this.ask());
    on("black", () => this.disturb({ black: !this.trouble.black }));
    on("paint", () => this.setPainting(!this.painting));
    on("region", () => this.cover(), "change");
    on("gust-left", () => this.blow(-1));
    on("gust-right", () => this.blow(1));
    on("forget", () => this.forgetAll());
    on("group", () => listNeurons(this.network.sequence), "change");
    on("mute", () => this.edits.toggle(chosenMuted()));
    on("undo", () => this.edits.undo());
    on("clear", () => this.clear());
    on("lesson-next", () => this.lessons.next());
    on("help", () => dialog("words").showModal());
    on("theme", () => setTheme(document.documentElement.dataset.theme !== "dark"));
    for (const kind of ["dim", "blur"]) on(kind, () => this.edits.set(kind, Number(input(kind).value)), "input");
    for (const name of ["flicker", "noise", "delay", "drop", "wind"]) on(name, () => this.disturb({ [name]: Number(input(name).value) }), "input");
    // Pressed by a pointer, a button keeps no key: space stops and goes on.
    for (const id of ["play", "restart", "again", "race", "wheel"]) $(id).addEventListener("click", (press) => press.detail && $(id).blur());
    this.bindDrawing();
    const room = document.querySelector(".stage");
    new IntersectionObserver(([seen]) => {
      room.classList.toggle("away", !seen.isIntersecting);
      this.stale = true;
    }).observe(room);
    addEventListener("hashchange", () => this.restore());
    addEventListener("pointerup", () => this.freeKeys());
    addEventListener("resize", () => (this.stale = true));
    onKeys({
      " ": () => this.setPlaying(!this.playing),
      ArrowRight: () => this.person || this.stepOn(),
      Home: () => $("restart").click(),
      g: () => this.takeWheel(!this.person),
      r: () => this.race(),
      n: () => this.newRoad(),
      ",": () => this.blow(-1),
      ".": () => this.blow(1),
      y: () => this.ask(),
      u: () => this.edits.undo(),
      l: () => this.copyLink(),
      "?": () => $("help").click(),
    });
  }

  bindDrawing() {
    const view = canvas("stage");
    let down = false;
    view.addEventListener("pointerdown", (event) => {
      if (!this.drawing) return;
      down = true;
      view.setPointerCapture(event.pointerId);
      this.drawing = [this.stage.placeOf(event)];
      this.stale = true;
    });
    view.addEventListener("pointermove", (event) => {
      if (!down || !this.drawing) return;
      const [place, last] = [this.stage.placeOf(event), this.drawing.at(-1)];
      if (Math.hypot(place[0] - last[0], place[1] - last[1]) > 4) this.drawing.push(place);
      this.stale = true;
    });
    for (const end of ["pointerup", "pointercancel"]) {
      view.addEventListener(end, () => {
        if (down && this.drawing) this.finishRoad();
        down = false;
        this.stale = true;
      });
    }
  }

  cover() {
    const [left, top, width, height] = input("region").value.split(",").map(Number);
    input("region").value = "";
    const edit = /** @type {const} */ ({ kind: "paint", left, top, right: left + width, bottom: top + height, level: 128 });
    if (!this.edits.list.some((one) => alike(one, edit))) this.edits.toggle(edit);
  }

  // To the right is 1, to the left -1.
  /** @param {number} where */
  blow(where) {
    this.session.blow(where);
    this.stale = true;
  }

  get address() {
    return toLink({ seed: this.seed, line: this.line, edits: this.edits.list, trouble: this.trouble, time: this.time });
  }

  // The experiment stands in the address, so that a reload brings it back.
  remember() {
    if (location.hash !== this.address) history.replaceState(null, "", this.address);
    if (!$("link-room").hidden) input("link-text").value = this.link;
  }

  // A page that another page has made has an address of its own in this browser alone.
  get isFile() {
    return location.protocol !== "blob:";
  }

  get link() {
    return this.isFile ? location.href : this.address;
  }

  async copyLink() {
    this.remember();
    $("link-room").hidden = false;
    input("link-text").value = this.link;
    input("link-text").select();
    try {
      await navigator.clipboard.writeText(this.link);
      this.say(this.isFile ? "The link is copied." : "Copied: put it behind the address of any playground of this network.");
    } catch {
      this.say("Here is the link, to be copied.");
    }
  }
}

function setTheme(/** @type {boolean} */ dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
}

const dark = matchMedia("(prefers-color-scheme: dark)");
setTheme(dark.matches);
const network = new Network(json("description"), floatsOf($("weights").textContent.trim()));
const playground = new Playground(network, new Session(network, readSprites(json("sprites")), json("repeat")));
dark.addEventListener("change", () => {
  setTheme(dark.matches);
  playground.stale = true;
});
