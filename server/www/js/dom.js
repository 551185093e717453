// What every part of the page needs: elements, texts, numbers.

export const $ = (id) => document.getElementById(id);
export const known = Number.isFinite;
export const fixed = (value, digits) => (known(value) ? value.toFixed(digits) : "–");
export const percent = (share) => (known(share) ? `${Math.round(share * 100)} %` : "–");

// Text nodes are touched only when the text changes, so that nothing is laid out without need.
export function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
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
  if (title || name) element.setAttribute("aria-label", name || title);
  element.addEventListener("click", act);
  return element;
}
