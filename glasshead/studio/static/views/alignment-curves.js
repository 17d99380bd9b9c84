// Lines between two lines of words: where each begins and ends, and how it goes.

/**
 * A line from a word of the source, in a column of the weights, to one of the target, in a row.
 * @typedef {object} Line
 * @property {number} row
 * @property {number} column
 * @property {SVGElement} path
 * @property {number} [weight]
 * @property {number} [width]
 * @property {number} [from]  Where it begins along the source, in pixels
 * @property {number} [to]  Where it ends along the target
 */

/** @typedef {[begin: number, end: number]} Extent */

// In pixels: the weight 1, and the least that is seen.
const WHOLE = 20;
const LEAST = 0.75;
// Between the ends of lines and the ends of their word.
const INSIDE = 3;

/**
 * Give each line its width and its ends. At each word, lines lie in the order of their other ends,
 * and closer where there is no room.
 * @param {Line[]} lines
 * @param {Extent[]} source  Where each word is
 * @param {Extent[]} target
 */
export function stack(lines, source, target) {
  for (const line of lines) line.width = Math.max(LEAST, WHOLE * Math.min(1, line.weight));
  source.forEach((extent, column) => {
    const own = lines.filter((line) => line.column === column);
    spread(own, extent, "from");
  });
  target.forEach((extent, row) => {
    const own = lines.filter((line) => line.row === row);
    spread(own, extent, "to");
  });
}

/**
 * @param {Line[]} lines
 * @param {Extent} extent
 * @param {"from" | "to"} end
 */
function spread(lines, [first, last], end) {
  const total = lines.reduce((sum, line) => sum + line.width, 0);
  const closer = Math.min(1, (last - first - 2 * INSIDE) / total);
  let at = (first + last - total * closer) / 2;
  for (const line of lines) {
    line[end] = at + (line.width * closer) / 2;
    at += line.width * closer;
  }
}

/**
 * The data of a path.
 * @param {Line} line
 * @param {number} length  From the source to the target
 * @param {boolean} columns  Whether the words stand in columns
 */
export function curve({ from, to }, length, columns) {
  const points = [
    [from, 0],
    [from, length / 2],
    [to, length / 2],
    [to, length],
  ];
  const turned = columns ? points.map((point) => point.reverse()) : points;
  const written = turned.map((point) => point.map((each) => each.toFixed(1)).join(" "));
  const [begin, leaving, arriving, end] = written;
  return `M${begin}C${leaving} ${arriving} ${end}`;
}
