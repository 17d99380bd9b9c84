// The head that is open: its map, numbers and roles, and the text as the query sees it.
import { scale } from "../colors.js";
import { divergingGradient, signed } from "../diverging.js";
import { element, fill, headingCell, table } from "../dom.js";
import { decimal, grouped, weight } from "../numbers.js";
import { HeadMap } from "./heads-map.js";

/**
 * @import { Translate } from "../app.js"
 * @import { Children } from "../dom.js"
 * @import { Look } from "../map.js"
 * @import { Summary } from "./heads-grid.js"
 * @import { WholeHead } from "./heads-map.js"
 */

const ROWS = ["query", "key", "weight", "rank", "entropy", "distance", "received"];
/** @type {Record<string, string>} */
const UNITS = { entropy: "heads.nats", distance: "heads.tokens" };
// The weakest weight that a logarithmic scale shows, as a share of the largest.
const FLOOR = 1e-4;

export class OneHead {
  /**
   * @param {Summary} summary
   * @param {Translate} t
   * @param {(query: number, key: number, isPinned: boolean) => void} moved
   * @param {boolean} hasSteps  Whether its cells can be opened in the view "steps"
   * @param {HTMLElement | null} why  Why a cell has its weight
   */
  constructor(summary, t, moved, hasSteps, why) {
    this.summary = summary;
    this.t = t;
    /** @type {WholeHead} */
    this.whole = null;
    /** @type {Look} */
    this.look = null;
    // The head and its role, and the ends of its colors.
    this.name = "";
    /** @type {string[]} */
    this.ends = [];
    // The query by whose weights the text is shaded.
    /** @type {number} */
    this.shadedQuery = null;
    this.map = new HeadMap(summary.tokens, t, (query, key, isPinned) => {
      this.tell();
      moved(query, key, isPinned);
    });
    this.title = element("h2");
    this.key = element("p.key");
    this.cells = cellsOf(ROWS, (row) => element("td", { "data-row": row }));
    const roles = Object.keys(summary.scores);
    this.scoreCells = cellsOf(roles, (role) => element("td.score", { "data-score": role }));
    this.roles = this.roleTable();
    this.tokens = summary.running.map((word, at) => element("span", { "data-at": at }, word));
    this.element = element(
      "section.one",
      { "aria-label": t("heads.open") },
      element("div.head", this.title, this.key),
      element("div.map-and-numbers", this.map.element, this.readout()),
      hasSteps && element("p", openInSteps(t)),
      why,
      // Of a difference, no query looks at anything.
      summary.differs
        ? null
        : [
            element("h2", t("heads.text")),
            element("p.quiet.on-page", t("heads.text_told")),
            this.text(),
          ],
    );
  }

  readout() {
    const { t, cells } = this;
    const rows = ROWS.map((row) => {
      const unit = UNITS[row] && ` ${t(UNITS[row])}`;
      return element("tr", headingCell("row", t(`heads.${row}`), unit), cells[row]);
    });
    return element(
      "table.readout",
      { id: "heads-readout", "aria-live": "polite", "aria-label": t("heads.readout") },
      element("tbody", rows),
    );
  }

  /** The text, in which each token can be made the query. */
  text() {
    /** @param {Event} event */
    const turn = ({ target, type }) => {
      const { at } = /** @type {HTMLElement} */ (target).dataset;
      if (at) this.map.turn(Number(at), this.map.key, type === "click");
    };
    const onpointerleave = () => this.map.leave();
    return element("p.tokens", { onpointermove: turn, onclick: turn, onpointerleave }, this.tokens);
  }

  roleTable() {
    const { t, summary } = this;
    const all = summary.roles.flat();
    const names = ["heads.role", "heads.score", "heads.having"];
    const rows = Object.entries(this.scoreCells).map(([role, cell]) => {
      const meaning = element("small", t(`heads.means.${role}`));
      const count = all.filter((one) => one === role).length;
      return [
        headingCell("row", t(`heads.role.${role}`), meaning),
        cell,
        element("td.right", { "data-role": role }, count),
      ];
    });
    const headings = names.map((name) => headingCell("col", t(name)));
    return table("table", t("heads.roles"), headings, rows);
  }

  /**
   * @param {number} layer
   * @param {number} head
   * @param {WholeHead} whole
   * @param {{query: number, key: number}} at
   * @param {Look} look
   */
  show(layer, head, whole, at, look) {
    const { t, summary } = this;
    const ownRole = summary.roles[layer][head];
    const role = ownRole && t(`heads.role.${ownRole}`);
    this.name = [t("heads.named", { layer, head }), role].filter(Boolean).join(" · ");
    this.whole = whole;
    Object.assign(this.map, at, { pinned: at });
    fill(
      this.title,
      t("heads.named", { layer, head }),
      role && element("span.tag", role),
      element("code", summary.layers[layer]),
    );
    for (const [each, cell] of Object.entries(this.scoreCells)) {
      const score = summary.scores[each][layer][head];
      cell.dataset.value = String(score ?? "");
      fill(cell, summary.differs ? signed(score, 3) : decimal(score, 3));
      cell.style.setProperty("--share", String(Math.abs(score ?? 0)));
      cell.parentElement.classList.toggle("here", each === ownRole);
    }
    this.recolor(look);
  }

  /** @param {Look} look */
  recolor(look) {
    // Without the first token, the bars of the others are longer.
    const isSameLayout = this.map.whole === this.whole && this.look.skip === look.skip;
    if (isSameLayout) this.map.color(look);
    else this.map.show(this.whole, look);
    this.look = look;
    const { largest, layout } = this.map;
    const least = look.logarithmic ? weight(largest * FLOOR) : "0";
    this.ends = look.diverging ? [signed(-largest), signed(largest)] : [least, decimal(largest)];
    const ramp = element("span.ramp", { "aria-hidden": "true" });
    if (look.diverging) ramp.style.background = divergingGradient();
    fill(
      this.key,
      element("span", this.ends[0]),
      ramp,
      element("span", { "data-value": largest }, this.ends[1]),
      element("span.hidden", this.t("shell.hidden")),
      layout.pooled ? element("span", this.t("heads.pooled")) : null,
    );
    this.shadedQuery = null;
    this.tell();
  }

  /** Tell the numbers where the cross-hair stands, and shade the text. */
  tell() {
    const { whole, summary } = this;
    const { query, key } = this.map;
    const { length } = summary.tokens;
    const row = whole.values.subarray(query * length, (query + 1) * length);
    this.tellToken("query", query);
    this.tellToken("key", key);
    this.tellNumber("weight", row[key], this.written(row[key], weight));
    this.tellRank(row, row[key]);
    this.tellNumber("entropy", whole.entropy[query]);
    this.tellNumber("distance", whole.distance[query]);
    this.tellNumber("received", whole.received[key]);
    if (this.shadedQuery !== query) this.shade(row);
    this.shadedQuery = query;
    this.tokens.forEach((token, at) => {
      token.classList.toggle("asks", at === query);
      token.classList.toggle("asked", at === key);
    });
  }

  /**
   * @param {string} name
   * @param {number} at
   */
  tellToken(name, at) {
    const token = element("b", this.summary.tokens[at]);
    this.tellNumber(name, at, [token, element("span.at", grouped(at))]);
  }

  /**
   * @param {string} name
   * @param {number | string} value
   * @param {Children} text
   */
  tellNumber(name, value, text = this.written(/** @type {number} */ (value), decimal)) {
    fill(this.cells[name], text);
    this.cells[name].dataset.value = String(value);
  }

  /**
   * @param {number} value
   * @param {(value: number) => string} format  Of what is no difference
   */
  written(value, format) {
    return this.summary.differs ? signed(value) : format(value);
  }

  /**
   * Tell which place a weight has among those of its row that are above 0.
   * @param {Float32Array} row
   * @param {number} own
   */
  tellRank(row, own) {
    if (!(own > 0) || this.summary.differs) {
      this.tellNumber("rank", "", "–");
      return;
    }
    const rank = 1 + countAbove(row, own);
    const places = { rank: grouped(rank), count: grouped(countAbove(row, 0)) };
    this.tellNumber("rank", rank, this.t("heads.of", places));
  }

  /** @param {Float32Array} row  The weights of the query */
  shade(row) {
    const { skip, logarithmic } = this.look;
    const level = scale({ top: Math.max(...row.subarray(skip)), logarithmic });
    this.tokens.forEach((token, at) => {
      const shown = row[at] > 0 ? `w${level(row[at])}` : "";
      const name = at < skip ? "off" : shown;
      if (token.className !== name) token.className = name;
    });
  }
}

/**
 * A link to what is selected, as the view "steps" works it out.
 * @param {Translate} t
 */
function openInSteps(t) {
  return element("a.steps-link", { href: "#steps" }, t("cell.open"));
}

/**
 * @template {HTMLElement} Cell
 * @param {string[]} names
 * @param {(name: string) => Cell} make
 * @returns {Record<string, Cell>}
 */
function cellsOf(names, make) {
  return Object.fromEntries(names.map((name) => [name, make(name)]));
}

/**
 * @param {Float32Array} row
 * @param {number} least
 */
function countAbove(row, least) {
  return row.reduce((sum, value) => sum + Number(value > least), 0);
}
