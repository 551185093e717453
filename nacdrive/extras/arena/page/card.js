// The arena's card of the page with several lanes: who was best, and everybody's camera.

import { $ } from "/js/dom.js";
import { CameraSliders } from "./camera_sliders.js";
import { RankingCard } from "./ranking_card.js";

function section(name, title, body) {
  const root = Object.assign(document.createElement("section"), { className: `card ${name}`, id: name });
  root.setAttribute("aria-labelledby", `${name}-h`);
  root.innerHTML = `<h2 id="${name}-h"><b>${title}</b><span id="${name}-note"></span></h2>`;
  root.append(body);
  return root;
}

const room = (id, className = "") => Object.assign(document.createElement("div"), { id, className });

/**
 * @param {import("/js/cards.js").Page} page
 * @returns {import("/js/cards.js").Card}
 */
export function card(page) {
  const body = room("ranking-body");
  body.setAttribute("role", "status");
  const result = section("ranking", "Result", body);
  result.hidden = true;
  $("lanes").closest("main").prepend(result);
  const rows = room("sliders", "sliders");
  $("lanes").closest("main").append(section("camera", "Everybody's camera", rows));
  const ranking = new RankingCard(result, $("ranking-note"), body);
  let sliders = null;
  let names = [];
  return {
    describe(_, shown) {
      ({ names } = shown);
      sliders = new CameraSliders(rows, $("camera-note"), (camera) => page.send({ camera }), shown.control);
    },
    about(about) {
      if (about.camera) sliders?.show(about.camera, about.since_s);
      ranking.show(about.ranking ?? null, names, about.place?.episode ?? 0);
    },
  };
}
