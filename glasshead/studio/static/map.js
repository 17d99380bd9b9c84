// A square matrix of weights as a picture, a pixel a cell; where all is hidden it is clear.
import { paint, paperColor, scale } from "./colors.js";
import { drawDifference } from "./diverging.js";
import { range } from "./numbers.js";

/**
 * How weights are colored.
 * @typedef {object} Look
 * @property {boolean} logarithmic
 * @property {number} skip  First columns that are grayed, and have no share in the scale
 * @property {boolean} [diverging]  Whether the values are differences
 */

/**
 * Draw count × count weights.
 * @param {HTMLCanvasElement} canvas
 * @param {Float32Array} values
 * @param {number} count
 * @param {Look} look
 * @param {number} most  Pixels along a side; of more cells, a pixel shows the largest of several
 * @returns {number}  The largest weight that has a color
 */
export function drawMap(canvas, values, count, look, most = Infinity) {
  const { logarithmic, skip } = look;
  if (look.diverging) return drawDifference(canvas, values, count, most);
  const size = Math.min(count, most);
  const { pixels, shown, top } = largestOf(values, count, size, skip);
  canvas.width = size;
  canvas.height = size;
  const level = scale({ top, logarithmic });
  const pen = paint(canvas, (at) => (shown[at] ? level(pixels[at]) : null));
  pen.globalCompositeOperation = "destination-over";
  pen.fillStyle = paperColor("rule");
  pen.fillRect(0, 0, Math.ceil((skip * size) / count), size);
  return top;
}

/**
 * The largest weight in each pixel of a picture, whether not all of it is hidden (−0), and the
 * largest of all.
 * @param {Float32Array} values
 * @param {number} count
 * @param {number} size
 * @param {number} skip
 */
function largestOf(values, count, size, skip) {
  const pixelOf = range(count).map((at) => Math.floor((at * size) / count));
  const pixels = new Float32Array(size * size);
  const shown = new Uint8Array(size * size);
  let top = 0;
  for (let query = 0; query < count; query += 1) {
    const line = pixelOf[query] * size;
    for (let key = skip; key < count; key += 1) {
      const value = values[query * count + key];
      const at = line + pixelOf[key];
      if (value > pixels[at]) pixels[at] = value;
      if (!Object.is(value, -0)) shown[at] = 1;
      if (value > top) top = value;
    }
  }
  return { pixels, shown, top };
}
