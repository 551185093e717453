// Lets networks drive in the page's engine, without a browser: JSON in, JSON out.
// jobs: {description, weights, repeat, seeds, frames (all of a lap, if null)}.

import { Network, floatsOf } from "../../../nacdrive/extras/export/page/network.js";
import { Session } from "../../../nacdrive/extras/playground/page/session.js";
import { readSprites } from "../../../nacdrive/extras/playground/page/sprites.js";
import { roadOfSeed } from "../../../nacdrive/extras/playground/page/track.js";

const { sprites, jobs } = JSON.parse(await new Response(Deno.stdin.readable).text());
const pictures = readSprites(sprites);
const laps = jobs.map(({ description, weights, repeat, seeds, frames }) => {
  const session = new Session(new Network(description, floatsOf(weights)), pictures, repeat);
  return seeds.map((seed) => {
    session.begin(roadOfSeed(seed), seed);
    const rows = [];
    for (let i = 0; i < (frames ?? Infinity) && !session.over; i++) {
      session.step();
      const { world, driver } = session.car;
      if (frames && world.frame % repeat === 0) {
        const { originX, originY } = world.car.rigid;
        rows.push([originX[0], originY[0], driver.decision.steering, driver.decision.throttle]);
      }
    }
    return { seed, rows, reward: session.car.world.reward };
  });
});
console.log(JSON.stringify(laps));
