// Lines between two lines of words: where each begins and ends, and how it goes.

// In pixels: the weight 1, and the least that is seen.
const WHOLE = 20;
const LEAST = 0.75;
// Between the ends of lines and the ends of their word.
const INSIDE = 3;

/** Gives each line its `width`, and its places `from` and `to`: at each word, which is from one number of `source` or
 * `target` to the other, lines lie in the order of their other ends, and closer where there is no room. */
export function stacked(lines, source, target) {
  for (const line of lines) line.width = Math.max(LEAST, WHOLE * Math.min(1, line.weight));
  source.forEach((extent, column) => spread(lines.filter((line) => line.column === column), extent, "from"));
  target.forEach((extent, row) => spread(lines.filter((line) => line.row === row), extent, "to"));
  return lines;
}

function spread(lines, [begin, end], name) {
  const total = lines.reduce((sum, line) => sum + line.width, 0);
  const closer = Math.min(1, (end - begin - 2 * INSIDE) / total);
  let at = (begin + end - total * closer) / 2;
  for (const line of lines) {
    line[name] = at + (line.width * closer) / 2;
    at += line.width * closer;
  }
}

export function curve({ from, to }, length, columns) {
  const points = [[from, 0], [from, length / 2], [to, length / 2], [to, length]];
  const turned = columns ? points.map((point) => point.reverse()) : points;
  const [begin, one, other, end] = turned.map((point) => point.map((each) => each.toFixed(1)).join(" "));
  return `M${begin}C${one} ${other} ${end}`;
}
