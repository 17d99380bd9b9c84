// The roles of the heads as chips that choose some of them, their order, and the induction test.
import { choice, menu, progress } from "../controls.js";
import { button, element, fill } from "../dom.js";
import { decimal } from "../numbers.js";
import { placeOf } from "../selection.js";
import { html, render } from "../parts/html.js";
import { Refused } from "../source.js";
import { roleColor } from "./heads-grid.js";

/** @import { Context } from "../app.js" */
/** @import { Options, Progress } from "../source.js" */
/** @import { Summary } from "./heads-grid.js" */
/** @import { Head } from "../selection.js" */

/**
 * What the model's heads do on repeated random tokens.
 * @typedef {object} RandomRoles
 * @property {string[]} layers
 * @property {(string | null)[][]} roles
 * @property {Record<string, (number | null)[][]>} scores
 * @property {number} rows
 * @property {number} length
 * @property {number} period
 * @property {number} times
 */

// As the address has a head without a role.
const NONE = "none";

export class RoleBar {
  /**
   * @param {Context} context
   * @param {() => void} arranged  Other heads are shown, or in another order
   * @param {() => void} tested  The roles are to be those on another text
   * @param {(layer: number, head: number) => void} go  Opens a head
   */
  constructor(context, arranged, tested, go) {
    this.context = context;
    this.arranged = arranged;
    this.tested = tested;
    this.go = go;
    /** @type {Summary} */
    this.summary = null;
    // What is known of each model on random tokens.
    /** @type {Map<number, RandomRoles>} */
    this.tests = new Map();
    // Why the last test was refused.
    /** @type {string | null} */
    this.refused = null;
    this.chips = element("div.chips", {
      role: "group",
      "aria-label": context.t("heads.roles"),
    });
    this.order = element("div.order");
    this.test = element("div.test");
    const roles = element("div.labeled", element("span", context.t("heads.role")), this.chips);
    this.element = element("div.role-bar", roles, this.order, this.test);
  }

  /** Whether the roles are those on repeated random tokens. */
  get isRandom() {
    return this.context.state.roles === "random" && !this.context.source.offline;
  }

  /** The roles of the heads that are shown; none: all heads. */
  get chosen() {
    return (this.context.state.role ?? "").split(",").filter(Boolean);
  }

  /** Have the test run where it is asked for. @param {number} model @param {Options} options */
  async load(model, { signal, onProgress }) {
    if (!this.isRandom || this.tests.has(model)) return;
    const { source, t, remember } = this.context;
    const bar = progress(t("heads.testing"));
    fill(this.test, bar);
    /** @param {Progress} progress */
    const reached = ({ stage, done, of }) => {
      bar.show(of > 1 ? done / of : null, t(stage));
      onProgress?.({ stage, done, of });
    };
    const params = { model: model || null };
    const asked = source.stream("heads/roles", params, { signal, onProgress: reached });
    try {
      this.tests.set(model, await asked);
      this.refused = null;
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      // The text is shown all the same, with its own roles.
      this.refused = error.message;
      remember({ roles: null });
    }
  }

  /**
   * What is told of the heads, with their roles on the text or on random tokens.
   * @param {Summary} summary @param {number} model @returns {Summary}
   */
  applied(summary, model) {
    const test = this.isRandom ? this.tests.get(model) : null;
    if (!test) return summary;
    const places = summary.layers.map((name) => test.layers.indexOf(name));
    /** @template Value @param {Value[][]} rows */
    const inPlace = (rows) => {
      return places.map((place, at) => {
        return summary.roles[at].map((_, head) => rows[place]?.[head] ?? null);
      });
    };
    const scores = Object.entries(test.scores).map(([role, rows]) => [role, inPlace(rows)]);
    const roles = inPlace(test.roles);
    if (summary.differs) return { ...summary, roles };
    return { ...summary, roles, scores: Object.fromEntries(scores) };
  }

  /**
   * @param {Summary} summary  With the roles that are shown
   * @param {number} model
   */
  show(summary, model) {
    this.summary = summary;
    this.showChips();
    this.showOrder();
    this.showTest(model);
  }

  showChips() {
    const { t } = this.context;
    const { chosen, summary } = this;
    const all = summary.roles.flat().map((role) => role ?? NONE);
    const chips = [...Object.keys(summary.scores), NONE].map((role) => {
      const count = all.filter((one) => one === role).length;
      const isOn = chosen.includes(role);
      if (!count && !isOn) return null;
      return html`<button
        key=${role}
        class="chip"
        type="button"
        style=${`--role: ${roleColor(summary, role)}`}
        data-role=${role}
        aria-pressed=${String(isOn)}
        onClick=${() => this.toggle(role)}
      >
        <span class="swatch" aria-hidden="true" />${t(`heads.role.${role}`)}${" "}<b>${count}</b>
      </button>`;
    });
    render(chips, this.chips);
  }

  /** @param {string} role */
  toggle(role) {
    const others = this.chosen.filter((each) => each !== role);
    const chosen = others.length < this.chosen.length ? others : [...others, role];
    this.context.remember({ role: chosen.join(",") || null });
    this.showChips();
    this.arranged();
  }

  showOrder() {
    const { t, state, remember } = this.context;
    /** @type {[string, string][]} */
    const options = [
      ["place", t("heads.sort.place")],
      ["entropy", t("heads.sort.entropy")],
    ];
    for (const role of Object.keys(this.summary.scores)) {
      options.push([role, t("heads.sort.score", { role: t(`heads.role.${role}`) })]);
    }
    const known = options.some(([value]) => value === state.sort);
    const made = menu(t("heads.sort"), options, known ? state.sort : "place", (value) => {
      remember({ sort: value === "place" ? null : value });
      this.arranged();
    });
    fill(this.order, made);
  }

  /** @param {number} model */
  showTest(model) {
    const { t, source, state, remember } = this.context;
    if (source.offline) return;
    const test = this.tests.get(model);
    /** @param {string} value */
    const change = (value) => {
      remember({ roles: value === "text" ? null : value });
      this.tested();
    };
    if (!test) {
      fill(
        this.test,
        button(t("heads.test"), () => change("random")),
      );
      return;
    }
    /** @type {[string, string][]} */
    const options = [
      ["text", t("heads.test.text")],
      ["random", t("heads.test.random")],
    ];
    const { rows, length, period, times } = test;
    const value = state.roles === "random" ? "random" : "text";
    const told = t("heads.test.told", { rows, length, period, times });
    const picked = choice(t("heads.test.on"), options, value, change);
    fill(this.test, picked, value === "random" && this.answer(test), element("p.quiet", told));
  }

  /**
   * What the test has found, in a sentence about the strongest head, and the way to its map.
   * @param {RandomRoles} test
   */
  answer({ layers, roles, scores }) {
    const { t } = this.context;
    /** @type {Head[]} */
    const heads = scores.induction.flatMap((row, layer) => row.map((_, head) => [layer, head]));
    /** @param {Head} head */
    const scoreOf = ([layer, head]) => scores.induction[layer][head] ?? -Infinity;
    const [best] = heads.toSorted((one, other) => scoreOf(other) - scoreOf(one));
    if (!Number.isFinite(scoreOf(best))) return null;
    const found = heads.filter(([layer, head]) => roles[layer][head] === "induction");
    const isFound = placeOf(found, best) >= 0;
    // The layers of the text may have other numbers than those of the test.
    const layer = this.summary.layers.indexOf(layers[best[0]]);
    if (layer < 0) return null;
    const places = { layer, head: best[1], score: decimal(scoreOf(best), 2) };
    const others = found.length - 1;
    return element(
      "p.answer",
      { role: "status" },
      t(isFound ? "heads.test.found" : "heads.test.closest", places),
      others > 0 && [" ", t("heads.test.others", { count: others })],
      " ",
      button(t("prompt.map"), () => this.go(layer, best[1])),
    );
  }

  /**
   * The heads that are shown in a row; null where they are all shown, a row a layer.
   * @returns {Head[] | null}
   */
  arrangement() {
    const { summary, chosen } = this;
    const { sort } = this.context.state;
    const scores = summary.scores[sort];
    if (!chosen.length && sort !== "entropy" && !scores) return null;
    /** @type {Head[]} */
    const all = summary.roles.flatMap((row, layer) => {
      return row.map((_, head) => /** @type {Head} */ ([layer, head]));
    });
    const shown = all.filter(([layer, head]) => {
      return !chosen.length || chosen.includes(summary.roles[layer][head] ?? NONE);
    });
    /** @param {Head} head */
    const rank = ([layer, head]) => {
      if (sort === "entropy") return summary.entropy[layer][head] ?? Infinity;
      return scores ? -(scores[layer][head] ?? -Infinity) : 0;
    };
    return shown.sort((one, other) => rank(one) - rank(other) || 0);
  }
}
