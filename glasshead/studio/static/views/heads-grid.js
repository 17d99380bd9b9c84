// The small maps of all heads, a row a layer, or of some of them in a row, with what is known of each.
import { MOST_COLORS, categories } from "../colors.js";
import { signed } from "../diverging.js";
import { decimal } from "../numbers.js";
import { HeadGrid } from "../parts/head-grid.js";
import { html } from "../parts/html.js";
import { placeOf } from "../selection.js";

/** @import { Translate } from "../app.js" */
/** @import { Head } from "../selection.js" */
/** @import { HeadsView } from "./heads.js" */

/**
 * What the studio says of a text: its tokens, and the role, scores and entropy of each head.
 * @typedef {object} Summary
 * @property {string[]} tokens @property {string[]} running  The tokens as running text
 * @property {number} of  Tokens of the whole text
 * @property {string[]} layers @property {number[]} heads  Number of heads of each layer
 * @property {(string | null)[][]} roles
 * @property {Record<string, (number | null)[][]>} scores  By role
 * @property {number[][]} entropy @property {Head} first  Layer and head to open first
 * @property {Head[] | null} whole  Heads whose whole maps a report holds; null: all
 * @property {Summary} [other]  That of the text or the model which it is compared with
 * @property {boolean} [isSecond]  Whether it is that which the other is compared with
 * @property {boolean} [differs]  Whether scores and entropies are differences
 */

export function headsGrid(/** @type {HeadsView} */ heads) {
  const { summary, maps, look, opened: open } = heads;
  const { t } = heads.context;
  const some = heads.roles.arrangement();
  if (some && !some.length) return html`<p class="quiet">${t("heads.none_such")}</p>`;
  const cell = (/** @type {Head} */ one) => {
    const [layer, head] = one;
    const { roles, entropies } = told(t, summary, one);
    const name = t("heads.one", { layer, head, role: roles, entropy: entropies });
    const hasMap = isThere(summary, one);
    const role = summary.roles[layer][head];
    return {
      style: `--role: ${roleColor(summary, role)}`,
      "aria-label": name,
      "aria-current": String(one) === String(open) ? "true" : null,
      "aria-disabled": hasMap ? null : "true",
      title: hasMap ? name : t("heads.absent"),
      "data-entropy": summary.entropy[layer][head],
      "data-role": role ?? "",
      onClick: () => hasMap && heads.choose(one),
      held: html`<span class="place">${layer}.${head}</span>
        <span class="role">${roles === t("heads.role.none") ? "–" : roles}</span>
        <span class="entropy">${entropies}</span>`,
    };
  };
  /** @param {number} layer */
  const rowHead = (layer) => html`<span title=${summary.layers[layer]}>${layer}</span>`;
  const { tokens, heads: counts } = summary;
  const props = { t, counts, maps, look, tokens: tokens.length, rowHead, cell, open, some };
  return html`<${HeadGrid} ...${props} />`;
}

// The color of a role, of which there are as many as colors.
/** @param {Summary} summary @param {string | null} role */
export function roleColor(summary, role) {
  const at = Object.keys(summary.scores).indexOf(role);
  return at < 0 || at >= MOST_COLORS ? "transparent" : categories()[at];
}

// Whether the whole map is to be had: a report may hold those of some heads alone.
/** @param {Summary} summary @param {Head} head */
export function isThere({ heads, whole }, head) {
  return head[1] < heads[head[0]] && (!whole || placeOf(whole, head) >= 0);
}

// The role and the entropy of a head in words; of two texts or models, of both.
/** @param {Translate} t @param {Summary} summary @param {Head} one */
function told(t, summary, [layer, head]) {
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
