// Drives in the page's engine, without a browser: jobs as JSON on stdin, what they give as JSON on stdout.

import { Camera } from "../../../nacdrive/extras/playground/page/camera.js";
import { CarRacing } from "../../../nacdrive/extras/playground/page/carracing.js";
import { readSprites } from "../../../nacdrive/extras/playground/page/sprites.js";
import { roadOfSeed } from "../../../nacdrive/extras/playground/page/track.js";
import { WorldMap } from "../../../nacdrive/extras/playground/page/world_map.js";

const { sprites, drives } = JSON.parse(await new Response(Deno.stdin.readable).text());
const map = new WorldMap();
const camera = new Camera(map, readSprites(sprites));

const results = drives.map(({ seed, actions, pictures_every }) => {
  const road = roadOfSeed(seed);
  const world = new CarRacing(road);
  if (pictures_every) map.draw(road);
  const rows = [];
  const pictures = pictures_every ? [[...camera.frame(world)]] : [];
  for (const [steering, throttle, brake] of actions) {
    if (world.ended) break;
    const reward = world.step({ steering, throttle, brake });
    const { originX, originY, angle } = world.car.rigid;
    rows.push([originX[0], originY[0], angle[0], world.car.rigid.speed, reward, world.visited.size]);
    if (pictures_every && world.frame % pictures_every === 0) pictures.push([...camera.frame(world)]);
  }
  return { stations: road.stations.map(({ alpha, beta, x, y }) => [alpha, beta, x, y]), rows, pictures, ended: world.ended };
});
console.log(JSON.stringify(results));
