// The small maps of a model's heads: a row a layer, or some of them in a row. Where a row has no room
// for all of its heads, a layer has several lines.
import { Component, createRef } from "preact";
import { letterScale } from "../dom.js";
import { drawMap } from "../map.js";
import { range } from "../numbers.js";
import { numberOf, placeOf } from "../selection.js";
import { html } from "./html.js";
import { walk } from "./walk.js";

/** @import { Translate } from "../app.js" */
/** @import { Look } from "../map.js" */
/** @import { Head } from "../selection.js" */
/** @import { Tensor } from "../source.js" */

/**
 * @typedef {object} Props
 * @property {Translate} t @property {number[]} counts  Heads of each layer
 * @property {Tensor} maps  Of all heads; a last column has what the first token alone gets
 * @property {Look} look @property {number} [tokens]  Of which the first may be grayed
 * @property {(layer: number) => any} rowHead
 * @property {(head: Head) => Record<string, any>} cell  Attributes of a head's button, and what is
 *   `held` below its map
 * @property {Head} [open]  Where Tab leads to, until another one has the focus
 * @property {Head[] | null} [some]  Heads in a row, instead of all
 */

/** @typedef {{lines: number, dense: boolean, reached: Head, open?: Head}} State */

// Pixels along a small map, at least, for a pointer and for a finger, and with words below it; and
// of the names of rows, and between maps.
const LEAST = 16;
const LEAST_TOUCHED = 24;
const WITH_WORDS = 46;
const NAMES = 30;
const NAMES_WITH_WORDS = 48;
const BETWEEN = 2;
// The height of a row of a presentation, with a map and its words.
const ROW = 140;

/** @extends {Component<Props, State>} */
export class HeadGrid extends Component {
  state = /** @type {State} */ ({ lines: 1, dense: false, reached: [0, 0] });
  frame = /** @type {import("preact").RefObject<HTMLElement>} */ (createRef());

  /** @param {Props} props @param {State} state */
  static getDerivedStateFromProps({ open }, state) {
    return !open || open.join() === state.open?.join() ? null : { open, reached: open };
  }

  componentDidMount() {
    this.observer = new ResizeObserver(() => this.fit());
    this.observer.observe(this.frame.current);
    this.draw();
    this.fit();
  }

  /** @param {Props} props @param {State} state */
  componentDidUpdate({ maps, look, some }, { lines }) {
    const { props, state } = this;
    const isSame = maps === props.maps && lines === state.lines;
    const before = JSON.stringify([look, some]);
    if (!isSame || before !== JSON.stringify([props.look, props.some])) this.draw();
  }

  componentWillUnmount() {
    this.observer.disconnect();
  }

  /** Have as many lines for a layer as its heads need. */
  fit() {
    const { clientWidth } = this.frame.current;
    if (!clientWidth) return;
    const large = letterScale();
    const room = clientWidth - NAMES * large;
    const least = matchMedia("(pointer: coarse)").matches ? LEAST_TOUCHED : LEAST;
    const lines = Math.ceil((this.widest * (least + BETWEEN)) / room);
    const withWords = this.widest * (WITH_WORDS + BETWEEN) + NAMES_WITH_WORDS;
    // With large letters, low rows have no room for words below the maps.
    const high = innerHeight / this.props.counts.length / lines;
    const dense = clientWidth < withWords * large || (large > 1 && high < ROW * large);
    if (lines !== this.state.lines || dense !== this.state.dense) this.setState({ lines, dense });
  }

  draw() {
    const { maps, look, tokens } = this.props;
    const [, side, wider] = maps.shape;
    // A block of the first token alone is grayed.
    const skip = side === tokens ? look.skip : 0;
    for (const canvas of this.frame.current.querySelectorAll("canvas")) {
      const values = new Float32Array(side * side);
      for (let row = 0; row < side; row += 1) {
        const start = (Number(canvas.dataset.at) * side + row) * wider;
        values.set(maps.values.subarray(start, start + side), row * side);
        if (look.skip) values[row * side] -= maps.values[start + side];
      }
      drawMap(canvas, values, side, { ...look, skip });
    }
  }

  get widest() {
    return Math.max(...this.props.counts);
  }

  /** The head that Tab leads to: another model may have no such head, and a row not all of them. */
  get reached() {
    const { counts, some } = this.props;
    const [layer, head] = this.state.reached;
    const reached = /** @type {Head} */ (head < counts[layer] ? [layer, head] : [0, 0]);
    return some && placeOf(some, reached) < 0 ? some[0] : reached;
  }

  /** @param {number} layer @param {number} head */
  cell(layer, head) {
    const { cell, counts } = this.props;
    const { held, ...own } = cell([layer, head]);
    const name = `${layer}.${head}`;
    return html`<button
      key=${name}
      type="button"
      class="small"
      tabindex=${name === this.reached.join(".") ? 0 : -1}
      data-layer=${layer}
      data-head=${head}
      onFocus=${() => this.setState({ reached: [layer, head] })}
      ...${own}
    >
      <canvas data-at=${numberOf(counts, [layer, head])} />
      ${held}
    </button>`;
  }

  /** @param {Props} props @param {State} state */
  render({ t, counts, some }, { dense, lines }) {
    const columns = Math.ceil(this.widest / lines);
    return html`<div
      ref=${this.frame}
      class=${dense && !some ? "grid dense" : "grid"}
      style=${`--columns: ${columns}; --rows: ${counts.length * lines}`}
      onKeyDown=${(/** @type {any} */ event) => walk(event, Boolean(some))}
    >
      ${
        some
          ? html`<div class="in-a-row" role="group" aria-label=${t("heads.some")}>
              ${some.map((head) => this.cell(...head))}
            </div>`
          : this.table(columns)
      }
    </div>`;
  }

  table(/** @type {number} */ columns) {
    const { t, counts, rowHead } = this.props;
    /** @param {number} layer @param {number} from */
    const line = (layer, from) => {
      const heads = range(Math.min(columns, counts[layer] - from));
      return html`<tr>
        <th scope="row">${from ? `+${from}` : rowHead(layer)}</th>
        ${heads.map((head) => html`<td>${this.cell(layer, from + head)}</td>`)}
      </tr>`;
    };
    return html`<table>
      <caption>
        <span>${t("heads.grid")}</span>
      </caption>
      <thead>
        <tr>
          <td>${t("heads.head")} →<br />${t("heads.layer")} ↓</td>
          ${range(columns).map((head) => html`<th scope="col">${head}</th>`)}
        </tr>
      </thead>
      <tbody>
        ${counts.map((count, layer) =>
          range(Math.ceil(count / columns)).map((at) => line(layer, at * columns)),
        )}
      </tbody>
    </table>`;
  }
}
