// The page: plays the lap, shows the decision, takes in edits.

import { $, canvas, dialog, input, onKeys, percent, put } from "/js/dom.js";
import { words } from "/js/edits.js";
import { effect } from "/js/effect.js";
import { explain } from "/js/effects.js";
import { fromAddress, toAddress } from "/js/moment_link.js";
import { drawOcclusion, readOcclusion } from "/js/occlusion.js";
import { onTheme, toggleTheme } from "/js/theme.js";
import { WhyPanel } from "/js/why_panel.js";
import { side, verb } from "/js/words.js";
import { chosenMuted, editRow, headMuted, listHeads, listNeurons } from "./circuit_lists.js";
import { Edits } from "./edits.js";
import { Film, imageOf } from "./film.js";
import { Lap, editPicture, sameDecision } from "./lap.js";
import { LapChart } from "./lap_chart.js";
import { Network, floatsOf } from "./network.js";
import { Overlay } from "./overlay.js";

const json = (id) => JSON.parse($(id).textContent);

// Time for the browser to draw and to answer between two pieces of work.
const breathe = () => new Promise((done) => setTimeout(done, 0));

class Player {
  /** @param {Lap} lap */
  constructor(lap) {
    this.lap = lap;
    this.network = lap.network;
    this.circuit = Boolean(this.network.sequence.sizes);
    this.edits = new Edits(() => this.changed());
    this.chart = new LapChart(lap);
    this.film = new Film(lap, this.network.window, this.edits);
    this.at = 0;
    this.reasons = new WhyPanel($("why"));
    this.measuring = 0; // for what was asked when the measurement began that goes on; 0 where none does
    this.playing = false;
    this.plays = 0; // so far: of two loops, only the newer one goes on
    this.painting = false;
    this.asked = 0; // what was asked for last: an answer that comes late is thrown away
    this.build();
    this.bind();
    this.restore();
    this.changed();
    this.fillIn();
  }

  // ---------------------------------------------------------------- what is shown

  build() {
    const { lap, network } = this;
    const { preprocessing: p } = network.description;
    for (const id of ["frame", "overlay"]) [canvas(id).width, canvas(id).height] = [p.width, p.height];
    document.querySelector(".picture").classList.toggle("wide", p.width > 1.5 * p.height);
    const seen = p.down ? `, of which the network gets ${p.columns} × ${p.rows}${p.colour ? " YUV" : ""}` : "";
    put($("sees-note"), `the camera, ${p.width} × ${p.height}${seen}`);
    put($("about"), `${network.description.name} (${network.description.model}) looks at a lap that ${lap.driver} drove`);
    put($("key-driven"), `driven by ${lap.driver}`);
    put($("key-line"), `driven by ${lap.driver}`);
    input("seek").max = String(lap.length - 1);
    $("film").replaceChildren();
    this.buildBars();
    listHeads(this.network.sequence, (edit) => this.edits.toggle(edit));
    $("film-h").hidden = $("film").hidden = network.window < 2;
    const feelsTime = this.circuit || network.description.sequence.kind === "cfc";
    $("time-edits").hidden = !feelsTime;
    for (const e of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("[data-circuit]"))) e.hidden = !this.circuit;
    $("map").hidden = !lap.x_m;
    $("live").hidden = !$("playground").textContent;
    $("key-ghost").hidden = $("ghost-text").hidden = !lap.ghost;
    put($("ghost-text"), lap.ghost ? `The ghost, from ${lap.ghost.edited[0].t_s.toFixed(1)} s on. ${lap.ghost.text}` : "");
  }

  buildBars() {
    const rows = this.network.actions.length ? this.network.labels : ["steering"];
    this.bars = rows.map((label) => {
      const bar = document.createElement("div");
      bar.className = "bar";
      bar.innerHTML = '<span></span><div class="track"><i class="fill"></i><i class="plain" hidden></i><i class="diamond" hidden></i></div><output></output>';
      bar.firstChild.textContent = label;
      if (!this.network.actions.length) bar.children[1].classList.add("centre");
      return bar;
    });
    $("bars").replaceChildren(...this.bars);
  }

  // ---------------------------------------------------------------- a moment

  async show(i) {
    this.at = Math.min(this.lap.length - 1, Math.max(0, i));
    this.clearMap();
    const asked = ++this.asked;
    const at = this.at;
    const edits = this.edits.compile();
    const plain = await this.lap.decide(at);
    const now = edits ? await this.lap.decide(at, edits) : plain;
    const pixels = await this.lap.pixels(at);
    if (asked !== this.asked) return;
    this.now = { at, plain, now, edits };
    this.drawFrame(edits?.picture ? editPicture(pixels, this.lap.size, edits.picture) : pixels);
    this.showDecision();
    this.showMoment();
    this.chart.show(this.at, this.tried);
    await this.film.show(this.now, () => asked !== this.asked);
    if (asked !== this.asked) return;
    if (!this.playing) this.remember();
    this.explain();
  }

  drawFrame(rgb) {
    const pen = canvas("frame").getContext("2d");
    pen.putImageData(imageOf(this.lap.size, rgb), 0, 0);
    const p = this.network.description.preprocessing;
    if (!p.down) return;
    // What is cropped away never reaches the network.
    const last = p.first_row + Math.max(...p.down.first) + p.down.weight.shape[1];
    pen.fillStyle = "rgb(8 12 16 / 55%)";
    pen.fillRect(0, 0, p.width, p.first_row);
    pen.fillRect(0, last, p.width, p.height - last);
  }

  showDecision() {
    const { at, plain, now, edits } = this.now;
    const driven = this.lap.driven(at);
    const word = verb(now);
    put($("verb"), word + (now.shares ? ` (${percent(now.shares[now.choice])})` : ""));
    const same = sameDecision(now, driven);
    const drove = now.shares ? this.network.labels[driven.choice] ?? verb(driven).toLowerCase() : side(driven.steering);
    put($("beside"), same ? `as ${this.lap.driver} did: ${drove}` : `where ${this.lap.driver} did otherwise: ${drove}`);
    $("beside").dataset.alike = same ? "yes" : "no";
    document.querySelector(".does").classList.toggle("edited", Boolean(edits));
    $("key-plain").hidden = !edits;
    this.bars.forEach((bar, k) => this.showBar(bar, k, now, edits ? plain : null, driven));
    $("effect").setAttribute("aria-live", this.playing ? "off" : "polite");
    const sentence = edits ? effect(this.edits.list, plain, now, this.network.labels ?? []) : "";
    put($("effect"), sentence);
    // On a phone the sentence stands above the player too: the bars are out of sight while something is edited.
    put($("spoken"), sentence);
    $("spoken").hidden = !sentence;
  }

  showBar(bar, k, now, plain, driven) {
    const [, track, output] = bar.children;
    const [fill, before, diamond] = track.children;
    const place = (v) => `${now.shares ? 100 * v : 50 + 50 * v}%`;
    const value = now.shares ? now.shares[k] : now.steering;
    fill.style.transform = `scaleX(${value})`;
    before.hidden = !plain;
    if (plain) before.style.left = place(plain.shares ? plain.shares[k] : plain.steering);
    diamond.hidden = now.shares ? driven.choice !== k : false;
    diamond.style.left = now.shares ? "100%" : place(Math.min(1, Math.max(-1, driven.steering)));
    bar.dataset.chosen = !now.shares || now.choice === k ? "yes" : "no";
    put(output, now.shares ? percent(value) : side(value));
  }

  showMoment() {
    const { at } = this.now;
    if (Number(input("seek").value) !== at) input("seek").value = String(at);
    const t = this.lap.t_s[at];
    put($("clock"), `${t.toFixed(1)} s`);
    const ghost = this.lap.ghostAt(at);
    $("ghost-sees").hidden = !ghost;
    if (ghost) {
      document.querySelector(".ghost img").setAttribute("src", `data:image/jpeg;base64,${ghost.picture}`);
      put(document.querySelector(".ghost figcaption"), `the ghost at ${ghost.t_s.toFixed(1)} s`);
    }
    $("seek").setAttribute("aria-valuetext", `${t.toFixed(1)} seconds, frame ${at + 1} of ${this.lap.length}`);
    input("back").disabled = at === 0;
    input("forward").disabled = at === this.lap.length - 1;
  }

  // Why it decides so at the frame that is shown, under the edits too; while the lap plays of one frame after the other, as fast as
  // that goes.
  async explain() {
    if (this.measuring && this.playing) return;
    const asked = this.measuring = this.asked;
    const { at, edits } = this.now;
    const goesOn = async () => {
      await breathe();
      return this.measuring === asked && (this.playing || asked === this.asked);
    };
    const labels = this.network.labels ?? [];
    const measured = await this.lap.measure(at, edits, goesOn);
    const plain = measured && edits ? await this.lap.measure(at, null, goesOn) : null;
    if (this.measuring === asked) this.measuring = 0;
    if (!measured || (edits && !plain)) return;
    this.reasons.show(explain(measured, labels), plain && explain(plain, labels));
    put($("why-note"), `each part muted alone, measured at ${this.lap.t_s[at].toFixed(1)} s`);
  }

  // ---------------------------------------------------------------- the lap

  // Decides all frames in the background, so that the line and the agreement are whole.
  async fillIn() {
    for (let i = 0; i < this.lap.length; i++) {
      if (this.lap.plain[i]) continue;
      await this.lap.decide(i);
      await breathe();
      if (i % 20 === 0) this.chart.show(this.at, this.tried);
    }
    this.summarise();
    this.chart.show(this.at, this.tried);
  }

  summarise() {
    const { lap } = this;
    const same = lap.plain.filter((d, i) => d && sameDecision(d, lap.driven(i))).length;
    const how = this.network.actions.length ? "decides as driven" : "steers within 0.1 of what was driven";
    put($("lap-note"), `${lap.where}, ${lap.length} frames, ${(lap.t_s[lap.length - 1] - lap.t_s[0]).toFixed(1)} s; the network ${how} in ${percent(same / lap.length)}`);
  }

  async tryAll() {
    const edits = this.edits.compile();
    if (!edits) return put($("try-status"), "Nothing is edited.");
    const question = () => `${this.edits.text()} ${this.edits.everyFrame}`;
    const asked = question();
    input("try-all").disabled = true;
    const decisions = [];
    for (let i = 0; i < this.lap.length; i++) {
      decisions.push(await this.lap.decide(i, edits));
      await this.lap.decide(i); // to compare with; `fillIn` may not have come so far
      if (i % 8 === 0) put($("try-status"), `frame ${i + 1} of ${this.lap.length} …`);
      if (i % 4 === 0) await breathe();
      if (asked !== question()) break; // it is another one by now
    }
    input("try-all").disabled = !this.edits.list.length;
    if (asked !== question()) return put($("try-status"), "");
    this.tried = decisions;
    const n = this.lap.length;
    const other = decisions.filter((d, i) => !sameDecision(d, this.lap.plain[i])).length;
    const agree = (list) => percent(list.filter((d, i) => sameDecision(d, this.lap.driven(i))).length / n);
    const how = this.network.actions.length ? "decides otherwise" : "steers otherwise by 0.1 or more";
    put($("try-status"), `It ${how} in ${other} of ${n} frames, and as driven in ${agree(decisions)} (without the edits in ${agree(this.lap.plain)}). The car drove as recorded: nothing is added up.`);
    this.chart.show(this.at, this.tried);
  }

  // ---------------------------------------------------------------- edits

  changed() {
    this.tried = null;
    put($("try-status"), "");
    for (const kind of ["dim", "blur", "shift"]) {
      const value = this.edits.value(kind);
      input(kind).value = String(value);
      const text = { dim: percent(value), blur: value ? `${value} px` : "none", shift: `${Math.round(1000 * value)} ms` }[kind];
      put($(kind).nextElementSibling, text);
    }
    const rows = this.edits.list.map((edit, k) => editRow(words(edit), () => this.edits.remove(k)));
    $("edits").replaceChildren(...rows);
    input("undo").disabled = input("clear").disabled = input("try-all").disabled = !rows.length;
    if (this.circuit) [...$("heads").children].forEach((b, head) => b.setAttribute("aria-pressed", String(this.edits.has(headMuted(head)))));
    this.show(this.at);
  }

  setPainting(on) {
    this.painting = on;
    $("paint").setAttribute("aria-pressed", String(on));
    document.querySelector(".picture").classList.toggle("painting", on);
    if (on) this.pause();
    if (on) this.clearMap();
  }

  // The map of what the decision hangs on is of one frame under one set of edits.
  clearMap() {
    this.overlay.clear();
    $("map-key").hidden = true;
  }

  // How much a grey square at each of 12 x 12 places changes the decision at this frame, laid over the picture.
  async occlusion() {
    this.pause();
    await this.show(this.at);
    const asked = this.asked;
    const { at, now } = this.now;
    const n = 12;
    const change = (d) => (now.shares ? now.shares[now.choice] - d.shares[now.choice] : now.steering - d.steering);
    const rows = Array.from({ length: n }, () => []);
    input("occlusion").disabled = true;
    for (let cell = 0; cell < n * n; cell++) {
      const [x, y] = [cell % n, Math.floor(cell / n)];
      /** @type {import("/js/edits.js").Edit} */
      const paint = { kind: "paint", left: x / n, top: y / n, right: (x + 1) / n, bottom: (y + 1) / n, level: 128 };
      const edits = this.edits.compile([...this.edits.list, paint]);
      edits.picture.everyFrame = false;
      rows[y].push(change(await this.lap.decide(at, edits)));
      if (cell % 6 === 5) await breathe();
      if (asked !== this.asked) break;
    }
    input("occlusion").disabled = false;
    if (asked !== this.asked) return;
    const occlusion = readOcclusion(rows, now.shares ? this.network.labels[now.choice] : null);
    const { width, height } = canvas("overlay");
    this.clearMap();
    drawOcclusion(canvas("overlay").getContext("2d"), occlusion, [0, 0, width, height]);
    for (const [name, text] of Object.entries(occlusion.key)) put($(`map-${name}`), text);
    $("map-key").hidden = false;
    put($("try-status"), occlusion.sentence);
  }

  // ---------------------------------------------------------------- playing

  pause() {
    if (!this.playing) return;
    this.playing = false;
    this.markPlaying();
    this.show(this.at);
  }

  markPlaying() {
    put($("play"), this.playing ? "❚❚" : "▶");
    $("play").setAttribute("aria-label", this.playing ? "Hold" : "Play");
  }

  async play() {
    if (this.playing) return this.pause();
    this.playing = true;
    this.setPainting(false);
    this.markPlaying();
    if (this.at === this.lap.length - 1) this.at = 0;
    const play = ++this.plays;
    const goesOn = () => this.playing && play === this.plays;
    let due = performance.now();
    while (goesOn() && this.at < this.lap.length - 1) {
      const gap = this.lap.t_s[this.at + 1] - this.lap.t_s[this.at];
      due += (1000 * gap) / Number(input("speed").value);
      await this.show(this.at + 1);
      const rest = due - performance.now();
      if (rest < -500) due = performance.now(); // a slow machine plays slowly, and leaves no frame out
      await new Promise((done) => setTimeout(done, Math.max(0, rest)));
    }
    if (goesOn()) this.pause();
  }

  step(by) {
    this.pause();
    this.show(this.at + by);
  }

  nextDifference() {
    this.pause();
    const { lap } = this;
    const judged = this.tried ?? lap.plain;
    for (let k = 1; k <= lap.length; k++) {
      const i = (this.at + k) % lap.length;
      if (judged[i] && !sameDecision(judged[i], lap.driven(i))) return this.show(i);
    }
  }

  // The playground that is in this page, with this page's network, on the road of this lap and with the same edits.
  async letDrive() {
    this.pause();
    const packed = Uint8Array.from(atob($("playground").textContent), (letter) => letter.charCodeAt(0));
    const bare = await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
    const page = bare.replace('id="weights">', (/** @type {string} */ tag) => tag + $("weights").textContent.trim());
    const edits = this.edits.text();
    const address = `#v=1&seed=${this.lap.seed}${edits && `&if=${edits}`}`;
    open(URL.createObjectURL(new Blob([page], { type: "text/html" })) + address);
  }

  bind() {
    const on = (id, what, act) => $(id).addEventListener(what, act);
    on("play", "click", () => this.play());
    on("back", "click", () => this.step(-1));
    on("forward", "click", () => this.step(1));
    on("next-difference", "click", () => this.nextDifference());
    on("seek", "input", () => { this.playing = false; this.markPlaying(); this.show(Number(input("seek").value)); });
    on("theme", "click", toggleTheme);
    on("help", "click", () => dialog("words").showModal());
    on("live", "click", () => this.letDrive());
    on("paint", "click", () => this.setPainting(!this.painting));
    on("region", "change", () => {
      const [x, y, w, h] = input("region").value.split(",").map(Number);
      input("region").value = "";
      if (w) this.edits.toggle({ kind: "paint", left: x, top: y, right: x + w, bottom: y + h, level: 128 });
    });
    for (const kind of ["dim", "blur", "shift"]) on(kind, "input", () => this.edits.set(kind, Number(input(kind).value)));
    on("every-frame", "change", () => { this.edits.everyFrame = input("every-frame").checked; this.changed(); });
    on("occlusion", "click", () => this.occlusion());
    on("group", "change", () => listNeurons(this.network.sequence));
    on("mute", "click", () => this.edits.toggle(chosenMuted()));
    on("undo", "click", () => this.edits.undo());
    on("clear", "click", () => this.edits.clear());
    on("try-all", "click", () => { this.pause(); this.tryAll(); });
    on("strip", "pointerdown", (event) => this.step(this.chart.frameAt(event.offsetX) - this.at));
    // Another link that is put into the address of this page.
    addEventListener("hashchange", () => { this.pause(); this.restore(); this.changed(); });
    this.overlay = new Overlay(() => this.painting, (patch) => this.edits.toggle({ kind: "paint", ...patch, level: 128 }));
    onKeys({
      " ": () => this.play(),
      ArrowLeft: () => this.step(-1),
      ArrowRight: () => this.step(1),
      Home: () => this.step(-this.lap.length),
      End: () => this.step(this.lap.length),
      n: () => this.nextDifference(),
      p: () => this.setPainting(!this.painting),
      Escape: () => this.setPainting(false),
      o: () => this.occlusion(),
      u: () => this.edits.undo(),
      t: toggleTheme,
      "?": () => $("help").click(),
    });
  }

  // Where there is something to see at once: the first frame, two seconds on, at which the driver steers.
  firstBend() {
    const { lap } = this;
    const i = lap.t_s.findIndex((t, k) => t >= lap.t_s[0] + 2 && Math.abs(lap.steering[k]) > 0.5 * this.chart.reach);
    return Math.max(0, i);
  }

  // The moment and the edits stand in the address, so that a link brings them back.
  remember() {
    const edits = this.edits.text();
    const hash = toAddress({ episode: 0, t_s: this.lap.t_s[this.at], more: edits ? { if: edits } : {} });
    if (location.hash !== hash) history.replaceState(null, "", hash);
  }

  restore() {
    const { t_s: t, given } = fromAddress();
    const i = t === null ? -1 : this.lap.t_s.findIndex((s) => s >= t - 0.006);
    this.at = i < 0 ? this.firstBend() : i;
    this.edits.restore(given.get("if"), this.network);
  }
}

const network = new Network(json("description"), floatsOf($("weights").textContent.trim()));
const player = new Player(new Lap(json("record"), network, json("ghost")));
onTheme(() => player.chart.show(player.at, player.tried));
