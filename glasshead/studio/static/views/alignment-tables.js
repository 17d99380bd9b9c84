// The tables of an alignment: what a beam found, and the weights cell by cell.
import { scale } from "../colors.js";
import { element, headingCell, table, unique } from "../dom.js";
import { decimal } from "../numbers.js";

/** @import { Translate } from "../app.js" */
/** @import { Word } from "./alignment-bands.js" */

/**
 * A translation that the beam found: `own` are places of its words that the best candidate lacks.
 * @typedef {{text: string, own: number[], target: string[], tokens: number[], score: number,
 *   log_probability: number, ended: boolean}} Candidate
 */

/**
 * What the studio says of a sentence, the best candidate first.
 * @typedef {{source: string[], layers: number, heads: number, length_penalty: number,
 *   candidates: Candidate[]}} Translations
 */

/**
 * The candidates, of which one is chosen.
 * @param {Translations} found
 * @param {number} place  Which one
 * @param {Translate} t @param {(place: number) => void} chosen
 */
export function candidateList({ candidates, length_penalty: penalty }, place, t, chosen) {
  // The sentence has its power as an exponent.
  const ranked = t("alignment.ranked").split("^{penalty}");
  const name = unique("candidate");
  const rows = candidates.map((candidate, at) => {
    const look = { type: "radio", name, checked: at === place, onchange: () => chosen(at) };
    return candidateRow(candidate, element("input", look), t);
  });
  const head = element(
    "div.row.head",
    { "aria-hidden": "true" },
    element("span"),
    element("span", t("alignment.candidate")),
    element("span.figure", t("alignment.score")),
    element("span.figure.second", t("alignment.ln_p")),
  );
  return element(
    "fieldset.candidates",
    { "data-panel": 1 },
    element("legend", t("alignment.candidates")),
    head,
    rows,
    element("p.quiet", ranked[0], element("sup", penalty), ranked[1]),
  );
}

/** @param {Candidate} candidate @param {HTMLInputElement} input @param {Translate} t */
function candidateRow({ text, target, own, score, log_probability: logP, ended }, input, t) {
  const words = text.split(" ").map((word, at) => {
    return [at > 0 && " ", own.includes(at) ? element("b", word) : word];
  });
  return element(
    "label.row",
    input,
    element(
      "span.text",
      target.length ? words : element("i", t("alignment.empty")),
      !ended && element("span.quiet", ` (${t("alignment.cut_off")})`),
    ),
    element("span.figure", { "data-value": score }, decimal(score)),
    element("span.figure.second", { "data-value": logP }, decimal(logP)),
  );
}

/**
 * The weights as numbers: a row for each word of the translation.
 * @param {string[]} source @param {string[]} target @param {number[][]} matrix
 * @param {string} which  Layer and head, in words
 * @param {Translate} t
 * @param {(word: Word | null) => void} pointed  Called with the word whose row has the pointer
 */
export function weightTable(source, target, matrix, which, t, pointed) {
  const place = scale();
  /** @param {number} value */
  const cell = (value) => element(`td.w${place(value)}`, { "data-value": value }, decimal(value));
  const headings = [element("td"), source.map((word) => wordHeading("col", word))];
  const body = matrix.map((row, at) => [wordHeading("row", target[at]), row.map(cell)]);
  const caption = t("alignment.table", { what: which });
  const made = table("table.weights", caption, headings, body, t("alignment.picture"));
  // The first row has the words of the source, and the first column those of the target.
  const rows = [...made.querySelectorAll("tr")];
  rows.slice(1).forEach((row, at) => {
    row.onpointerenter = () => pointed({ side: "target", at });
    row.onpointerleave = () => pointed(null);
  });
  const mark = (/** @type {Word | null} */ word) => {
    const at = word && word.at + 1;
    rows.forEach((row, other) => {
      row.classList.toggle("here", word?.side === "target" && other === at);
      [...row.cells].forEach((each, column) => {
        each.classList.toggle("marked", word?.side === "source" && column === at);
      });
    });
  };
  return Object.assign(made, { mark });
}

/** @param {"row" | "col"} scope @param {string} word */
function wordHeading(scope, word) {
  return headingCell(scope, element("bdi", word));
}
