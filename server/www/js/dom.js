// What every part of the page needs: elements, texts, numbers.

export const $ = (id) => document.getElementById(id);
/** @returns {HTMLDialogElement} */
export const dialog = (id) => /** @type {HTMLDialogElement} */ ($(id));
/** @returns {HTMLCanvasElement} */
export const canvas = (id) => /** @type {HTMLCanvasElement} */ ($(id));
/** @returns {HTMLInputElement} */
export const input = (id) => /** @type {HTMLInputElement} */ ($(id));
export const known = Number.isFinite;
export const fixed = (value, digits) => (known(value) ? value.toFixed(digits) : "–");
export const percent = (share) => (known(share) ? `${Math.round(share * 100)} %` : "–");

// Text nodes are touched only when the text changes, so that nothing is laid out without need.
export function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// The name of a key that is pressed: letters are the same with Shift and Caps Lock.
export const keyOf = ({ key }) => (key.length === 1 ? key.toLowerCase() : key);
export const dialogOpen = () => document.querySelector("dialog[open]") !== null;

// Keys of the whole page: {key: act}, letters in lower case. They are not for who types, reads a dialog, or has an element
// in hand that wants the key itself.
/** @param {Record<string, () => void>} acts */
export function onKeys(acts) {
  document.addEventListener("keydown", (press) => {
    const act = acts[keyOf(press)];
    if (!act || press.ctrlKey || press.metaKey || press.altKey || wantsKey(press) || dialogOpen()) return;
    press.preventDefault();
    act();
  });
}

/** Whether the element that a key is pressed in needs it itself. */
export function wantsKey({ target, key }) {
  if (target instanceof HTMLButtonElement) return key === " ";
  if (target instanceof HTMLInputElement) return target.type === "checkbox" ? key === " " : target.type !== "range" || key.length > 1;
  return target instanceof HTMLSelectElement || target instanceof HTMLTextAreaElement;
}

export function button(text, act, { title = "", key = "", name = "" } = {}) {
  const element = document.createElement("button");
  element.type = "button";
  const label = document.createElement("span");
  label.textContent = text;
  element.append(label);
  if (key) {
    const hint = document.createElement("kbd");
    hint.textContent = key;
    element.append(hint);
  }
  if (title) element.title = title;
  // Who speaks to a page says what is read on it: a title that does not say the same stands in for signs alone.
  if (name || (title && (!/[a-z]/i.test(text) || title.toLowerCase().includes(text.toLowerCase())))) element.setAttribute("aria-label", name || title);
  element.addEventListener("click", act);
  return element;
}
