// One query of a head of the model that is served: the walk of its own numbers.
import { TextPicker, firstText, menu, progress } from "../controls.js";
import { element, fill, headingCell, table } from "../dom.js";
import {
  decimal,
  grouped,
  largestAt,
  largestFirst,
  range,
  rowAt,
  significant,
  weight,
} from "../numbers.js";
import { Refused, newest } from "../source.js";
import { shortWeight } from "./steps-layout.js";
import { Practice } from "./steps-practice.js";
import { NUMBERS, numbered, othersOf, traitsOf } from "./steps-row.js";
import { shiftOf } from "./steps-sums.js";
import { Walk } from "./steps-walk.js";

/** @import { Context } from "../app.js" */
/** @import { Key, Row } from "./steps-row.js" */

/**
 * A row as the studio tells it, with what it is of: the tokens of the whole text, the layers' names,
 * the heads of each, the weights of all keys, and the key head that is read, of how many.
 * @typedef {{tokens: string[], of: number, layers: string[], heads: number[], layer: number,
 *   head: number, query: number, key: number | null, mask: string | null,
 *   key_head: [number, number], weights: number[], is_product: boolean}} Told
 */

/** What makes no sense in another text. @type {Record<string, number | null>} */
const OF_A_TEXT = { layer: 0, head: 0, query: null, key: null, frame: null };

// Queries of which a weight is predicted, besides the one that is shown.
const OTHERS = 4;
// Vectors of at most so many numbers have room for them on a telephone.
const FEW = 3;
// What is larger is written as a power of ten.
const LARGE = 1e6;

export class CellOfModel {
  /** @param {HTMLElement} frame @param {Context} context */
  constructor(frame, context) {
    const { t } = context;
    this.frame = frame;
    this.context = context;
    this.t = t;
    this.newAsking = newest(context.signal);
    this.picker = new TextPicker(context, (place) => {
      context.remember({ ...OF_A_TEXT, ...place });
      fill(this.origin);
      this.text = place.text;
      return this.ask();
    });
    this.origin = element("p.quiet.origin");
    this.refusal = element("div", { role: "alert" });
    this.controls = element("div.controls", { role: "group", "aria-label": t("steps.choices") });
    this.title = element("h2");
    this.facts = element("p.quiet.facts");
    this.walk = new Walk(context);
    this.practice = new Practice(context, this.walk);
    this.strip = element("div.strip.all", { "aria-hidden": "true" });
    this.note = element("p.quiet");
    this.numbers = element("div", { "data-panel": "" });
  }

  async start() {
    const { t } = this;
    const example = element("a", { href: "#steps?text=Hello shiny sun!" }, t("cell.example"));
    const { picker, origin } = this;
    const top = element("div.top", picker.element, element("p.quiet", example), origin);
    this.made = element("div.made", progress(t("heads.opening")));
    fill(this.frame, top, this.refusal, this.made);
    this.text = await firstText(this.context, this.origin);
    await Promise.all([this.picker.show(this.text), this.ask()]);
  }

  /** Ask for a row, of another query, key or head. @param {Record<string, any>} changes */
  async ask(changes = {}) {
    const { context, frame } = this;
    context.remember(changes);
    delete frame.dataset.drawn;
    const signal = this.newAsking();
    const { layer, head, query, key } = context.state;
    const params = { text: this.text, layer, head, query, key };
    try {
      const told = await context.source.json("steps/cell", params, { signal });
      if (signal.aborted) return;
      fill(this.refusal);
      this.draw(told, rowOfModel(told, this.t));
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof Refused)) throw error;
      fill(this.refusal, element("p.refused", error.message));
      if (!this.walk.row) fill(this.made);
    }
    frame.dataset.drawn = "";
  }

  /** @param {Told} told @param {Row} row */
  draw(told, row) {
    const { t } = this;
    if (!this.title.isConnected) {
      const { title, facts, strip, practice, note, controls, numbers } = this;
      fill(this.made, title, facts, strip, practice.element, note, controls, numbers);
    }
    const { layer, head } = told;
    fill(this.title, t("heads.named", { layer, head }), " ", element("code", told.layers[layer]));
    this.drawControls(told);
    fill(this.facts, this.factsOf(told, row).join(" · "));
    const { length } = row.q;
    const colored = element(length > NUMBERS ? "span" : "span.phone", t("cell.colored"));
    const notes = [
      length > FEW && colored,
      row.rest && t("cell.others", { count: othersOf(row.rest) }),
      row.keys.some(({ word, place }) => word !== told.tokens[place]) && t("cell.numbered"),
    ];
    fill(
      this.note,
      notes.filter(Boolean).flatMap((each) => [each, " "]),
    );
    this.drawStrip(told);
    if (this.walk.show(row)) this.walk.save();
    const rows = () => this.rows(told, row);
    const select = (/** @type {number} */ of) => this.ask({ query: of, key: null });
    this.practice.show({ row, rows, select, whole: () => this.whole(told, row) });
    fill(this.numbers, this.table(told, row));
    const { practice } = this;
    this.context.picture(() => ({ parts: [this.title, this.facts, practice.shown] }));
  }

  // The row, and those of other queries of the text, as far as these are to be had.
  /** @param {Told} told @param {Row} row @returns {Promise<Row[]>} */
  async rows({ layer, head, query, tokens }, row) {
    const { source, signal } = this.context;
    const places = range(OTHERS).map((at) => {
      return Math.ceil(((at + 1) * (tokens.length - 1)) / (OTHERS + 1));
    });
    const others = [...new Set(places)].filter((place) => place > 0 && place !== query);
    const asked = others.map(async (place) => {
      const params = { text: this.text, layer, head, query: place };
      try {
        return [rowOfModel(await source.json("steps/cell", params, { signal }), this.t)];
      } catch (error) {
        // A saved page holds the rows that were shown.
        if (!(error instanceof Refused)) throw error;
        return [];
      }
    });
    return [row, ...(await Promise.all(asked)).flat()];
  }

  // The row with all keys of the text.
  /** @param {Told} told @param {Row} row @returns {Promise<Row>} */
  async whole({ layer, head, query, tokens, weights }, row) {
    const { source, signal } = this.context;
    const params = { text: this.text, layer, head, query };
    const { values, shape } = await source.numbers("steps/vectors", params, { signal });
    const keys = tokens.map((word, place) => {
      const own = rowAt(values, place, shape[1]);
      const isHidden = own.at(-1) === -Infinity;
      const [key, value] = [own.slice(0, row.q.length), own.slice(row.q.length, -1)];
      return /** @type {Key} */ ({
        place,
        word,
        k: [...key],
        v: [...value],
        bias: isHidden ? null : own.at(-1),
        // Of the score it only matters whether it is hidden.
        masked: isHidden ? null : 0,
        weight: weights[place],
      });
    });
    return { ...row, keys, rest: null };
  }

  drawControls(/** @type {Told} */ { layers, heads, layer, head, query, key, tokens }) {
    const { t } = this;
    const words = tokens.map((word, at) => [at, `${grouped(at)}  ${word}`]);
    const focused = /** @type {HTMLElement} */ (document.activeElement)?.closest?.(".control");
    const at = [...this.controls.children].indexOf(focused);
    fill(
      this.controls,
      menu(t("cell.layer"), range(layers.length), layer, (value) => {
        this.ask({ layer: value, head: Math.min(head, heads[Number(value)] - 1) });
      }),
      menu(t("cell.head"), range(heads[layer]), head, (value) => this.ask({ head: value })),
      menu(t("heads.query"), words, query, (value) => this.ask({ query: value })),
      menu(t("heads.key"), [["", t("cell.strongest")], ...words], key ?? "", (value) =>
        this.ask({ key: value || null }),
      ),
    );
    this.controls.children[at]?.querySelector("select").focus();
  }

  /** @param {Told} told @param {Row} row */
  factsOf({ tokens, of, mask, key_head: [group, groups], heads, layer }, row) {
    const { t } = this;
    const together = heads[layer] / groups;
    const shared = `${group * together}–${(group + 1) * together - 1}`;
    return [
      t("cell.dims", { dim: row.q.length, tokens: grouped(tokens.length) }),
      of > tokens.length && t("cell.cut", { of: grouped(of) }),
      `β = ${decimal(row.beta)}`,
      row.softcap !== null && t("cell.softcap", { cap: row.softcap }),
      mask && t("cell.mask", { mask }),
      row.normalizer,
      together > 1 && t("cell.group", { heads: shared }),
      t("cell.rounded"),
    ].filter(Boolean);
  }

  /** The weights of all keys of the text, in view while one scrolls. @param {Told} told */
  drawStrip({ weights, tokens, query, key }) {
    const top = Math.max(...weights) || 1;
    const bars = weights.map((each, at) => {
      const title = `${grouped(at)} ${tokens[at]} ${weight(each)}`;
      const bar = element("i", { title, style: { "--share": each / top } });
      bar.classList.toggle("own", at === query);
      bar.classList.toggle("asked", at === key);
      return bar;
    });
    const most = largestAt(weights);
    // Under its bar, from the edge of it that has more room.
    const after = weights.length - 1 - most;
    const side = most < after ? "left" : "right";
    const style = { [side]: `${(100 * Math.min(most, after)) / weights.length}%` };
    const name = element("small", { style }, tokens[most]);
    const ends = element("em", this.t("cell.weights", { word: tokens[query] }));
    fill(this.strip, ends, element("span", bars, name));
  }

  /** @param {Told} told @param {Row} row */
  table({ key, tokens }, { keys, rest, softcap, changes }) {
    const { t } = this;
    const isBiased = changes.includes("biased");
    const isMasked = isBiased || keys.some(({ masked }) => masked === null);
    /** @type {[string | false, (key: Key) => number | null][]} */
    const columns = [
      [t("steps.scores"), ({ score }) => score],
      [t("steps.scaled"), ({ scaled }) => scaled],
      [softcap !== null && t("cell.capped"), ({ capped }) => capped],
      [isBiased && t("cell.bias"), ({ bias }) => bias],
      [isMasked && t("steps.masked"), ({ masked }) => masked ?? -Infinity],
    ];
    const shown = columns.filter(([name]) => name);
    const byWeight = largestFirst(keys, (one) => one.weight);
    const rows = byWeight.map((one) => {
      const name = [element("b", tokens[one.place]), element("span.at", grouped(one.place))];
      const heading = headingCell("row", one.place === key ? element("mark", name) : name);
      return [heading, shown.map(([, of]) => numberCell(of(one))), weightCell(one.weight)];
    });
    const others = rest && [
      headingCell("row", t("walk.others", { count: grouped(othersOf(rest)) })),
      shown.map(() => element("td", "")),
      weightCell(rest.weight),
    ];
    const headings = [t("heads.key"), ...shown.map(([name]) => name), t("steps.weights")];
    return table("table.cell", t("cell.table"), headings, [...rows, ...(others ? [others] : [])]);
  }
}

/** @param {number} value */
function numberCell(value, text = Math.abs(value) < LARGE ? decimal(value) : significant(value)) {
  return element("td", { "data-value": value, title: value }, text);
}

function weightCell(/** @type {number} */ value) {
  const cell = numberCell(value, shortWeight(value, 4));
  cell.style.setProperty("--share", String(value));
  return cell;
}

/** @param {any} told @param {import("../app.js").Translate} t @returns {Row} */
function rowOfModel(told, t) {
  const shift = shiftOf(told.largest);
  // The studio's powers are relative to the largest one.
  const scale = Math.exp(told.largest - shift);
  return {
    ...told,
    keys: numbered(told.keys),
    shift,
    total: told.total * scale,
    rest: told.rest && { ...told.rest, power: told.rest.power * scale },
    ...traitsOf(told.normalizer.toLowerCase()),
    isProduct: told.is_product,
    normalizer: told.sink === null ? told.normalizer : t("cell.sink", { sink: decimal(told.sink) }),
  };
}
