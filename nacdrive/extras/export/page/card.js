// *Send this lap*, in the bar of a page: the lap that is on the screen as one file that opens anywhere.

import { button, put } from "/js/dom.js";
import { save } from "/js/png_export.js";

const rounded = (value) => (value === null ? null : Math.round(100 * value) / 100);

// A ghost that has driven to its end goes along: its line, what it saw, and what came of it.
function withGhost(text, ghosts) {
  if (!ghosts?.text) return text;
  const places = (line) => line.map(({ t_s, x_m, y_m, picture }) => ({ t_s: rounded(t_s), x_m: rounded(x_m), y_m: rounded(y_m), picture }));
  const ghost = { text: ghosts.text, edited: places(ghosts.edited), unedited: places(ghosts.unedited) };
  return text.replace('id="ghost">null<', () => `id="ghost">${JSON.stringify(ghost).replaceAll("<", "\\u003c")}<`);
}

/**
 * @param {import("/js/cards.js").Page} page
 * @returns {import("/js/cards.js").Card}
 */
export function card(page) {
  const title = "This lap, its network and what if, as one file that opens anywhere";
  const send = button("Send this lap", write, { title });
  send.hidden = true;
  const note = Object.assign(document.createElement("span"), { id: "lap-sent", className: "dim" });
  note.setAttribute("role", "status");
  page.tool(send);
  page.tool(note);

  async function write() {
    send.disabled = true;
    put(note, "Writing the page …");
    try {
      const answer = await fetch(`lap.html?${new URLSearchParams(/** @type {any} */ (page.moment() ?? {}))}`);
      if (answer.ok) save(new Blob([withGhost(await answer.text(), page.dashboard?.map.ghosts)], { type: "text/html" }), "lap.html");
      put(note, answer.ok ? "lap.html is saved: send it to anybody." : `Not written: ${await answer.text()}`);
    } catch {
      put(note, "Not written: the drive does not answer.");
    }
    send.disabled = false;
  }

  let described = null;
  return {
    describe(can) {
      described = can;
      send.hidden = !can;
      put(note, "");
    },
    // The file's network is not the one that has learnt.
    about({ teach }) {
      send.hidden = !described || Boolean(teach?.taught);
    },
  };
}
