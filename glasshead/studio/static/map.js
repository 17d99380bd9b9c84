// A square matrix of weights as a picture, a pixel a cell; where nothing is seen it is clear.
import { bytes, paperColor, scale } from "./colors.js";

/** Draw count × count weights; the first `skip` columns are greyed, and with more than `most` cells a side, a pixel
 * shows the largest weight of several. Gives the largest weight that has a colour. */
export function draw(canvas, values, count, { logarithmic, skip, most = Infinity }) {
  const size = Math.min(count, most);
  const place = Int32Array.from({ length: count }, (_, at) => Math.floor((at * size) / count));
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
  const pen = canvas.getContext("2d");
  const image = pen.createImageData(size, size);
  const pixels = new Uint32Array(image.data.buffer);
  const colors = new Uint32Array(new Uint8Array(bytes().flatMap((color) => [...color, 255])).buffer);
  const level = scale({ top, logarithmic });
  for (let at = 0; at < pixels.length; at += 1) if (largest[at] > 0) pixels[at] = colors[level(largest[at])];
  pen.putImageData(image, 0, 0);
  pen.globalCompositeOperation = "destination-over";
  pen.fillStyle = paperColor("rule");
  pen.fillRect(0, 0, Math.ceil((skip * size) / count), size);
  return top;
}
