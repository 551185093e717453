// The stream of a running drive: connects, acknowledges every message, and connects again when the server was away.

import { decode } from "./protocol.js";

const FIRST_RETRY_MS = 400;
const LAST_RETRY_MS = 3000;

export class LiveSource {
  /**
   * @param {object} handlers
   * @param {(description: import("./protocol.js").Hello) => void | Promise<void>} handlers.hello
   * @param {(message: import("./protocol.js").Message, data: ArrayBuffer) => Promise<void>} handlers.message
   * @param {(ended: boolean) => void} handlers.closed whether the drive said goodbye
   */
  constructor(handlers) {
    this.handlers = handlers;
    this.retry = FIRST_RETRY_MS;
    this.connect();
  }

  connect() {
    const socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/stream`);
    socket.binaryType = "arraybuffer";
    let ended = false;
    socket.onmessage = async ({ data }) => {
      if (typeof data === "string") {
        const message = JSON.parse(data);
        ended = message.kind === "bye";
        if (message.kind === "hello") {
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
    socket.onclose = () => {
      this.handlers.closed(ended);
      setTimeout(() => this.connect(), this.retry);
      this.retry = Math.min(LAST_RETRY_MS, this.retry * 1.6);
    };
  }
}
