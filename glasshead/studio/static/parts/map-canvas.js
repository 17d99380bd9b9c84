// The small map of a head, drawn when its weights or its look change.
import { Component, createRef } from "preact";
import { drawMap } from "../map.js";
import { html } from "./html.js";

/** @import { Look } from "../map.js" */
/** @import { Tensor } from "../source.js" */

/**
 * @typedef {object} Small
 * @property {Tensor} maps  Of all heads; a last column has what the first token alone gets
 * @property {number} at  Among all heads
 * @property {number} tokens
 * @property {Look} look
 */

/** @extends {Component<Small>} */
export class MapCanvas extends Component {
  /** @type {import("preact").RefObject<HTMLCanvasElement>} */
  canvas = createRef();

  /** @param {Small} next */
  shouldComponentUpdate({ maps, at, look }) {
    const { props } = this;
    const isSame = ["logarithmic", "skip", "diverging"].every(
      (name) => /** @type {any} */ (look)[name] === /** @type {any} */ (props.look)[name],
    );
    return maps !== props.maps || at !== props.at || !isSame;
  }

  componentDidMount() {
    this.draw();
  }

  componentDidUpdate() {
    this.draw();
  }

  draw() {
    const { maps, at, tokens, look } = this.props;
    const [, side, wider] = maps.shape;
    const values = new Float32Array(side * side);
    for (let row = 0; row < side; row += 1) {
      const start = (at * side + row) * wider;
      values.set(maps.values.subarray(start, start + side), row * side);
      if (look.skip) values[row * side] -= maps.values[start + side];
    }
    // A block of the first token alone is grayed.
    const skip = side === tokens ? look.skip : 0;
    drawMap(this.canvas.current, values, side, { ...look, skip });
  }

  render() {
    return html`<canvas ref=${this.canvas} />`;
  }
}
