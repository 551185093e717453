// What is learnt now, as a card of the page: the stage, and the loss of the training over its epochs.

import { addStyle } from "/js/cards.js";
import { Surface, font } from "/js/canvas.js";
import { $ } from "/js/dom.js";
import { colours, onTheme } from "/js/theme.js";

const MARGIN = 6;

/** @returns {import("/js/cards.js").Card} */
export function card() {
  addStyle("cards/learning/learning.css");
  const section = document.createElement("section");
  section.className = "card learning";
  section.setAttribute("aria-label", "The training");
  const stage = document.createElement("p");
  const room = document.createElement("div");
  const canvas = document.createElement("canvas");
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", "Loss of the training");
  room.append(canvas);
  section.append(stage, room);
  $("dashboard").before(section);
  /** @type {[number, number][]} */
  let losses = [];
  const surface = new Surface(canvas, (context, width, height) => draw(context, width, height, losses), 200);
  onTheme(() => surface.touch());
  return {
    // A drive that comes after the training keeps its curve.
    describe(about) {
      if (!about) stage.textContent = "How it learnt what it does now.";
      section.hidden = !about && !losses.length;
    },
    about({ learning }) {
      if (!learning) return;
      stage.textContent = learning.stage;
      losses = learning.losses;
      canvas.setAttribute("aria-label", losses.length ? `Loss of the training, ${losses[losses.length - 1][1]} after ${losses.length} epochs` : "Loss of the training");
      surface.touch();
    },
  };
}

// The loss of each epoch on a scale of ratios, with a line where a round of practice begins.
function draw(context, width, height, losses) {
  if (losses.length < 2) return;
  const logs = losses.map(([, loss]) => Math.log(Math.max(loss, 1e-6)));
  const least = Math.min(...logs);
  const span = Math.max(Math.max(...logs) - least, 1e-3);
  const x = (epoch) => MARGIN + (epoch / (losses.length - 1)) * (width - 2 * MARGIN);
  context.font = font(0.78);
  context.fillStyle = colours.dim;
  losses.forEach(([round], epoch) => {
    if (!epoch || round === losses[epoch - 1][0]) return;
    context.fillRect(x(epoch), 0, 1, height);
    context.fillText(`practice ${round}`, x(epoch) + 4, 12);
  });
  context.strokeStyle = colours.policy;
  context.lineWidth = 1.5;
  context.beginPath();
  logs.forEach((log, epoch) => context.lineTo(x(epoch), height - MARGIN - ((log - least) / span) * (height - 2 * MARGIN)));
  context.stroke();
  context.fillStyle = colours.ink;
  context.fillText(`loss ${losses[losses.length - 1][1].toPrecision(3)} after ${losses.length} epochs`, MARGIN, height - MARGIN);
}
