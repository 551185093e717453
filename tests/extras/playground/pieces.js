// The page's pieces without a browser: lessons, links, and a session with a network; JSON in, JSON out.

import { Edits } from "../../../nacdrive/extras/export/page/edits.js";
import { Network, floatsOf } from "../../../nacdrive/extras/export/page/network.js";
import { decodeEdits, encode } from "../../../server/www/js/edits.js";
import { muting } from "../../../server/www/js/effects.js";
import { CarRacing } from "../../../nacdrive/extras/playground/page/carracing.js";
import { drawInstruments } from "../../../nacdrive/extras/playground/page/instruments.js";
import { Journal } from "../../../nacdrive/extras/playground/page/journal.js";
import { lessonsFor } from "../../../nacdrive/extras/playground/page/lessons.js";
import { asLinked, fromLink, toLink } from "../../../nacdrive/extras/playground/page/link.js";
import { Session } from "../../../nacdrive/extras/playground/page/session.js";
import { readSprites } from "../../../nacdrive/extras/playground/page/sprites.js";
import { PLAYFIELD, roadAlong, roadOfSeed } from "../../../nacdrive/extras/playground/page/track.js";
import { NO_TROUBLE } from "../../../nacdrive/extras/playground/page/trouble.js";

const { sprites, description, weights, journals, links, lines, scores } = JSON.parse(await new Response(Deno.stdin.readable).text());
const network = new Network(description, floatsOf(weights));
const session = new Session(network, readSprites(sprites), 2);
const edits = new Edits(() => {});
const road = roadOfSeed(4000007);
const circle = Array.from({ length: 60 }, (_, i) => [120 * Math.cos(i / 60 * 2 * Math.PI), 120 * Math.sin(i / 60 * 2 * Math.PI)]);
const run = (frames) => {
  for (let i = 0; i < frames; i++) session.step();
  const { originX, originY } = session.car.world.car.rigid;
  return [originX[0], originY[0], session.car.world.reward];
};

function drives() {
  session.begin(road, 1);
  const ghostless = session.ghost === null;
  run(50);
  edits.list = [{ kind: "mute", head: 0, group: null, neuron: null }];
  session.change(edits.compile(), NO_TROUBLE);
  const forked = session.ghost.world.frame;
  const first = run(50);
  const after = run(50);
  session.rewind(2);
  const again = run(50);
  session.rewind(0);
  const ghostOfStart = session.ghost.world.frame;
  const trouble = Object.fromEntries([
    ["black", true], ["flicker", 1], ["noise", 0.3], ["delay", 3], ["drop", 0.9], ["wind", 1],
  ].map(([name, value]) => {
    session.change(null, { ...NO_TROUBLE, [name]: value });
    session.begin(road, 1);
    return [name, run(60)];
  }));
  session.change(null, NO_TROUBLE);
  session.begin(road, 1);
  const quiet = run(60);
  session.blow(1);
  const blown = run(30);
  session.begin(road, 1);
  run(60);
  const calm = run(30);
  return { ghostless, forked, first, after, again, ghostOfStart, trouble, quiet, blown, calm };
}

function race() {
  const journal = new Journal();
  session.change(null, NO_TROUBLE);
  session.begin(road, 1, true);
  while (!session.over) {
    session.car.person = { steering: 0, throttle: 0.3, brake: 0 };
    session.step();
    journal.note(session, [], false, false);
  }
  return { winner: session.winner, stretches: journal.stretches };
}

// Of each part of a decision, how Why says that it is without the part, and how it is after the edit that mutes it.
async function mute() {
  session.change(null, NO_TROUBLE);
  session.begin(road, 1);
  run(40);
  const { driver, world } = session.car;
  const before = driver.save();
  driver.act(world);
  const { parts, muted } = await driver.measure();
  return parts.map((part, k) => {
    const edit = muting(part, description.preprocessing);
    if (!edit) return [part.kind, null, Array.from(muted[k])];
    driver.restore(before);
    // Out of a link, as somebody else gets it.
    driver.edits = edits.compile(decodeEdits(encode([edit])));
    driver.act(world);
    return [part.kind, Array.from(driver.decision.outputs), Array.from(muted[k])];
  });
}

function roadOf(line) {
  try {
    const { stations } = roadAlong(asLinked(line));
    return { length: stations.length, bends: Math.max(...stations.map((s, i) => Math.abs(s.beta - stations[Math.max(0, i - 1)].beta))) };
  } catch (fault) {
    return { fault: fault.message };
  }
}

// A car that goes on straight leaves the field: what its frames are worth, and what the page says that the lap is worth.
function straightOn() {
  const world = new CarRacing(road);
  let sum = 0;
  while (!world.ended) sum += world.step({ steering: 0, throttle: 0.3, brake: 0 });
  return { ended: world.ended, sum, reward: world.reward };
}

// The lowest rows of a frame at a score.
function panel(shownReward) {
  const frame = { width: 96, height: 96, bytes: new Uint8Array(96 * 96 * 3) };
  const rigid = { vx: [0], vy: [0], turn: [0], jointAngle: () => 0 };
  drawInstruments(frame, { car: { rigid, omega: [0, 0, 0, 0, 0] }, shownReward }, session.camera.sprites);
  return [...frame.bytes.subarray(84 * 96 * 3)].join();
}

const lessons = lessonsFor(network);
console.log(JSON.stringify({
  lessons: lessons.map(({ id }) => id),
  solved: journals.map((journal) => lessons.filter(({ isSolved }) => isSolved(Object.assign(new Journal(), journal), network)).map(({ id }) => id)),
  links: links.map((hash) => {
    const { experiment, error } = fromLink(hash);
    return { error, experiment, again: experiment && toLink(experiment) };
  }),
  drawn: toLink({ seed: 0, line: circle, edits: [], trouble: NO_TROUBLE, time: null }),
  roads: [circle, ...lines].map(roadOf),
  field: PLAYFIELD,
  drives: drives(),
  race: race(),
  muted: await mute(),
  straightOn: straightOn(),
  panels: scores.map(panel),
}));
