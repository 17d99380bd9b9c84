// The head that is open: its map, numbers and roles, and the text as the query sees it.
import { scale } from "../colors.js";
import { divergingGradient, signed } from "../diverging.js";
import { element, fill, headingCell, table } from "../dom.js";
import { decimal, grouped, rowAt, weight } from "../numbers.js";
import { html, render } from "../parts/html.js";
import { linkTo, pointing } from "../selection.js";
import { HeadMap } from "./heads-map.js";

/** @import { Head } from "../selection.js" */
/** @import { WholeHead } from "./heads-map.js" */
/** @import { HeadsView } from "./heads.js" */

/** @type {Record<string, string>} */
const UNITS = { entropy: "heads.nats", distance: "heads.tokens" };
// The weakest weight that a logarithmic scale shows, as a share of the largest.
const FLOOR = 1e-4;

export class OneHead {
  constructor(/** @type {HeadsView} */ heads) {
    const { compare, context, selection, summary, why } = heads;
    const { t, source } = context;
    this.heads = heads;
    this.t = t;
    this.map = new HeadMap(heads, () => this.recolor());
    this.title = element("h2");
    this.key = element("p.key");
    this.numbers = element("tbody");
    this.roles = element("div");
    this.toSteps = element("a.steps-link", t("cell.open"));
    this.tokens = summary.running.map((word, at) => element("span", { "data-at": at }, word));
    const look = { "aria-live": "polite", "aria-label": t("heads.readout") };
    const readout = element("table.readout", { id: "heads-readout", ...look }, this.numbers);
    // The other models and texts are not those of the view "steps".
    const hasSteps = !source.offline && compare.side === "a" && !compare.model;
    this.element = element(
      "section.one",
      { "aria-label": t("heads.open") },
      element("div.head", this.title, this.key),
      element("div.map-and-numbers", this.map.element, readout),
      hasSteps && element("p", this.toSteps),
      // A difference has no score, and no query of it looks at anything.
      !summary.differs && [
        why.element,
        element("h2", t("heads.text")),
        element("p.quiet.on-page", t("heads.text_told")),
        // Each token can be made the query.
        element("p.tokens", pointing(selection), this.tokens),
      ],
    );
  }

  tellRoles(/** @type {Head} */ [layer, head]) {
    const { t } = this;
    const { scores, roles, differs } = this.heads.summary;
    const rows = Object.keys(scores).map((role) => {
      const score = scores[role][layer][head];
      const style = { "--share": Math.abs(score ?? 0) };
      const look = { "data-score": role, "data-value": score ?? "", style };
      const cell = element("td.score", look, differs ? signed(score, 3) : decimal(score, 3));
      const meaning = element("small", t(`heads.means.${role}`));
      const count = roles.flat().filter((one) => one === role).length;
      return [
        headingCell("row", t(`heads.role.${role}`), meaning),
        cell,
        element("td.right", { "data-role": role }, count),
      ];
    });
    const headings = ["heads.role", "heads.score", "heads.having"].map((name) => t(name));
    const made = table("table", t("heads.roles"), headings, rows);
    const own = Object.keys(scores).indexOf(roles[layer][head]);
    made.querySelectorAll("tbody tr")[own]?.classList.add("here");
    const isRandom = this.heads.roles.isRandom;
    const which = [t("heads.named", { layer, head }), isRandom && t("heads.test.random")];
    fill(this.roles, element("p.which", which.filter(Boolean).join(" · ")), made);
  }

  show(/** @type {WholeHead} */ whole) {
    const { heads, map, t } = this;
    const { opened, summary } = heads;
    const [layer, head] = opened;
    const role = summary.roles[layer][head];
    fill(
      this.title,
      t("heads.named", { layer, head }),
      role && element("span.tag", t(`heads.role.${role}`)),
      element("code", summary.layers[layer]),
    );
    this.tellRoles(opened);
    map.whole = whole;
    this.recolor();
  }

  recolor() {
    const { map, t } = this;
    const { look } = this.heads;
    if (!map.whole) return;
    map.show(look);
    const { largest, layout } = map;
    const least = look.logarithmic ? weight(largest * FLOOR) : "0";
    const ends = look.diverging ? [signed(-largest), signed(largest)] : [least, decimal(largest)];
    const style = look.diverging && { background: divergingGradient() };
    fill(
      this.key,
      element("span", ends[0]),
      element("span.ramp", { "aria-hidden": "true", style }),
      element("span", { "data-value": largest }, ends[1]),
      element("span.hidden", t("shell.hidden")),
      layout.pooled && element("span", t("heads.pooled")),
    );
    this.tell();
  }

  turn() {
    if (!this.map.whole) return;
    this.map.placeCross();
    this.tell();
  }

  /** Tell the numbers where the cross-hair stands, and shade the text. */
  tell() {
    const { t } = this;
    const { context, opened, selection, summary } = this.heads;
    const { look, whole } = this.map;
    const { query, key } = selection;
    const [layer, head] = opened;
    const { text, said } = context.state;
    this.toSteps.href = linkTo("steps", { layer, head, query, key, text, said });
    const row = rowAt(whole.values, query, summary.tokens.length);
    /** @param {number} at */
    const named = (at) => html`<b>${summary.tokens[at]}</b><span class="at">${grouped(at)}</span>`;
    /** @param {number} value @param {(value: number) => string} format  Of what is no difference */
    const number = (value, format = decimal) => {
      return [value, summary.differs ? signed(value) : format(value)];
    };
    // The place of a weight among those of its row; a key that the mask hides has −0.
    const isSeen = (/** @type {number} */ value) => !Object.is(value, -0);
    const hasRank = !summary.differs && isSeen(row[key]);
    const rank = 1 + row.filter((value) => value > row[key]).length;
    const count = row.filter(isSeen).length;
    const places = { rank: grouped(rank), count: grouped(count) };
    /** @type {Record<string, any[]>} */
    const numbers = {
      query: [query, named(query)],
      key: [key, named(key)],
      weight: number(row[key], weight),
      rank: hasRank ? [rank, t("heads.of", places)] : ["", "–"],
      entropy: number(whole.entropy[query]),
      distance: number(whole.distance[query]),
      received: number(whole.received[key]),
    };
    const rows = Object.entries(numbers).map(([name, [value, shown]]) => {
      const unit = UNITS[name] && ` ${t(UNITS[name])}`;
      return html`<tr>
        <th scope="row">${t(`heads.${name}`)}${unit}</th>
        <td data-row=${name} data-value=${value}>${shown}</td>
      </tr>`;
    });
    render(rows, this.numbers);
    const level = scale({ ...look, top: Math.max(...row.subarray(look.skip)) });
    this.tokens.forEach((token, at) => {
      const isShaded = isSeen(row[at]) && row[at] >= 0;
      const shade = at < look.skip ? "off" : isShaded && `w${level(row[at])}`;
      const names = [shade, at === query && "asks", at === key && "asked"];
      const name = names.filter(Boolean).join(" ");
      if (token.className !== name) token.className = name;
    });
  }
}
