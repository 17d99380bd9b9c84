// What is told of an alignment in tables: what a beam found, and the weights cell by cell.
import { scale } from "../colors.js";
import { element, table, th, unique } from "../dom.js";
import { decimal } from "../numbers.js";

export function candidates({ candidates: found, length_penalty }, place, t, chosen) {
  const name = unique("candidate");
  const row = ({ text, target, own, score, log_probability, ended }, at) => {
    const input = element("input", { type: "radio", name, onchange: () => chosen(at) });
    input.checked = at === place;
    const words = text.split(" ").map((word, one) => [one > 0 && " ", own.includes(one) ? element("b", word) : word]);
    return element("label.row", input,
      element("span.text", target.length ? words : element("i", t("alignment.empty")),
        !ended && element("span.quiet", ` (${t("alignment.cut_off")})`)),
      element("span.figure", { "data-value": score }, decimal(score)),
      element("span.figure.second", { "data-value": log_probability }, decimal(log_probability)));
  };
  return element("fieldset.candidates", element("legend", t("alignment.candidates")),
    element("div.row.head", { "aria-hidden": "true" }, element("span"), element("span", t("alignment.candidate")),
      element("span.figure", t("alignment.score")), element("span.figure.second", t("alignment.ln_p"))),
    found.map(row), element("p.quiet", t("alignment.ranked", { penalty: length_penalty })));
}

/** A row for each word of the translation; `pointed({side, at} | null)` is told whose row the pointer is in, and
 * `mark(word)` marks the row or column of one. */
export function weightTable(source, target, matrix, what, t, pointed) {
  const place = scale();
  const head = (scope, word) => th(scope, element("bdi", word));
  const cell = (value) => element(`td.w${place(value)}`, { "data-value": value }, decimal(value));
  const heads = [element("td"), source.map((word) => head("col", word))];
  const rows = matrix.map((row, at) => [head("row", target[at]), row.map(cell)]);
  const made = table("table.weights", t("alignment.table", { what }), heads, rows, t("alignment.picture"));
  const [first, ...lines] = made.querySelectorAll("tr");
  lines.forEach((line, at) => {
    line.onpointerenter = () => pointed({ side: "target", at });
    line.onpointerleave = () => pointed(null);
  });
  made.mark = (word) => {
    const marked = word?.side === "source" ? word.at + 1 : null;
    lines.forEach((line, at) => line.classList.toggle("here", word?.side === "target" && at === word.at));
    for (const { cells } of [first, ...lines]) {
      [...cells].forEach((each, at) => each.classList.toggle("marked", at === marked));
    }
  };
  return made;
}
