// Opens the stream while the page's own script is still on its way; live_source.js goes on with it, and opens the later ones.

/** @type {any} */ (globalThis).openStream = () => {
  const socket = new WebSocket(new URL("stream", document.baseURI.replace("http", "ws")));
  socket.binaryType = "arraybuffer";
  const early = [];
  socket.onmessage = (event) => early.push(event);
  return { socket, early };
};
/** @type {any} */ (globalThis).firstStream = /** @type {any} */ (globalThis).openStream();
