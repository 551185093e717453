// A canvas as sharp as the screen, redrawn at most once per frame and only when something has changed.

const dirty = new Set();
let asked = false;

function flush() {
  asked = false;
  const now = [...dirty];
  dirty.clear();
  for (const surface of now) surface.paint();
}

export class Surface {
  constructor(canvas, draw) {
    this.canvas = canvas;
    this.draw = draw;
    this.context = canvas.getContext("2d");
    this.width = 0;
    this.height = 0;
    new ResizeObserver(() => this.fit()).observe(canvas.parentElement.classList.contains("decision") ? canvas : canvas.parentElement);
    this.fit();
  }

  fit() {
    const box = this.canvas.getBoundingClientRect();
    const scale = devicePixelRatio || 1;
    const width = Math.max(1, Math.round(box.width * scale));
    const height = Math.max(1, Math.round(box.height * scale));
    if (this.canvas.width !== width || this.canvas.height !== height) {
      this.canvas.width = width;
      this.canvas.height = height;
    }
    this.width = box.width;
    this.height = box.height;
    this.context.setTransform(scale, 0, 0, scale, 0, 0);
    this.layout?.();
    this.touch();
  }

  touch() {
    dirty.add(this);
    if (!asked) {
      asked = true;
      requestAnimationFrame(flush);
    }
  }

  paint() {
    if (this.width < 2) return;
    this.context.clearRect(0, 0, this.width, this.height);
    this.draw(this.context, this.width, this.height);
  }
}

// Size of 1rem in pixels, so that canvas text grows with the page.
export function rem() {
  return parseFloat(getComputedStyle(document.documentElement).fontSize);
}

export function font(size, weight = 400) {
  return `${weight} ${(size * rem()).toFixed(1)}px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif`;
}
