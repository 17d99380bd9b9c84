// The heads of a model: a row a layer, or some of them in a row. Where a row has no room for all of
// its heads, a layer has several lines.
import { Component, createRef } from "preact";
import { letterScale } from "../dom.js";
import { range } from "../numbers.js";
import { numberOf } from "../selection.js";
import { html } from "./html.js";
import { walk } from "./walk.js";

/** @import { Head } from "../selection.js" */

/**
 * @typedef {object} Props
 * @property {string} label
 * @property {number[]} counts  Heads of each layer
 * @property {any} [corner]  What names rows and columns
 * @property {(layer: number) => any} rowHead
 * @property {(layer: number, head: number, at: number, tabindex: number) => any} cell  A button;
 *   `at` counts all heads
 * @property {Head} [open]  Where Tab leads to, until another one has the focus
 * @property {Head[] | null} [some]  Heads in a row, instead of all
 * @property {string} [someLabel]
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
  /** @type {State} */
  state = { lines: 1, dense: false, reached: [0, 0] };
  /** @type {import("preact").RefObject<HTMLElement>} */
  frame = createRef();

  /** @param {Props} props @param {State} state */
  static getDerivedStateFromProps({ open }, state) {
    return !open || open.join() === state.open?.join() ? null : { open, reached: open };
  }

  componentDidMount() {
    this.observer = new ResizeObserver(() => this.fit());
    this.observer.observe(this.frame.current);
    this.fit();
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

  get widest() {
    return Math.max(...this.props.counts);
  }

  /** @param {number} layer @param {number} head */
  cell(layer, head) {
    const { cell, counts, some } = this.props;
    const asked = this.state.reached;
    // Another model may have no such head.
    const reached = asked[1] < counts[asked[0]] ? asked : [0, 0];
    const isIn = !some || some.some((each) => each.join() === reached.join());
    const isReached = (isIn ? reached : some[0]).join() === `${layer},${head}`;
    return cell(layer, head, numberOf(counts, [layer, head]), isReached ? 0 : -1);
  }

  /** @param {FocusEvent} event */
  reach({ target }) {
    const { layer, head } = /** @type {HTMLElement} */ (target).dataset;
    if (head !== undefined) this.setState({ reached: [Number(layer), Number(head)] });
  }

  /** @param {Props} props @param {State} state */
  render({ some, someLabel }, { dense, lines }) {
    const rows = this.props.counts.length * lines;
    const style = `--columns: ${Math.ceil(this.widest / lines)}; --rows: ${rows}`;
    return html`<div
      ref=${this.frame}
      class=${dense && !some ? "grid dense" : "grid"}
      style=${style}
      onKeyDown=${(/** @type {any} */ event) => walk(event, Boolean(some))}
      onFocusIn=${(/** @type {FocusEvent} */ event) => this.reach(event)}
    >
      ${
        some
          ? html`<div class="in-a-row" role="group" aria-label=${someLabel}>
              ${some.map(([layer, head]) => this.cell(layer, head))}
            </div>`
          : this.table()
      }
    </div>`;
  }

  table() {
    const { label, counts, corner, rowHead } = this.props;
    const columns = Math.ceil(this.widest / this.state.lines);
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
        <span>${label}</span>
      </caption>
      <thead>
        <tr>
          <td>${corner}</td>
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
