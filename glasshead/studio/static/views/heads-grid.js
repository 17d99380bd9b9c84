// The small maps of all heads, a row a layer, or of some of them in a row: arrow keys walk through.
import { signed } from "../diverging.js";
import { element, fill, moveOf, table } from "../dom.js";
import { drawMap } from "../map.js";
import { decimal, range, within } from "../numbers.js";

/**
 * @import { Translate } from "../app.js"
 * @import { Look } from "../map.js"
 * @import { Tensor } from "../source.js"
 * @import { Head } from "./prompt-heads.js"
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
 * @property {Summary} [other]  That of the text or the model which it is compared with
 * @property {boolean} [isSecond]  Whether it is that which the other is compared with
 * @property {boolean} [differs]  Whether scores and entropies are differences
 */

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
    this.cells = this.buttons.map((row) => row.map((button) => element("td", button)));
    // The heads in a row; null where all are shown, a row a layer.
    /** @type {HTMLButtonElement[] | null} */
    this.inARow = null;
    this.table = this.layOut();
    this.row = element("div.in-a-row", { role: "group", "aria-label": t("heads.some") });
    this.row.onkeydown = (event) => this.walk(event);
    this.row.style.setProperty("--heads", String(this.widest));
    this.element = element("div.grid", this.table);
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
    const rows = this.cells.map((row, at) => {
      const heading = numbered(layer, at, { scope: "row", title: summary.layers[at] });
      return [heading, row];
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
    const { roles, entropies } = this.told(layer, head);
    const name = t("heads.one", { layer, head, role: roles, entropy: entropies });
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
      element("span.place", `${layer}.${head}`),
      element("span.role", roles === t("heads.role.none") ? "–" : roles),
      element("span.entropy", entropies),
    );
  }

  /**
   * The role and the entropy of a head in words; of two texts or models, of both.
   * @param {number} layer
   * @param {number} head
   */
  told(layer, head) {
    const { t, summary } = this;
    const { other } = summary;
    /** @param {Summary} one */
    const roleIn = (one) => t(`heads.role.${one.roles[layer]?.[head] ?? "none"}`);
    const entropy = summary.entropy[layer][head];
    if (!other) return { roles: roleIn(summary), entropies: decimal(entropy, 2) };
    const both = summary.isSecond ? [other, summary] : [summary, other];
    const [before, after] = both.map(roleIn);
    const entropies = both.map((one) => decimal(one.entropy[layer]?.[head], 2));
    return {
      roles: before === after ? before : `${before} → ${after}`,
      entropies: summary.differs ? signed(entropy, 2) : entropies.join(" → "),
    };
  }

  /**
   * Show some heads in a row, or all of them.
   * @param {Head[] | null} heads
   */
  arrange(heads) {
    this.inARow = heads && heads.map(([layer, head]) => this.buttons[layer][head]);
    if (!this.inARow) {
      this.cells.forEach((row, layer) => {
        row.forEach((cell, head) => fill(cell, this.buttons[layer][head]));
      });
      fill(this.element, this.table);
      return;
    }
    const none = element("p.quiet", this.t("heads.none_such"));
    fill(this.row, this.inARow.length ? this.inARow : none);
    fill(this.element, this.row);
    // Tab leads to a head that is there.
    if (this.inARow.length && !this.inARow.includes(this.reached)) {
      const { layer, head } = this.inARow[0].dataset;
      this.reach(Number(layer), Number(head));
    }
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
    if (this.inARow) {
      this.walkInARow(this.inARow, /** @type {HTMLButtonElement} */ (from), move);
      return;
    }
    const { heads } = this.summary;
    const layer = within(Number(from.dataset.layer) + move[0], heads.length);
    this.reach(layer, within(Number(from.dataset.head) + move[1], heads[layer]));
    this.reached.focus();
  }

  /**
   * @param {HTMLButtonElement[]} all
   * @param {HTMLButtonElement} from
   * @param {[number, number]} move
   */
  walkInARow(all, from, [down, right]) {
    const columns = all.filter(({ offsetTop }) => offsetTop === all[0].offsetTop).length;
    const to = all[within(all.indexOf(from) + down * columns + right, all.length)];
    this.reach(Number(to.dataset.layer), Number(to.dataset.head));
    to.focus();
  }

  /** @param {Look} look */
  show({ logarithmic, skip, diverging }) {
    const [, side] = this.maps.shape;
    // A block of the first token alone is grayed.
    const grayed = side === this.summary.tokens.length ? skip : 0;
    this.buttons.flat().forEach((button, at) => {
      const values = this.smallMap(at, skip > 0);
      drawMap(canvasOf(button), values, side, { logarithmic, skip: grayed, diverging });
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
}

/** @param {HTMLButtonElement} button */
function canvasOf(button) {
  return /** @type {HTMLCanvasElement} */ (button.firstChild);
}
