// A tour of a minute: one card after the other in the light, with a sentence or two on what it shows.

import { button, put } from "./dom.js";

export const PAGE_STOPS = [
  [".sees", "What the camera sees. What is dimmed never reaches the network."],
  [".does", "What the policy does now, and how sure it is. The diamond is the expert: what it would do in this place."],
  [".why", "Why it decides so, measured: the decision is made anew with one part muted at a time. The longer the bar, the more that part moves it; a bold one makes it do something else."],
  [".charts", "The same over time. Click into it to hold that moment; comma and full stop go one decision back and on."],
  [".map", "The road from above, as it was driven. Wide and orange: the expert would have done something else."],
  [".log", "What happened, moments worth a look, and your own notes."],
  [".ask", "And the point of it all: at any moment, change something, and see what it would do then."],
];

// Of a circuit that reads pairs of query and key, as published, or of one that reads one frame at a time.
export const neuronStops = (ofPairs) => [
  ["#heads", `One head after the other: ${ofPairs ? "in each the neurons are active in another way" : "all have the same neurons but for the motor neurons, of which each has its own"}, and so each weighs the frames of the last moments in its own way. Choose another, and only what is below changes.`],
  [".circuit", `From left to right: ${ofPairs ? "query and key of a pair of frames, inter neurons, command neurons, and two motor neurons" : "what is remembered of a frame, inter neurons, command neurons, and three motor neurons for each head"}. Blue is below zero, orange above.`],
  ["#equation", ofPairs ? "The motor neurons give φ and ω. Left alone, the logit of a frame would settle at φ / ω; the shorter the time t, the less of that it reaches." : "The motor neurons give φ, where the circuit's part of a frame's logit settles; ω, the rate at which its age counts in the logit; and ρ, the rate at which what it brings fades."],
  [".attention", "A softmax over the logits gives the weight of each frame; below, every head has a row. A weight is no effect: what counts stands above, measured."],
];

export class Tour {
  // stops: [where, text] each, or what gives them; back: who has the focus again at the end.
  constructor(stops, back) {
    this.all = typeof stops === "function" ? stops : () => stops;
    this.back = back;
    this.at = -1;
    this.card = document.createElement("div");
    this.card.className = "tour";
    this.card.setAttribute("role", "dialog");
    this.card.setAttribute("aria-label", "Tour of the page");
    this.text = document.createElement("p");
    this.text.setAttribute("role", "status");
    this.count = document.createElement("span");
    this.count.className = "dim";
    this.next = button("Next", () => this.go(this.at + 1));
    this.next.className = "main";
    const row = document.createElement("p");
    row.className = "row";
    row.append(this.next, button("Back", () => this.go(this.at - 1)), button("End the tour", () => this.end(), { key: "Esc" }), this.count);
    this.card.append(this.text, row);
    document.addEventListener("keydown", (press) => {
      if (!this.card.isConnected || press.key !== "Escape") return;
      press.stopImmediatePropagation();
      this.end();
    }, true);
  }

  // Those that are on this page now.
  get stops() {
    return this.all().filter(([where]) => document.querySelector(where)?.getClientRects().length);
  }

  start() {
    document.body.append(this.card);
    this.go(0);
    this.next.focus();
  }

  go(n) {
    const { stops } = this;
    if (n < 0) return;
    if (n >= stops.length) return this.end();
    this.at = n;
    this.mark();
    const [where, text] = stops[n];
    const lit = document.querySelector(where);
    lit.classList.add("lit");
    lit.scrollIntoView({ block: "nearest" });
    put(this.text, text);
    put(this.count, `${n + 1} of ${stops.length}`);
    put(this.next.firstChild, n === stops.length - 1 ? "Done" : "Next");
    const box = lit.getBoundingClientRect();
    const room = this.card.getBoundingClientRect();
    // Beneath what it speaks of, or above, or over its lower edge.
    const below = box.bottom + 8;
    const top = below + room.height < innerHeight - 70 ? below : box.top - room.height - 8 > 0 ? box.top - room.height - 8 : innerHeight - room.height - 80;
    this.card.style.top = `${Math.max(8, top)}px`;
    this.card.style.left = `${Math.max(8, Math.min(innerWidth - room.width - 8, box.left))}px`;
  }

  mark() {
    for (const lit of document.querySelectorAll(".lit")) lit.classList.remove("lit");
  }

  end() {
    this.mark();
    this.at = -1;
    this.card.remove();
    this.back.focus();
  }
}
