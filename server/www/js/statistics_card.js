// Over the run: how often the policy steers how, beside the expert or who drove; and whether it is as sure as it is right.

import { Surface, font, rem } from "./canvas.js";
import { $, button, dialog, known, percent, put } from "./dom.js";
import { STEERING_BINS, SURENESS_BINS } from "./run_statistics.js";
import { colours } from "./theme.js";

const COUNTING_MS = 1000;

export class StatisticsCard {
  // names(): {own, other, choices: names of the actions}
  constructor(statistics, names) {
    this.statistics = statistics;
    this.names = names;
    this.dialog = dialog("statistics");
    this.shares = new Surface($("shares"), (c, w, h) => this.drawShares(c, w, h));
    this.calibration = new Surface($("calibration"), (c, w, h) => this.drawCalibration(c, w, h));
    this.more = button("All episodes of this run", () => this.onMore?.());
    this.more.hidden = true;
    $("statistics-tools").append(this.more);
    // Where a run has more episodes than the one that is shown: asked for them all.
    this.onMore = null;
    setInterval(() => this.dialog.open && this.show(), COUNTING_MS);
  }

  open() {
    this.dialog.showModal();
    this.shown = -1;
    this.show();
  }

  allowMore(act) {
    this.onMore = act;
    this.more.hidden = !act;
  }

  // Says how far the gathering of all episodes has come; '' when it is done.
  gathering(text) {
    this.more.disabled = text !== "";
    put(this.more.firstChild, text || "All episodes of this run");
  }

  show() {
    const { statistics } = this;
    if (this.shown === statistics.version) return;
    this.shown = statistics.version;
    put($("statistics-note"), `${statistics.decisions.toLocaleString("en")} decisions`);
    put($("shares-text"), this.sharesText());
    put($("calibration-text"), this.calibrationText());
    $("calibration-part").hidden = !this.judged;
    this.shares.fit();
    this.calibration.fit();
  }

  get judged() {
    return this.statistics.sure.some(({ count }) => count);
  }

  // Rows of the left chart: {name, own, other} as shares.
  rows() {
    const { own, other, compared, decisions } = this.statistics;
    const { choices } = this.names();
    if (own.chosen) {
      const keys = [...new Set([...choices.keys(), ...own.choices.keys(), ...other.choices.keys()])].sort((a, b) => a - b);
      return keys.map((key) => ({
        name: choices[key] ?? `choice ${key}`,
        own: (own.choices.get(key) ?? 0) / own.chosen,
        other: other.chosen ? (other.choices.get(key) ?? 0) / other.chosen : NaN,
      }));
    }
    return Array.from({ length: STEERING_BINS }, (_, i) => ({
      name: i === 0 ? "left" : i === (STEERING_BINS - 1) / 2 ? "straight" : i === STEERING_BINS - 1 ? "right" : "",
      own: decisions ? own.steering[i] / decisions : 0,
      other: compared ? other.steering[i] / compared : NaN,
    }));
  }

  sharesText() {
    const { own, other } = this.names();
    const { decisions, compared, asked, agreed } = this.statistics;
    if (!decisions) return "No decision yet.";
    const beside = compared ? `, beside ${other} in ${compared.toLocaleString("en")} of them` : "";
    const same = asked ? `; the same action in ${percent(agreed / asked)}` : "";
    const named = this.rows().filter((row) => this.statistics.own.chosen && row.own > 0);
    const shares = named.map((row) => `${row.name} ${percent(row.own)}${known(row.other) ? ` (${percent(row.other)})` : ""}`).join(", ");
    return `${own}${beside}${same}.${shares ? ` ${shares}.` : ""}`;
  }

  calibrationText() {
    const { calibrationError: error } = this.statistics;
    if (!known(error)) return "";
    const { own, other } = this.names();
    return `Dots on the line: ${own} does as ${other} as often as it is sure. Mean distance ${error.toFixed(3)} (expected calibration error, ${SURENESS_BINS} bins).`;
  }

  drawShares(c, width, height) {
    const u = rem();
    const rows = this.rows();
    const top = Math.max(0.1, ...rows.map((row) => Math.max(row.own, known(row.other) ? row.other : 0)));
    const base = height - 1.5 * u;
    const room = base - 1.6 * u;
    const each = (width - 3 * u) / rows.length;
    c.font = font(0.78);
    c.textAlign = "right";
    c.textBaseline = "middle";
    c.fillStyle = colours.dim;
    for (const share of [0, top / 2, top]) {
      const y = base - (share / top) * room;
      c.fillText(percent(share), 2.6 * u, y);
      c.fillStyle = colours.line;
      c.fillRect(3 * u, y, width - 3 * u, 1);
      c.fillStyle = colours.dim;
    }
    c.textAlign = "center";
    c.textBaseline = "alphabetic";
    rows.forEach((row, i) => {
      const x = 3 * u + i * each;
      const wide = Math.max(2, each * 0.7);
      c.fillStyle = colours.policy;
      c.fillRect(x + (each - wide) / 2, base - (row.own / top) * room, wide, (row.own / top) * room);
      if (known(row.other)) {
        c.fillStyle = colours.expert;
        c.fillRect(x + each * 0.06, base - (row.other / top) * room - 0.1 * u, each * 0.88, 0.2 * u);
      }
      c.fillStyle = colours.dim;
      const edge = row.name && rows.length > 9 && (i === 0 || i === rows.length - 1);
      c.textAlign = edge ? (i ? "right" : "left") : "center";
      c.fillText(row.name, edge ? (i ? width : 3 * u) : x + each / 2, height - 0.4 * u);
    });
    this.legend(c, u);
  }

  legend(c, u) {
    const { own, other } = this.names();
    c.font = font(0.82, 600);
    c.textAlign = "left";
    c.textBaseline = "middle";
    c.fillStyle = colours.policy;
    c.fillRect(3 * u, 0.35 * u, 0.8 * u, 0.7 * u);
    c.fillText(own, 4.1 * u, 0.7 * u);
    if (!this.statistics.compared) return;
    const x = 5.2 * u + c.measureText(own).width;
    c.fillStyle = colours.expert;
    c.fillRect(x, 0.6 * u, 0.9 * u, 0.2 * u);
    c.fillText(other, x + 1.2 * u, 0.7 * u);
  }

  drawCalibration(c, width, height) {
    const u = rem();
    const side = Math.min(width - 5.6 * u, height - 3.9 * u);
    const [left, base] = [4.6 * u, u + side];
    const at = (sure, hits) => [left + sure * side, base - hits * side];
    c.font = font(0.78);
    c.textBaseline = "middle";
    for (const share of [0, 0.5, 1]) {
      c.fillStyle = colours.line;
      c.fillRect(left, base - share * side, side, 1);
      c.fillRect(left + share * side, base - side, 1, side);
      c.fillStyle = colours.dim;
      c.textAlign = "right";
      c.fillText(percent(share), left - 0.4 * u, base - share * side);
      c.textAlign = share === 1 ? "right" : share ? "center" : "left";
      c.fillText(percent(share), left + share * side, base + 0.8 * u);
    }
    c.textAlign = "center";
    c.fillText("sure", left + side / 2, base + 1.9 * u);
    c.save();
    c.translate(0.7 * u, base - side / 2);
    c.rotate(-Math.PI / 2);
    c.fillText(`as ${this.names().other}`, 0, 0);
    c.restore();
    c.strokeStyle = colours.dim;
    c.setLineDash([0.3 * u, 0.3 * u]);
    c.beginPath();
    c.moveTo(...at(0, 0));
    c.lineTo(...at(1, 1));
    c.stroke();
    c.setLineDash([]);
    const most = Math.max(1, ...this.statistics.sure.map(({ count }) => count));
    for (const { count, sum, hits } of this.statistics.sure) {
      if (!count) continue;
      const [x, y] = at(sum / count, hits / count);
      c.strokeStyle = colours.policy;
      c.lineWidth = 0.12 * u;
      c.beginPath();
      c.moveTo(x, y);
      c.lineTo(...at(sum / count, sum / count));
      c.stroke();
      // The area of a dot is the share of the decisions.
      c.fillStyle = colours.policy;
      c.beginPath();
      c.arc(x, y, Math.max(0.16, 0.75 * Math.sqrt(count / most)) * u, 0, 2 * Math.PI);
      c.fill();
    }
  }
}
