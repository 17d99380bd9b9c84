// The small maps of all heads, a row a layer: a grid that arrow keys walk through.
import { element, moveOf, table } from "../dom.js";
import { drawMap } from "../map.js";
import { decimal, range, within } from "../numbers.js";

/**
 * @import { Translate } from "../app.js"
 * @import { Mark } from "../figure.js"
 * @import { Look } from "../map.js"
 * @import { Tensor } from "../source.js"
 */

/**
 * What the studio says of a text: its tokens, and the role, scores and entropy of each head.
 * @typedef {object} Summary
 * @property {string[]} tokens
 * @property {string[]} running  The tokens as running text
 * @property {number} of  Tokens of the whole text
 * @property {string[]} layers
 * @property {number[]} heads  Number of heads of each layer
 * @property {(string | null)[][]} roles
 * @property {Record<string, (number | null)[][]>} scores  By role
 * @property {number[][]} entropy
 * @property {[number, number]} first  Layer and head to open first
 * @property {[number, number][] | null} whole  Heads whose whole maps a report holds; null: all
 */

// Of the picture: a map, the way to the next, and what is beside and above all maps.
const SIDE = 72;
const RIGHT = 84;
const DOWN = 98;
const LEFT = 64;
const TOP = 56;

export class HeadsGrid {
  /**
   * @param {Summary} summary
   * @param {Tensor} maps
   * @param {Translate} t
   * @param {(layer: number, head: number) => void} chosen
   */
  constructor(summary, maps, t, chosen) {
    this.summary = summary;
    this.maps = maps;
    this.t = t;
    this.chosen = chosen;
    /** @type {HTMLButtonElement} */
    this.reached = null;
    /** @type {HTMLButtonElement} */
    this.marked = null;
    this.buttons = summary.heads.map((count, layer) => {
      return range(count).map((head) => this.button(layer, head));
    });
    this.element = this.layOut();
  }

  get widest() {
    return Math.max(...this.summary.heads);
  }

  layOut() {
    const { t, summary, widest } = this;
    const head = t("heads.head");
    const layer = t("heads.layer");
    /**
     * @param {string} name
     * @param {number} at
     * @param {Record<string, string>} attributes
     */
    const numbered = (name, at, attributes) => {
      return element("th.unseen", attributes, element("span", name, " "), at);
    };
    const headings = range(widest).map((at) => numbered(head, at, { scope: "col" }));
    const rows = this.buttons.map((row, at) => {
      const heading = numbered(layer, at, { scope: "row", title: summary.layers[at] });
      return [heading, row.map((button) => element("td", button))];
    });
    const corner = element("td", `${head} →`, element("br"), `${layer} ↓`);
    const made = table("table", t("heads.grid"), [corner, headings], rows);
    made.onkeydown = (event) => this.walk(event);
    made.style.setProperty("--heads", String(widest));
    return made;
  }

  /**
   * @param {number} layer
   * @param {number} head
   */
  button(layer, head) {
    const { t, summary } = this;
    const role = summary.roles[layer][head];
    const entropy = summary.entropy[layer][head];
    const isThere = this.isThere(layer, head);
    const roleName = t(`heads.role.${role ?? "none"}`);
    const written = decimal(entropy, 2);
    const name = t("heads.one", { layer, head, role: roleName, entropy: written });
    const onclick = () => {
      this.reach(layer, head);
      if (isThere) this.chosen(layer, head);
    };
    return element(
      "button.small",
      {
        type: "button",
        tabindex: "-1",
        "aria-label": name,
        title: isThere ? name : t("heads.absent"),
        "aria-disabled": isThere ? null : "true",
        "data-layer": layer,
        "data-head": head,
        "data-entropy": entropy,
        "data-role": role ?? "",
        onclick,
      },
      element("canvas"),
      element("span.role", role ? roleName : "–"),
      element("span.entropy", written),
    );
  }

  /**
   * Whether the whole map is to be had: a report may hold those of some heads alone.
   * @param {number} layer
   * @param {number} head
   */
  isThere(layer, head) {
    const { whole } = this.summary;
    return !whole || whole.some(([one, other]) => one === layer && other === head);
  }

  /**
   * Let Tab lead to this head, and to no other.
   * @param {number} layer
   * @param {number} head
   */
  reach(layer, head) {
    if (this.reached) this.reached.tabIndex = -1;
    this.reached = this.buttons[layer][head];
    this.reached.tabIndex = 0;
  }

  /**
   * Mark the head that is open.
   * @param {number} layer
   * @param {number} head
   */
  mark(layer, head) {
    if (this.marked) this.marked.ariaCurrent = null;
    this.marked = this.buttons[layer][head];
    this.marked.ariaCurrent = "true";
    this.reach(layer, head);
  }

  /** @param {KeyboardEvent} event */
  walk(event) {
    const from = /** @type {Element} */ (event.target).closest("button");
    const move = moveOf(event);
    if (!from || !move) return;
    event.preventDefault();
    const { heads } = this.summary;
    const layer = within(Number(from.dataset.layer) + move[0], heads.length);
    this.reach(layer, within(Number(from.dataset.head) + move[1], heads[layer]));
    this.reached.focus();
  }

  /** @param {Look} look */
  show({ logarithmic, skip }) {
    const [, side] = this.maps.shape;
    // A block of the first token alone is greyed.
    const greyed = side === this.summary.tokens.length ? skip : 0;
    this.buttons.flat().forEach((button, at) => {
      const values = this.smallMap(at, skip > 0);
      drawMap(canvasOf(button), values, side, { logarithmic, skip: greyed });
    });
  }

  /**
   * The map of a head, with the first token or without.
   * @param {number} at  Among all heads of all layers
   * @param {boolean} withoutFirst
   */
  smallMap(at, withoutFirst) {
    const [, side, wider] = this.maps.shape;
    const values = new Float32Array(side * side);
    for (let row = 0; row < side; row += 1) {
      const start = (at * side + row) * wider;
      const blocks = this.maps.values.subarray(start, start + wider);
      values.set(blocks.subarray(0, side), row * side);
      // The last column is what the first token alone gets.
      if (withoutFirst) values[row * side] -= blocks[side];
    }
    return values;
  }

  figure() {
    /** @type {Mark[]} */
    const marks = [{ x: LEFT, y: 26, text: this.t("heads.grid"), size: 15, weight: 600 }];
    this.buttons.forEach((row, layer) => {
      const y = TOP + layer * DOWN;
      marks.push({ x: LEFT - 12, y: y + SIDE / 2, text: layer, anchor: "end" });
      row.forEach((button, head) => {
        const x = LEFT + head * RIGHT;
        const href = canvasOf(button).toDataURL();
        const texts = Array.from(button.querySelectorAll("span"), (part) => part.textContent);
        marks.push({ x, y, width: SIDE, height: SIDE, href });
        marks.push({ x, y: y + SIDE + 13, size: 10, text: texts.join(" ") });
      });
    });
    const height = TOP + this.buttons.length * DOWN;
    return { width: LEFT + this.widest * RIGHT + 20, height, marks };
  }
}

/** @param {HTMLButtonElement} button */
function canvasOf(button) {
  return /** @type {HTMLCanvasElement} */ (button.firstChild);
}
