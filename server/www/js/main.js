// What the pages of one drive, of several and of recordings have in common: their template and the buttons at the top.

import { $, dialog, onKeys } from "./dom.js";
import { savePng } from "./png_export.js";
import { toggleTheme } from "./theme.js";

export function openPage() {
  const template = document.querySelector("template");
  if (template.id === "several") for (const element of document.querySelectorAll(".of-one")) element.remove();
  template.replaceWith(template.content);
  $("theme").addEventListener("click", toggleTheme);
  $("png").addEventListener("click", () => savePng());
  $("help").addEventListener("click", () => dialog("words").showModal());
  onKeys({ t: toggleTheme, p: savePng, "?": () => $("help").click() });
}
