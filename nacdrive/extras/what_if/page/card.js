// What if, as a card of the page of one drive.

import { addStyle } from "/js/cards.js";
import { WhatIf } from "./what_if.js";

/** @returns {import("/js/cards.js").Card} */
export function card(page) {
  addStyle("cards/what_if/what_if.css");
  return new WhatIf(page);
}
