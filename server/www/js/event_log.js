// What happened, newest first; text from outside only ever becomes text.

const KEPT = 200;
const ALERTS = /off road|stop|intervention|disconnect|lost|left the field|missed|crash/i;
const GOOD = /lap|started|finished|connected|handed back/i;

export const weight = (text) => (ALERTS.test(text) ? "alert" : GOOD.test(text) ? "good" : "plain");

export class EventLog {
  constructor(list, note) {
    this.list = list;
    this.note = note;
    this.onPick = null;
  }

  add(event) {
    const item = document.createElement("li");
    const cells = [`${event.t_s?.toFixed(1) ?? "–"} s`, `ep. ${event.episode + 1}`, event.text].map((text) => {
      const cell = document.createElement("span");
      cell.textContent = text;
      return cell;
    });
    item.dataset.weight = weight(event.text);
    item.append(...cells);
    if (this.onPick) {
      item.tabIndex = 0;
      item.addEventListener("click", () => this.onPick(event));
      item.addEventListener("keydown", (press) => press.key === "Enter" && this.onPick(event));
    }
    this.list.prepend(item);
    while (this.list.childElementCount > KEPT) this.list.lastElementChild.remove();
    this.note.textContent = String(event.n);
  }

  clear() {
    this.list.replaceChildren();
    this.note.textContent = "";
  }
}
