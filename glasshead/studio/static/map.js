// A square matrix of weights as a picture, a pixel a cell; where nothing is seen it is clear.
import { paint, paperColor, scale } from "./colors.js";
import { upTo } from "./numbers.js";

/** Draw count × count weights; the first `skip` columns are greyed, and with more than `most` cells a side, a pixel
 * shows the largest weight of several. Gives the largest weight that has a colour. */
export function draw(canvas, values, count, { logarithmic, skip, most = Infinity }) {
  const size = Math.min(count, most);
  const place = upTo(count).map((at) => Math.floor((at * size) / count));
  const largest = new Float32Array(size * size);
  let top = 0;
  for (let query = 0; query < count; query += 1) {
    const line = place[query] * size;
    for (let key = skip; key < count; key += 1) {
      const value = values[query * count + key];
      if (value > largest[line + place[key]]) largest[line + place[key]] = value;
      if (value > top) top = value;
    }
  }
  [canvas.width, canvas.height] = [size, size];
  const level = scale({ top, logarithmic });
  const pen = paint(canvas, (at) => (largest[at] > 0 ? level(largest[at]) : null));
  pen.globalCompositeOperation = "destination-over";
  pen.fillStyle = paperColor("rule");
  pen.fillRect(0, 0, Math.ceil((skip * size) / count), size);
  return top;
}
