// The stream of a running drive: connects, acknowledges every message, and connects again when the server was away.

import { decode } from "./protocol.js";

// What first_stream.js has left there.
const page = /** @type {any} */ (globalThis);
const FIRST_RETRY_MS = 400;
const LAST_RETRY_MS = 3000;

export class LiveSource {
  /**
   * @param {object} handlers
   * @param {(description: import("./protocol.js").Hello) => void | Promise<void>} handlers.hello
   * @param {(message: import("./protocol.js").Message, data: ArrayBuffer) => Promise<void>} handlers.message
   * @param {(ended: boolean) => void} handlers.closed whether the drive said goodbye
   * @param {boolean} handlers.several whether the page is that of several lanes
   */
  constructor(handlers) {
    this.handlers = handlers;
    this.retry = FIRST_RETRY_MS;
    this.connect();
  }

  connect() {
    const { socket, early } = page.firstStream ?? page.openStream();
    page.firstStream = null;
    let ended = false;
    const take = async ({ data }) => {
      if (typeof data === "string") {
        const message = JSON.parse(data);
        ended = message.kind === "bye";
        if (message.kind === "hello") {
          if (message.names.length > 0 !== this.handlers.several) {
            // The next drive here is of the other kind, which has a page of its own.
            socket.onmessage = socket.onclose = null;
            location.reload();
            return;
          }
          this.retry = FIRST_RETRY_MS;
          this.handlers.hello(message);
        }
        return;
      }
      try {
        await this.handlers.message(decode(data), data);
      } finally {
        // Only now is the next one wanted: a slow page skips frames, and is never behind.
        if (socket.readyState === WebSocket.OPEN) socket.send("a");
      }
    };
    const closed = () => {
      this.handlers.closed(ended);
      setTimeout(() => this.connect(), this.retry);
      this.retry = Math.min(LAST_RETRY_MS, this.retry * 1.6);
    };
    for (const event of early) take(event);
    socket.onmessage = take;
    socket.onclose = closed;
    if (socket.readyState === WebSocket.CLOSED) closed();
  }
}
