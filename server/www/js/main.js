// Puts the page together: asks what is served (a running drive, several side by side, or recordings) and shows it.

import { $, dialog, onKeys } from "./dom.js";
import { savePng } from "./png_export.js";
import { toggleTheme } from "./theme.js";

const answer = await fetch("/what");
const { mode } = await answer.json();
const several = mode === "several";
const template = /** @type {HTMLTemplateElement} */ ($(several ? "several" : "one"));
template.replaceWith(template.content);
if (several) for (const element of document.querySelectorAll(".of-one")) element.remove();

$("theme").addEventListener("click", toggleTheme);
$("png").addEventListener("click", () => savePng());
$("help").addEventListener("click", () => dialog("words").showModal());
onKeys({ t: toggleTheme, p: savePng, "?": () => $("help").click() });

if (several) {
  const { startSeveral } = await import("./several.js");
  startSeveral();
} else {
  const { startOne } = await import("./one.js");
  startOne(mode);
}
