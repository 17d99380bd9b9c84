// A square matrix of weights as a picture, a pixel a cell; where all is hidden (−0) it is clear.
import { paint, paperColor, ramp, scale } from "./colors.js";
import { divergingColors, tonePlace } from "./diverging.js";
import { range } from "./numbers.js";

/**
 * How weights are colored: the first `skip` columns are grayed, and have no share in the scale; `top`
 * is the size that has the last color, if not the largest; differences diverge.
 * @typedef {{logarithmic?: boolean, skip?: number, diverging?: boolean, top?: number}} Look
 */

/**
 * Draw count × count weights.
 * @param {HTMLCanvasElement} canvas @param {Float32Array} values @param {number} count
 * @param {Look} look
 * @param {number} most  Pixels along a side; of more cells, a pixel shows the largest of several
 * @returns {number}  The size that has the last color
 */
export function drawMap(canvas, values, count, look, most = Infinity) {
  const { logarithmic, skip = 0, diverging } = look;
  const size = Math.min(count, most);
  const { pixels, largest } = pooled(values, count, size, skip);
  const { top = largest } = look;
  canvas.width = size;
  canvas.height = size;
  const tone = (/** @type {number} */ value) => tonePlace(top && value / top);
  const place = diverging ? tone : scale({ top, logarithmic });
  const colors = diverging ? divergingColors() : ramp();
  const pen = paint(canvas, (at) => (Object.is(pixels[at], -0) ? null : place(pixels[at])), colors);
  pen.globalCompositeOperation = "destination-over";
  pen.fillStyle = paperColor("rule");
  pen.fillRect(0, 0, Math.ceil((skip * size) / count), size);
  return top;
}

// The number of the largest size in each pixel of a picture, −0 where all of it is hidden, and the
// largest size of all.
/** @param {Float32Array} values @param {number} count @param {number} size @param {number} skip */
function pooled(values, count, size, skip) {
  const pixelOf = range(count).map((at) => Math.floor((at * size) / count));
  const pixels = new Float32Array(size * size).fill(-0);
  let largest = 0;
  for (let query = 0; query < count; query += 1) {
    const line = pixelOf[query] * size;
    for (let key = skip; key < count; key += 1) {
      const value = values[query * count + key];
      const own = Math.abs(value);
      const at = line + pixelOf[key];
      if (own > Math.abs(pixels[at]) || Object.is(pixels[at], -0)) pixels[at] = value;
      if (own > largest) largest = own;
    }
  }
  return { pixels, largest };
}
