// Two checkpoints compared: how far each head's attention has moved, and where.
import { ramp, scale } from "../colors.js";
import { firstText, menu, textField } from "../controls.js";
import { divergingGradient, signed } from "../diverging.js";
import { element, fill, headingCell, leadsToCells, setStyle, table } from "../dom.js";
import { drawMap } from "../map.js";
import { largestAt, range, rowAt, weight } from "../numbers.js";
import { Refused, newest } from "../source.js";

/** @import { Context } from "../app.js" */

// The distance of each layer and head.
/** @typedef {{tokens: string[], layers: string[], distance: number[][]}} Summary */

const LONGEST = 500;

export class CheckpointComparison {
  /** @param {Context} context @param {HTMLDetailsElement} section @param {HTMLElement} body */
  constructor(context, section, body) {
    this.context = context;
    this.t = context.t;
    this.newest = newest(context.signal);
    this.section = section;
    this.body = body;
    this.controls = element("div.controls");
    this.told = element("p.quiet");
    this.summary = /** @type {Summary} */ (null);
    this.text = "";
    section.append(this.controls, this.told, body);
  }

  /** Ask for what the section shows once it is opened. */
  async toggled() {
    const { context } = this;
    if (!this.section.open) {
      context.remember({ first: null, second: null, layer: null, one: null });
      return;
    }
    await this.attempt(async () => {
      const { source, signal } = context;
      /** @type {string[][]} */
      const kinds = await source.json("training/checkpoints", {}, { signal });
      if (kinds.every((names) => names.length < 2)) {
        fill(this.body, element("p.note", this.t("training.checkpoints.none")));
        return;
      }
      this.text ||= await firstText(context, this.told);
      const { text } = await source.json(`texts/${this.text}`, {}, { signal });
      this.layOut(kinds, text);
      await this.compare();
    });
  }

  async attempt(/** @type {() => Promise<void>} */ work) {
    try {
      await work();
    } catch (error) {
      if (!(error instanceof Refused)) this.context.failed(error);
      else fill(this.body, element("p.note", { role: "alert" }, error.message));
    }
  }

  // Names of checkpoints, by what can be compared, and the text.
  /** @param {string[][]} kinds @param {string} text */
  layOut(kinds, text) {
    const { t, context } = this;
    const { state, source } = context;
    const comparable = kinds.filter((names) => names.length > 1);
    const kindOf = (/** @type {string} */ name) => {
      return comparable.find((names) => names.includes(name));
    };
    const alike = kindOf(state.first) ?? kindOf(state.second) ?? comparable[0];
    for (const [which, other] of Object.entries({ first: "second", second: "first" })) {
      if (alike.includes(state[which])) continue;
      context.remember({ [which]: alike.find((name) => name !== state[other]) });
    }
    /** @param {string} which @param {string[]} names */
    const chooser = (which, names) => {
      const label = t(`training.checkpoint.${which}`);
      const options = names.map((name) => [name, this.named(name)]);
      return menu(label, options, state[which], (name) => {
        context.remember({ [which]: name });
        // The second one is of the same kind.
        if (!alike.includes(name)) {
          this.layOut(kinds, text);
          this.controls.querySelector("select").focus();
        }
        this.attempt(() => this.compare());
      });
    };
    const sent = (/** @type {string} */ said) =>
      this.attempt(async () => {
        fill(this.told);
        context.remember({ said });
        this.text = await source.send(said);
        await this.compare();
      });
    const label = t("training.text");
    const field = textField(label, text, t("shell.read"), sent, LONGEST);
    const choosers = [chooser("first", comparable.flat()), chooser("second", alike)];
    fill(this.controls, choosers, field);
  }

  /** The name of a checkpoint, such as "run/best", in words. @param {string} name */
  named(name) {
    const at = name.lastIndexOf("/");
    return this.t(`training.${name.slice(at + 1)}_of`, { run: name.slice(0, at) });
  }

  async compare() {
    const { source, state } = this.context;
    const { first, second } = state;
    const signal = this.newest();
    const params = { text: this.text, first, second };
    this.section.removeAttribute("data-compared");
    this.summary = await source.json("training/comparison", params, { signal });
    const { distance } = this.summary;
    const most = distance.map((row) => Math.max(...row));
    const farthest = largestAt(most);
    const layer = Number(state.layer ?? farthest);
    const isThere = Number(state.one) < distance[layer]?.length;
    const head = isThere ? Number(state.one) : distance[farthest].indexOf(most[farthest]);
    await this.open(isThere ? layer : farthest, head);
  }

  /** @param {number} layer @param {number} head */
  async open(layer, head) {
    const { source, state, remember } = this.context;
    const { first, second } = state;
    const params = { text: this.text, first, second, layer, head };
    const signal = this.newest();
    const { values } = await source.numbers("training/comparison/maps", params, { signal });
    if (state.layer || !this.section.open) remember({ layer, one: head });
    fill(this.body, this.grid(layer, head), this.pair(layer, head, values));
    this.section.dataset.compared = `${layer}.${head}`;
  }

  /** The heads, each with how far it has moved. @param {number} layer @param {number} head */
  grid(layer, head) {
    const { t } = this;
    const { layers, distance } = this.summary;
    const level = scale({ top: Math.max(...distance.flat()) });
    const colors = ramp();
    const rows = distance.map((row, at) => [
      headingCell("row", element("span", { title: layers[at] }, t("model.layer", { layer: at }))),
      row.map((value, each) => this.cell(value, at, each, colors[level(value)])),
    ]);
    const heads = Math.max(...distance.map((row) => row.length));
    const headings = [element("td", t("heads.head"), " →"), range(heads)];
    const made = table("table.moved", t("training.moved"), headings, rows);
    made.querySelector(`[data-head="${layer}.${head}"]`).ariaPressed = "true";
    return made;
  }

  /** @param {number} value @param {number} layer @param {number} head @param {string} color */
  cell(value, layer, head, color) {
    const open = async () => {
      this.context.remember({ layer, one: head });
      await this.attempt(() => this.open(layer, head));
      /** @type {HTMLElement} */ (this.body.querySelector("[aria-pressed=true]")).focus();
    };
    const attributes = {
      type: "button",
      onclick: open,
      "data-head": `${layer}.${head}`,
      "data-value": value,
      "aria-label": this.t("heads.named", { layer, head }),
      style: { "--own": color },
    };
    return element("td", element("button", attributes, element("span", weight(value))));
  }

  // The head in both checkpoints, and the difference.
  /** @param {number} layer @param {number} head @param {Float32Array} values  Of all three */
  pair(layer, head, values) {
    const { t } = this;
    const { state } = this.context;
    const { length } = this.summary.tokens;
    const parts = range(3).map((at) => rowAt(values, at, length ** 2));
    const readout = element("p.readout", { role: "status" });
    const maps = element("div.maps", { style: { "--side": `${100 / length}%` } });
    const sizes = parts[2].map(Math.abs);
    const most = Math.max(...sizes);
    const farthest = sizes.indexOf(most);
    /** @type {[number, number]} */
    let place = [Math.floor(farthest / length), farthest % length];
    /** @param {number} query @param {number} key */
    const go = (query, key) => {
      place = [query, key];
      setStyle(maps, { "--query": query, "--key": key });
      fill(readout, this.reading(parts, query, key));
    };
    const top = Math.max(...parts[0], ...parts[1]);
    const names = [
      `A: ${this.named(state.first)} (0–${weight(top)})`,
      `B: ${this.named(state.second)} (0–${weight(top)})`,
      t("training.difference"),
    ];
    const listeners = leadsToCells({ size: () => [length, length], at: () => place, go });
    const figures = parts.map((part, at) => {
      const canvas = element("canvas");
      // Weights of both have one scale.
      drawMap(canvas, part, length, at === 2 ? { diverging: true } : { top });
      const attributes = { tabindex: 0, role: "img", "aria-label": names[at], ...listeners };
      const frame = element("div.matrix", attributes, canvas, element("i.here"));
      return element("figure", element("h4", names[at]), frame);
    });
    const style = { background: divergingGradient() };
    const legend = element(
      "p.legend",
      signed(-most),
      element("span.ramp", { "aria-hidden": "true", style }),
      signed(most),
      element("span", t("steps.hidden")),
    );
    figures[2].append(legend);
    fill(maps, figures);
    go(...place);
    const title = element("h3.head", t("heads.named", { layer, head }));
    return element("section.pair", title, maps, readout);
  }

  /** @param {Float32Array[]} parts @param {number} query @param {number} key */
  reading(parts, query, key) {
    const { t, summary } = this;
    const { tokens } = summary;
    const [first, second, moved] = parts.map((values) => values[query * tokens.length + key]);
    const size = weight(Math.abs(moved));
    const difference = moved < 0 ? `−${size}` : size;
    return [
      element("span", `${t("heads.query")} “${tokens[query]}”`),
      element("span", `${t("heads.key")} “${tokens[key]}”`),
      element(
        "b",
        { "data-first": first, "data-second": second, "data-difference": moved },
        `A ${weight(first)} − B ${weight(second)} = ${difference}`,
      ),
    ];
  }
}
