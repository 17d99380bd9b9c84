// The head that is open: its map, numbers and roles, and the text as the query sees it.
import { scale } from "../colors.js";
import { divergingGradient, signed } from "../diverging.js";
import { element, fill, headingCell, table } from "../dom.js";
import { decimal, grouped, rowAt, weight } from "../numbers.js";
import { html, render } from "../parts/html.js";
import { pointing } from "../selection.js";
import { HeadMap } from "./heads-map.js";

/** @import { Translate } from "../app.js" */
/** @import { Look } from "../map.js" */
/** @import { Selection } from "../selection.js" */
/** @import { Summary } from "./heads-grid.js" */
/** @import { WholeHead } from "./heads-map.js" */

/** @type {Record<string, string>} */
const UNITS = { entropy: "heads.nats", distance: "heads.tokens" };
// The weakest weight that a logarithmic scale shows, as a share of the largest.
const FLOOR = 1e-4;

export class OneHead {
  /**
   * @param {Summary} summary @param {Translate} t @param {Selection} selection
   * @param {boolean} hasSteps  Whether its cells can be opened in the view "steps"
   * @param {HTMLElement | null} why  Why a cell has its weight
   */
  constructor(summary, t, selection, hasSteps, why) {
    this.summary = summary;
    this.selection = selection;
    this.t = t;
    /** @type {WholeHead} */
    this.whole = null;
    /** @type {Look} */
    this.look = null;
    // The query by whose weights the text is shaded.
    /** @type {number} */
    this.shadedQuery = null;
    this.map = new HeadMap(summary.tokens, t, selection);
    this.title = element("h2");
    this.key = element("p.key");
    this.numbers = element("tbody");
    this.roles = element("div");
    this.tokens = summary.running.map((word, at) => element("span", { "data-at": at }, word));
    const look = { "aria-live": "polite", "aria-label": t("heads.readout") };
    const readout = element("table.readout", { id: "heads-readout", ...look }, this.numbers);
    this.element = element(
      "section.one",
      { "aria-label": t("heads.open") },
      element("div.head", this.title, this.key),
      element("div.map-and-numbers", this.map.element, readout),
      hasSteps && element("p", openInSteps(t)),
      why,
      // Of a difference, no query looks at anything.
      summary.differs
        ? null
        : [
            element("h2", t("heads.text")),
            element("p.quiet.on-page", t("heads.text_told")),
            // Each token can be made the query.
            element("p.tokens", pointing(selection), this.tokens),
          ],
    );
  }

  /** Show how a head scores in each role. @param {number} layer @param {number} head */
  tellRoles(layer, head) {
    const { t, summary } = this;
    const { scores, roles, differs } = summary;
    const rows = Object.keys(scores).map((role) => {
      const score = scores[role][layer][head];
      const look = { "data-score": role, "data-value": score ?? "" };
      const cell = element("td.score", look, differs ? signed(score, 3) : decimal(score, 3));
      cell.style.setProperty("--share", String(Math.abs(score ?? 0)));
      const meaning = element("small", t(`heads.means.${role}`));
      const count = roles.flat().filter((one) => one === role).length;
      return [
        headingCell("row", t(`heads.role.${role}`), meaning),
        cell,
        element("td.right", { "data-role": role }, count),
      ];
    });
    const names = ["heads.role", "heads.score", "heads.having"];
    const headings = names.map((name) => t(name));
    const made = table("table", t("heads.roles"), headings, rows);
    const own = Object.keys(scores).indexOf(roles[layer][head]);
    made.querySelectorAll("tbody tr")[own]?.classList.add("here");
    fill(this.roles, made);
  }

  /** @param {number} layer @param {number} head @param {WholeHead} whole @param {Look} look */
  show(layer, head, whole, look) {
    const { t, summary } = this;
    const ownRole = summary.roles[layer][head];
    const role = ownRole && t(`heads.role.${ownRole}`);
    this.whole = whole;
    fill(
      this.title,
      t("heads.named", { layer, head }),
      role && element("span.tag", role),
      element("code", summary.layers[layer]),
    );
    this.tellRoles(layer, head);
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
    const ends = look.diverging ? [signed(-largest), signed(largest)] : [least, decimal(largest)];
    const ramp = element("span.ramp", { "aria-hidden": "true" });
    if (look.diverging) ramp.style.background = divergingGradient();
    fill(
      this.key,
      element("span", ends[0]),
      ramp,
      element("span", { "data-value": largest }, ends[1]),
      element("span.hidden", this.t("shell.hidden")),
      layout.pooled ? element("span", this.t("heads.pooled")) : null,
    );
    this.shadedQuery = null;
    this.tell();
  }

  /** Show another query or key. */
  turn() {
    if (!this.whole) return;
    this.map.placeCross();
    this.tell();
  }

  /** Tell the numbers where the cross-hair stands, and shade the text. */
  tell() {
    const { t, whole, summary } = this;
    const { query, key } = this.selection;
    const { length } = summary.tokens;
    const row = rowAt(whole.values, query, length);
    /** @param {number} at */
    const named = (at) => html`<b>${summary.tokens[at]}</b><span class="at">${grouped(at)}</span>`;
    /** @param {number} value @param {(value: number) => string} format  Of what is no difference */
    const number = (value, format = decimal) => {
      return [value, summary.differs ? signed(value) : format(value)];
    };
    /** @type {Record<string, any[]>} */
    const numbers = {
      query: [query, named(query)],
      key: [key, named(key)],
      weight: number(row[key], weight),
      rank: summary.differs ? ["", "–"] : this.rank(row, row[key]),
      entropy: number(whole.entropy[query]),
      distance: number(whole.distance[query]),
      received: number(whole.received[key]),
    };
    const rows = Object.entries(numbers).map(([name, [value, text]]) => {
      const unit = UNITS[name] && ` ${t(UNITS[name])}`;
      return html`<tr>
        <th scope="row">${t(`heads.${name}`)}${unit}</th>
        <td data-row=${name} data-value=${value}>${text}</td>
      </tr>`;
    });
    render(rows, this.numbers);
    if (this.shadedQuery !== query) this.shade(row);
    this.shadedQuery = query;
    this.tokens.forEach((token, at) => {
      token.classList.toggle("asks", at === query);
      token.classList.toggle("asked", at === key);
    });
  }

  /**
   * The place of a weight among those of its row that are above 0.
   * @param {Float32Array} row @param {number} own
   */
  rank(row, own) {
    if (!(own > 0)) return ["", "–"];
    const rank = 1 + countAbove(row, own);
    const places = { rank: grouped(rank), count: grouped(countAbove(row, 0)) };
    return [rank, this.t("heads.of", places)];
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

/** A link to what is selected, as the view "steps" works it out. @param {Translate} t */
function openInSteps(t) {
  return element("a.steps-link", { href: "#steps" }, t("cell.open"));
}

/** @param {Float32Array} row @param {number} least */
function countAbove(row, least) {
  return row.reduce((sum, value) => sum + Number(value > least), 0);
}
