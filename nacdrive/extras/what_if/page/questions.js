// The connection to those who answer: one question of a kind at a time, the newest one wins.

const RETRY_MS = 1500;
const AGAIN_MS = 300;

export class Questions {
  // receive(ask, answer, question): an answer to a question that still stands
  constructor(receive) {
    this.receive = receive;
    this.socket = null;
    this.number = 0;
    // ask -> {id, busy, next}
    this.asked = new Map();
  }

  open() {
    if (this.socket) return;
    const socket = new WebSocket(new URL("what-if", document.baseURI.replace("http", "ws")));
    this.socket = socket;
    socket.onopen = () => this.pump();
    socket.onmessage = ({ data }) => this.take(JSON.parse(data));
    socket.onclose = () => {
      this.socket = null;
      for (const entry of this.asked.values()) entry.busy = false;
      if (this.wanted) setTimeout(() => this.wanted && this.open(), RETRY_MS);
    };
  }

  close() {
    this.wanted = false;
    this.asked.clear();
    this.socket?.close();
  }

  ask(ask, body) {
    this.wanted = true;
    const entry = this.asked.get(ask) ?? { id: 0, busy: false };
    this.asked.set(ask, entry);
    entry.next = body;
    // A drive that nobody wants any more is stopped; a short question is over before the word would come.
    if (entry.busy && (ask === "ghost" || ask === "lap")) {
      this.send({ id: entry.id, ask: "stop" });
      entry.busy = false;
    }
    this.open();
    this.pump();
  }

  stop(ask) {
    const entry = this.asked.get(ask);
    if (entry?.busy) this.send({ id: entry.id, ask: "stop" });
    this.asked.delete(ask);
  }

  send(message) {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(message));
  }

  pump() {
    if (this.socket?.readyState !== WebSocket.OPEN) return;
    for (const [ask, entry] of this.asked) {
      if (entry.busy || !entry.next) continue;
      entry.id = ++this.number;
      entry.busy = true;
      entry.sent = entry.next;
      entry.next = null;
      entry.began = performance.now();
      this.send({ id: entry.id, ask, ...entry.sent });
    }
  }

  take(answer) {
    for (const [ask, entry] of this.asked) {
      if (entry.id !== answer.id) continue;
      if (answer.done) entry.busy = false;
      if (/^too many/.test(answer.error ?? "")) {
        entry.next ??= entry.sent;
        setTimeout(() => this.pump(), AGAIN_MS);
        return;
      }
      // An answer to a question that has changed since is old news, unless nothing newer would come for long.
      this.receive(ask, { ...answer, tookMs: performance.now() - entry.began }, entry.sent);
    }
    this.pump();
  }
}
