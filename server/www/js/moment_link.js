// A moment in the address: #run=1&ep=2&t=7.6&head=11&if=mute:h11&note=…; what is changed there is shared with the link,
// and of a race its result.

const WHOLE = /^\d{1,9}$/;

// What the address names; fields that it does not name, or not properly, are null.
export function fromAddress(hash = location.hash) {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  const whole = (name) => (WHOLE.test(given.get(name) ?? "") ? Number(given.get(name)) : null);
  const t = Number(given.get("t"));
  return {
    run: whole("run"),
    episode: whole("ep") === null ? null : whole("ep") - 1,
    t_s: given.has("t") && Number.isFinite(t) ? t : null,
    head: whole("head") === null ? null : whole("head") - 1,
    note: given.get("note")?.slice(0, 200) ?? "",
    // For the cards.
    given,
  };
}

// more: {name: value} of the cards.
export function toAddress({ run = null, episode, t_s, head = null, more = {}, note = "" }) {
  const parts = [];
  if (run !== null) parts.push(`run=${run}`);
  parts.push(`ep=${episode + 1}`, `t=${t_s.toFixed(2)}`);
  if (head !== null) parts.push(`head=${head + 1}`);
  for (const [name, value] of Object.entries(more)) parts.push(`${name}=${encodeURI(value).replaceAll("&", "%26")}`);
  if (note) parts.push(`note=${encodeURIComponent(note)}`);
  return `#${parts.join("&")}`;
}

let written = "";

// Without a new entry in the browser's history; never while nothing has changed.
export function putAddress(hash) {
  if (hash === written) return;
  written = hash;
  history.replaceState(null, "", `${location.pathname}${location.search}${hash}`);
}

export function clearAddress() {
  if (written) putAddress("");
}
