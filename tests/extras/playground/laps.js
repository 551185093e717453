// Lets a network drive laps in the page's engine, without a browser: their returns, and how long a decision takes.

import { Network, floatsOf } from "../../../nacdrive/extras/export/page/network.js";
import { Session } from "../../../nacdrive/extras/playground/page/session.js";
import { readSprites } from "../../../nacdrive/extras/playground/page/sprites.js";
import { roadOfSeed } from "../../../nacdrive/extras/playground/page/track.js";

const { sprites, description, weights, repeat, seeds } = JSON.parse(await new Response(Deno.stdin.readable).text());
const network = new Network(description, floatsOf(weights));
const session = new Session(network, readSprites(sprites), repeat);
const laps = seeds.map((seed) => {
  session.begin(roadOfSeed(seed), seed);
  const begun = performance.now();
  while (!session.over) session.step();
  const { reward, frame, ended, progress } = session.car.world;
  return { seed, reward, frame, ended, progress, ms_per_frame: (performance.now() - begun) / frame };
});
console.log(JSON.stringify(laps));
