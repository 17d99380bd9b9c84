// The roles of the heads as chips that choose some of them, their order, and the induction test.
import { choice, menu, progress } from "../controls.js";
import { button, element, fill } from "../dom.js";
import { decimal, largestFirst } from "../numbers.js";
import { html, render } from "../parts/html.js";
import { Refused } from "../source.js";
import { roleColor } from "./heads-grid.js";

/** @import { Options, Progress } from "../source.js" */
/** @import { Summary } from "./heads-grid.js" */
/** @import { HeadsView } from "./heads.js" */
/** @import { Head } from "../selection.js" */

/**
 * What the model's heads do on repeated random tokens.
 * @typedef {Pick<Summary, "layers" | "roles" | "scores">
 *   & Record<"rows" | "length" | "period" | "times", number>} RandomRoles
 */

// As the address has a head without a role.
const NONE = "none";

export class RoleBar {
  constructor(/** @type {HeadsView} */ heads) {
    const { t } = heads.context;
    this.heads = heads;
    this.context = heads.context;
    // What is known of each model on random tokens.
    this.tests = /** @type {Map<number, RandomRoles>} */ (new Map());
    this.refused = "";
    this.chips = element("div.chips", { role: "group", "aria-label": t("heads.roles") });
    this.order = element("div.order");
    this.testing = element("div.test");
    const roles = element("div.labeled", element("span", t("heads.role")), this.chips);
    this.element = element("div.role-bar", roles, this.order, this.testing);
  }

  /** Whether the roles are those on repeated random tokens. */
  get isRandom() {
    return this.context.state.roles === "random" && !this.context.source.offline;
  }

  /** What is known of the model whose heads are shown. */
  get test() {
    return this.tests.get(this.heads.compare.modelShown);
  }

  /** The roles of the heads that are shown; none: all heads. */
  get chosen() {
    return (this.context.state.role ?? "").split(",").filter(Boolean);
  }

  /** Have the test run where it is asked for. @param {Options} options */
  async load(options) {
    if (!this.isRandom || this.test) return;
    const { source, t, remember } = this.context;
    const model = this.heads.compare.modelShown;
    const bar = progress(t("heads.testing"));
    fill(this.testing, bar);
    this.refused = "";
    // While a text is read, the progress bar of the text is in sight and shows the test, too.
    /** @param {Progress} reached */
    const onProgress = ({ stage, done, of }) => bar.show(of > 1 ? done / of : null, t(stage));
    try {
      const params = { model: model || null };
      const told = await source.stream("heads/roles", params, { onProgress, ...options });
      this.tests.set(model, told);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      // The text is shown all the same, with its own roles.
      this.refused = error.message;
      remember({ roles: null });
    }
  }

  // A summary of the heads with their roles on the text or on random tokens.
  /** @param {Summary} summary @returns {Summary} */
  applied(summary) {
    const { test } = this;
    if (!this.isRandom || !test) return summary;
    /** @template Value @param {Value[][]} rows */
    const inPlace = (rows) => {
      return summary.layers.map((name, at) => {
        const row = rows[test.layers.indexOf(name)];
        return summary.roles[at].map((_, head) => row?.[head] ?? null);
      });
    };
    const roles = inPlace(test.roles);
    if (summary.differs) return { ...summary, roles };
    const scores = Object.entries(test.scores).map(([role, rows]) => [role, inPlace(rows)]);
    return { ...summary, roles, scores: Object.fromEntries(scores) };
  }

  show() {
    this.showChips();
    this.showOrder();
    this.showTest();
    // It is said once.
    this.refused = "";
  }

  showChips() {
    const { t } = this.context;
    const { chosen } = this;
    const { summary } = this.heads;
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

  toggle(/** @type {string} */ role) {
    const others = this.chosen.filter((each) => each !== role);
    const chosen = others.length < this.chosen.length ? others : [...others, role];
    this.context.remember({ role: chosen.join(",") || null });
    this.showChips();
    this.heads.drawGrid();
  }

  showOrder() {
    const { t, state, remember } = this.context;
    const roles = Object.keys(this.heads.summary.scores);
    const names = roles.map((role) => t("heads.sort.score", { role: t(`heads.role.${role}`) }));
    const values = ["place", "entropy", ...roles];
    const told = [t("heads.sort.place"), t("heads.sort.entropy"), ...names];
    const shown = values.includes(state.sort) ? state.sort : "place";
    const options = values.map((value, at) => [value, told[at]]);
    const made = menu(t("heads.sort"), options, shown, (value) => {
      remember({ sort: value === "place" ? null : value });
      this.heads.drawGrid();
    });
    fill(this.order, made);
  }

  showTest() {
    const { test, testing } = this;
    const { t, source, state, remember } = this.context;
    if (source.offline) return;
    const change = (/** @type {string} */ value) => {
      remember({ roles: value === "text" ? null : value });
      this.heads.turn();
    };
    if (!test) {
      const ask = button(t("heads.test"), () => change("random"));
      fill(testing, ask, this.refused && element("p.note", { role: "alert" }, this.refused));
      return;
    }
    const value = state.roles === "random" ? "random" : "text";
    const picked = choice(
      t("heads.test.on"),
      [
        ["text", t("heads.test.text")],
        ["random", t("heads.test.random")],
      ],
      value,
      change,
    );
    const { rows, length, period, times } = test;
    const told = element("p.quiet", t("heads.test.told", { rows, length, period, times }));
    fill(testing, picked, value === "random" && this.answer(test), told);
  }

  /** What the test has found, in a sentence about the strongest head, and the way to its map. */
  answer(/** @type {RandomRoles} */ { layers, roles, scores }) {
    const { t } = this.context;
    const { heads } = this;
    /** @param {Head} head */
    const scoreOf = ([layer, head]) => scores.induction[layer][head] ?? -Infinity;
    const all = headsIn(scores.induction);
    const [best] = largestFirst(all, scoreOf);
    if (!Number.isFinite(scoreOf(best))) return null;
    const found = all.filter(([layer, head]) => roles[layer][head] === "induction");
    // The layers of the text may have other numbers than those of the test.
    const layer = heads.summary.layers.indexOf(layers[best[0]]);
    if (layer < 0) return null;
    const places = { layer, head: best[1], score: decimal(scoreOf(best), 2) };
    const others = found.length - 1;
    return element(
      "p.answer",
      { role: "status" },
      t(found.includes(best) ? "heads.test.found" : "heads.test.closest", places),
      others > 0 && [" ", t("heads.test.others", { count: others })],
      " ",
      button(t("heads.test.open", places), () => heads.choose([layer, best[1]])),
    );
  }

  // The heads that are shown in a row; null where they are all shown, a row a layer.
  /** @returns {Head[] | null} */
  arrangement() {
    const { chosen } = this;
    const { roles, scores, entropy } = this.heads.summary;
    const { sort } = this.context.state;
    const sorted = scores[sort];
    if (!chosen.length && sort !== "entropy" && !sorted) return null;
    const shown = headsIn(roles).filter(([layer, head]) => {
      return !chosen.length || chosen.includes(roles[layer][head] ?? NONE);
    });
    return largestFirst(shown, ([layer, head]) => {
      if (sort === "entropy") return -(entropy[layer][head] ?? Infinity);
      return sorted?.[layer][head] ?? -Infinity;
    });
  }
}

/** All heads of a table that has a row a layer. @param {any[][]} rows @returns {Head[]} */
function headsIn(rows) {
  return rows.flatMap((row, layer) => row.map((_, head) => /** @type {Head} */ ([layer, head])));
}
