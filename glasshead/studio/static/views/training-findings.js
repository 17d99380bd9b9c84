// What came of the runs, in sentences, and the settings in which they differ.
import { element, headingCell } from "../dom.js";
import { framedTable } from "./training-status.js";

/** @import { Translate } from "../app.js" */
/** @import { Run } from "./training-status.js" */

/** @typedef {[string, Record<string, string>][]} Found  Sentences, and their places */

/**
 * The settings in which runs differ: a row each, its name first, then the value in each run.
 * @typedef {{runs: string[], rows: (string | null)[][], more: number}} Settings
 */

/** @param {Translate} t @param {Found} found */
export function inWords(t, found) {
  // No space follows a full stop of Chinese.
  const sentences = found.map(([name, places]) => t(name, places)).join(" ");
  return sentences.replaceAll("。 ", "。");
}

/** What came of a run, and of each that is drawn over it. @param {Translate} t @param {Run} run */
export function findings(t, { found, others, run }) {
  const own = inWords(t, found);
  const named = Object.entries(others);
  if (!named.length) return own && element("p.found", own);
  const all = [[run, own], ...named.map(([name, other]) => [name, inWords(t, other.found)])];
  return element(
    "dl.found",
    all.map(([name, words]) => element("div", element("dt", name), element("dd", words || "–"))),
  );
}

/** @param {Translate} t @param {Settings} settings */
export function settingsTable(t, { runs, rows, more }) {
  if (!rows.length) return element("p.quiet", t("training.settings.same"));
  const cells = rows.map(([name, ...values]) => [
    headingCell("row", element("code", name)),
    ...values.map((value) => element("td", value ?? "–")),
  ]);
  const headings = [t("training.setting"), ...runs];
  const left = more > 0 && element("p.quiet", t("training.settings.more", { count: more }));
  return [framedTable(t("training.settings"), headings, cells), left];
}
