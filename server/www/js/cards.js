// Cards: parts of the page that bring their own module, which the server names. The page knows none of them.

/**
 * What a card's module returns from `card(page)`; the page calls whatever there is of it.
 * @typedef {object} Card
 * @property {(about: any, shown: Partial<import("./protocol.js").Hello>) => void} [describe] what the server says of it for the drive that is
 *   shown now; null where there is nothing
 * @property {(name: object | null, row: object | null) => void} [hold] the moment that stands still, and what the server
 *   calls it; null while time goes on
 * @property {() => void} [live] the page is back at what happens now
 * @property {(episode: {store: object, name: object, redraw: () => void}) => void} [open] an episode of a replay is shown
 * @property {() => Record<string, string>} [link] what the address is to say of it
 * @property {(address: URLSearchParams, stands: boolean) => void} [restore] what the address says; whether its moment stands
 *   still
 * @property {(about: any) => void} [about] what is known of all lanes has changed
 */
/**
 * What the page gives a card.
 * @typedef {object} Page
 * @property {import("./dashboard.js").Dashboard} [dashboard] where one drive is shown
 * @property {(button: HTMLElement) => void} [tool] puts a button into the bar
 * @property {() => void} [hold] stops the page at its present moment
 * @property {() => object} [moment] what the server calls the moment that is shown
 * @property {() => void} [changed] what the card says of the address has changed
 * @property {() => void} [refresh] something about the drive that is shown has become known
 * @property {(command: object) => void} [send] a command of a person who has control
 */

export class Cards {
  /** @param {Page} page */
  constructor(page) {
    this.page = page;
    /** @type {Map<string, Card>} */
    this.parts = new Map();
    /** @type {{description: import("./protocol.js").Hello, ready: () => void} | null} */
    this.expected = null;
  }

  // Modules that are here already stay as they are.
  async load(names) {
    const fresh = [...names].filter((name) => !this.parts.has(name));
    // By the page's address, not by this module's: a proxy may put a path before all of them.
    const modules = await Promise.all(fresh.map((name) => import(new URL(`cards/${name}/card.js`, document.baseURI).href)));
    // A drive that began meanwhile may have loaded them too.
    fresh.forEach((name, i) => this.parts.has(name) || this.parts.set(name, modules[i].card(this.page)));
  }

  // The cards of a drive that begins: they come when arrive() is called, and then ready() is.
  expect(description, ready) {
    this.expected = { description, ready };
  }

  // Once something is to be seen, for until then the line is needed for that.
  async arrive() {
    if (!this.expected) return;
    const { description, ready } = this.expected;
    this.expected = null;
    await this.load(Object.keys(description.cards));
    this.describe(description.cards, description);
    ready();
  }

  describe(about, shown) {
    for (const [name, part] of this.parts) part.describe?.(about[name] ?? null, shown);
  }

  /** @param {keyof Card} method */
  each(method, ...values) {
    for (const part of this.parts.values()) /** @type {Function | undefined} */ (part[method])?.apply(part, values);
  }

  link() {
    return Object.assign({}, ...[...this.parts.values()].map((part) => part.link?.() ?? {}));
  }
}

// A card's style sheet; the rest of the page waits for none.
export function addStyle(address) {
  document.head.append(Object.assign(document.createElement("link"), { rel: "stylesheet", href: address }));
}
