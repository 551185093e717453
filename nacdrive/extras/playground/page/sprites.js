// Pictures that Python has drawn, out of the page: see sprites.py.

function bytesOf(/** @type {string} */ base64) {
  return Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
}

/** @param {{firstAngle: number, stays: string, red: string, firstScore: number, scores: string}} given */
export function readSprites({ firstAngle, stays, red, firstScore, scores }) {
  const words = (/** @type {string} */ base64) => new Uint16Array(bytesOf(base64).buffer);
  return { firstAngle, stays: words(stays), red: words(red), firstScore, scores: bytesOf(scores) };
}
