// The sum that made a cell. Its lines come with the data, with places such as {score} for what is taken from cells.

// Powers of e above this are written relative to the largest.
const HANDY = 10;

export function index(place) { return String(place + 1).replace(/\d/g, (digit) => "₀₁₂₃₄₅₆₇₈₉"[digit]); }

export function sumOf(at, data, t) {
  const [name, ...place] = at.split(".");
  const [row, column] = place.map(Number);
  const { matrices, sums, words } = data;
  const value = matrices[name][row][column];
  const hidden = (name === "masked" || name === "weights") && matrices.masked[row][column] === null;
  const { lines, note } = sums[hidden ? `${name}.hidden` : name];
  const cells = [];
  const take = (from, word, other) => {
    cells.push(`${from}.${word}.${other}`);
    return matrices[from][word][other];
  };
  const places = placesOf({ ...data, name, row, column, value, take });
  if (name === "weights" && !hidden) words.forEach((_, key) => take("masked", row, key));
  const named = { word: words[row], query: words[row], key: words[column] };
  const noted = { ...named, number: places.dimension(), largest: places.largest().toFixed(4) };
  return {
    title: t(`steps.of.${name}`, { ...named, number: column + 1 }),
    value,
    lines: lines.map((line) => line.split(/[{}]/).flatMap((part, odd) => (odd % 2 ? places[part]() : part))),
    note: [note, name === "weights" && !hidden && places.note()].filter(Boolean)
      .map((each) => t(each, noted)).join(" "),
    cells,
  };
}

const factor = (value) => (value < 0 ? ["(", value, ")"] : [value]);
const product = (left, right) => [...factor(left), "·", ...factor(right)];
const joined = (terms, sign = " + ") => terms.flatMap((term, at) => (at ? [sign, ...term] : term));

function placesOf({ name, row, column, value, matrices, words, chosen, beta, normalizer, thresholds, take }) {
  const numbers = [...matrices.queries[0].keys()];
  const place = chosen.head * numbers.length + column;
  const masked = matrices.masked[row];
  const seen = [...words.keys()].filter((key) => masked[key] !== null);
  const scores = seen.map((key) => masked[key]);
  const score = masked[column];
  const largest = Math.max(...scores);
  const shift = Math.abs(largest) > HANDY ? largest : 0;
  const power = (each) => ["e", { up: shift ? [each, " − ", ...factor(shift)] : [each] }];
  // SoftmaxOne has a score more, which is not in the row.
  const shared = normalizer === "softmax-one" ? [0, ...scores] : scores;
  const above = scores.filter((_, at) => matrices.weights[row][seen[at]] > 0);
  return {
    value: () => value,
    word: () => words[row],
    letter: () => name[0],
    number: () => index(column),
    // Queries, keys and values are all the word's own vector.
    x() {
      for (const each of ["queries", "keys", "values"]) if (each !== name) take(each, row, column);
      return `x${index(place)}`;
    },
    dimension: () => place + 1,
    products: () => joined(numbers.map((at) => product(take("queries", row, at), take("keys", column, at)))),
    beta: () => beta,
    unscaled: () => factor(take("scores", row, column)),
    scaled: () => take("scaled", row, column),
    score: () => take("masked", row, column) ?? "−∞",
    seen: () => joined(scores.map((each) => [each]), ", "),
    largest: () => largest,
    powers: () => joined(shared.map(power)),
    power: () => power(score),
    total: () => shared.reduce((sum, each) => sum + Math.exp(each - shift), 0),
    share: () => Math.exp(score - shift),
    inverse: () => ["e", { up: [-score] }],
    above: () => joined(above.map(factor)),
    count: () => above.length,
    threshold: () => thresholds[row],
    subtracted: () => factor(thresholds[row]),
    shares: () => joined(seen.map((key) => product(take("weights", row, key), take("values", key, column)))),
    note() {
      if (normalizer.startsWith("softmax")) return shift ? "steps.shifted" : null;
      if (normalizer !== "hardmax") return null;
      if (value === 0) return score === largest ? "steps.second" : "steps.smaller";
      return scores.filter((each) => each === largest).length > 1 ? "steps.first" : "steps.largest";
    },
  };
}
