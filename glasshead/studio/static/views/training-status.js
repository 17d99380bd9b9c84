// What a run shows in words and tables: how far it is, its alarms, its last rows.
import { MOST_COLORS } from "../colors.js";
import { button, element, fill, headingCell, table, unique } from "../dom.js";
import { byKey, grouped, localized, significant } from "../numbers.js";
import { asNumber } from "./training-maps.js";

/** @import { Translate } from "../app.js" */
/** @import { Heads, Written } from "./training-maps.js" */

/**
 * How far a run is.
 * @typedef {{step: number, steps: number | null, patience: number | null}} Pace
 */

/** @typedef {{step: number, monitor: string, value: number}} Best */

/** @typedef {{columns: string[], rows: Written[][]}} Rows */

/**
 * An alarm; `row` is that of its head in the maps, null if it is not shown.
 * @typedef {{step: number, layer: string, head: number, kind: string, value: string,
 *   threshold: string, sentence: string, row: number | null}} Alarm
 */

/**
 * The alarms of a kind, from the first step to the last.
 * @typedef {{kind: string, count: number, heads: number, first: number, last: number}} AlarmGroup
 */

/** @typedef {{name: string, steps: number[], values: Written[]}} WrittenCurve */

/**
 * The numbers and curves of another run.
 * @typedef {Pick<Run, "figures" | "best" | "charts" | "found"> &
 *   {columns: [number, number][], extremes: Record<string, Written[]>}} OtherRun
 */

/**
 * What the studio says of a run. Where nothing has changed since `version`, it is its age and
 * phase alone.
 * @typedef {object} Run
 * @property {boolean} changed @property {string} version
 * @property {number} age  Seconds since it was last written
 * @property {string} phase @property {Pace} pace @property {Best | null} best
 * @property {Record<string, Written>} figures  The last numbers
 * @property {Record<string, WrittenCurve[]>} charts @property {Rows} table
 * @property {Heads | null} heads @property {Found} found  What came of it
 * @property {Settings} [settings]  Those in which it differs from the others
 * @property {Alarm[]} alarms @property {AlarmGroup[]} groups @property {string} run  Its name
 * @property {string[]} runs  The names of others that can be drawn over it
 * @property {Record<string, OtherRun>} others  Those that are
 * @property {[string, Record<string, string>][]} notes @property {string[]} problems
 */

// Seconds of each; what is shorter than a minute counts in seconds.
const UNITS = { day: 86400, hour: 3600, minute: 60 };

/** The name of a run over which others are drawn; "" if it is alone. @param {Run} run */
export const ownerOf = ({ run, others }) => (Object.keys(others).length ? run : "");

// How far a run is: its phase, a bar, and its last numbers.
/** @param {Translate} t @param {string} language */
export function standing(t, language) {
  const told = element("strong.phase");
  const sentence = element("span.quiet");
  const place = element("span");
  const figures = element("table.figures");
  const bar = element("progress", { max: 1, "aria-label": t("training.title") });
  const made = element(
    "div.standing",
    element("p.state", { role: "status" }, told),
    sentence,
    element("div.bar", bar, place),
    figures,
  );
  const show = (/** @type {Run} */ run) => {
    const { phase, age, pace } = run;
    const { steps, patience } = pace;
    const step = grouped(pace.step);
    // A screen reader speaks only if the phase changes.
    fill(told, owned(t(`training.phase.${phase}`, { step }), run));
    made.dataset.phase = phase;
    fill(sentence, t(`training.said.${phase}`, { age: duration(age, language), patience }));
    const progress = steps === null ? "training.progress.open" : "training.progress";
    fill(place, t(progress, { step, steps: grouped(steps) }));
    bar.hidden = steps === null;
    bar.value = pace.step / (steps || 1);
    fill(figures, figureRows(t, run, language));
  };
  return Object.assign(made, { show });
}

/** The last numbers of each run, a row a run. @param {Translate} t @param {Run} run @param {string} language */
function figureRows(t, run, language) {
  const owner = ownerOf(run);
  const runs = Object.entries({ [run.run]: run, ...run.others });
  const timeOf = (/** @type {number} */ seconds) => duration(seconds, language);
  /** @type {Record<string, (value: number) => string>} */
  const texts = { step: grouped, seconds: timeOf, left: timeOf };
  const names = Object.keys(run.figures).filter((name) => {
    return runs.some(([, { figures }]) => figures[name] !== null);
  });
  /** @param {string} name @param {Run | OtherRun} run */
  const cell = (name, { figures, best }) => {
    const value = figures[name];
    if (value === null) return element("td");
    const text = element("span", (texts[name] ?? significant)(Number(value)));
    const label = best && metricName(t, best.monitor);
    const of = name === "best" && t("training.at_step", { label, step: grouped(best.step) });
    const look = { "data-name": name, "data-value": value };
    return element("td", look, text, of && [" ", element("small", of)]);
  };
  const headings = names.map((name) => headingCell("col", t(`training.figure.${name}`)));
  const rows = runs.map(([own, each]) => [
    owner && headingCell("row", own),
    names.map((name) => cell(name, each)),
  ]);
  return [[owner && element("td"), headings], ...rows].map((cells) => element("tr", cells));
}

/** A time in the largest unit that it reaches. @param {number} seconds @param {string} language */
function duration(seconds, language) {
  const [unit, size] = Object.entries(UNITS).find(([, each]) => seconds >= each) ?? ["second", 1];
  const maximumFractionDigits = size > 1 ? 1 : 0;
  const look = { style: "unit", unit, unitDisplay: "short", maximumFractionDigits };
  return localized(seconds / size, language, /** @type {Intl.NumberFormatOptions} */ (look));
}

/** The name of a metric in a log as words. @param {Translate} t @param {string} name */
export function metricName(t, name) {
  const own = name.replace(/^validation_/, "");
  const key = `training.metric.${own}`;
  return t(key) === key ? own.replaceAll("_", " ") : t(key);
}

/** The last rows of the log, the newest first. @param {Translate} t @param {Run} run */
export function lastRows(t, run) {
  const { columns, rows } = run.table;
  const cells = rows.toReversed().map((row) => row.map(rowCell));
  return framedTable(owned(t("training.rows"), run), columns, cells);
}

/** A title with the name of a run over which others are drawn. @param {string} title @param {Run} run */
export const owned = (title, run) => [title, ownerOf(run)].filter(Boolean).join(" · ");

/** @param {Written} written @param {number} column  The first one has the step */
function rowCell(written, column) {
  const value = asNumber(written);
  const scope = column ? null : "row";
  const text = value !== null && significant(value, 8);
  return element(column ? "td" : "th", { scope, "data-value": value }, text);
}

// More messages than these are read by whoever opens them.
const MOST_OPEN = 3;
// Heads of a kind of alarm that the banner names; the others are in the table.
const NAMED_HEADS = 8;

// All alarms in a few lines: one for each kind, with buttons that open its heads.
/** @param {Translate} t @param {Run} run @param {(alarm: Alarm) => void} open */
export function alarmBanner(t, run, open) {
  const lines = run.groups.map((group) => alarmLine(t, group, run, open));
  const name = ownerOf(run);
  const owner = name && element("small.owner", name);
  const rule = element("small", t("training.rule"));
  return lines.length > 0 && element("div.raised", owner, lines, rule);
}

/**
 * @param {Translate} t @param {AlarmGroup} group @param {Run} run
 * @param {(alarm: Alarm) => void} open
 */
function alarmLine(t, { kind, heads, first, last }, { alarms, heads: maps }, open) {
  const own = alarms.filter((alarm) => alarm.kind === kind);
  const byHead = new Map(own.map((alarm) => [`${alarm.layer} ${alarm.head}`, alarm]));
  const named = [...byHead.values()].slice(0, NAMED_HEADS);
  const shown = named.sort((one, other) => one.head - other.head);
  const key = `training.kind.${kind}`;
  const name = t(key) === key ? kind : t(key, { threshold: own[0]?.threshold });
  const steps = first === last ? grouped(first) : `${grouped(first)}–${grouped(last)}`;
  const more = heads - shown.length;
  const layers = byKey(shown, ({ layer }) => layer);
  const nameOf = (/** @type {string} */ layer) => {
    const at = maps.layers.indexOf(layer);
    return at < 0 ? layer || t("training.the_model") : t("model.layer", { layer: at });
  };
  return element(
    "div.kind",
    element("span", t("training.group", { name, steps })),
    [...layers].map(([layer, ofIt]) =>
      element(
        "div",
        element("b", { title: layer }, t("training.layer", { layer: nameOf(layer) })),
        ofIt.map((alarm) => {
          const label = nameOf(layer) + t("shell.comma") + t("training.head", alarm);
          const made = button(String(alarm.head), () => open(alarm));
          return Object.assign(made, { ariaLabel: label });
        }),
      ),
    ),
    more > 0 && element("span.quiet", t("training.more", { count: grouped(more) })),
  );
}

// The alarms, each with a button that leads to its place in the charts.
/** @param {Translate} t @param {Alarm[]} alarms @param {(alarm: Alarm) => void} go */
export function alarmTable(t, alarms, go, open = alarms.length <= MOST_OPEN) {
  const headings = [t("training.step"), t("training.sentence")];
  const rows = alarms.map((alarm) => {
    const leads = button(grouped(alarm.step), () => go(alarm));
    return [headingCell("row", leads), element("td", alarmSentence(t, alarm))];
  });
  const shown = framedTable(t("training.alarms"), headings, rows);
  return element("details", { open }, element("summary", t("training.messages")), shown);
}

// The sentence of an alarm, translated where its kind is known.
/** @param {Translate} t @param {Alarm} alarm */
function alarmSentence(t, alarm) {
  const name = `training.said.${alarm.kind}`;
  const places = { ...alarm, layer: alarm.layer || t("training.the_model") };
  const sentence = t(name, places);
  return sentence === name ? alarm.sentence : sentence;
}

/** @param {string} caption @param {string[]} headings @param {HTMLElement[][]} rows */
function framedTable(caption, headings, rows) {
  return element("figure.table", table("table", caption, headings, rows));
}

// What came of the runs, in sentences, and the settings in which they differ.

/** @typedef {[string, Record<string, string>][]} Found  Sentences, and their places */

// The settings in which runs differ: a row each, its name first, then the value in each run.
/** @typedef {{runs: string[], rows: (string | null)[][], more: number}} Settings */

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

// The other runs that are drawn over the one that is followed.

const SEPARATOR = "/";

// A list of runs, of which some are chosen, as the address names them.
/** @param {Translate} t @param {(chosen: string) => Promise<any>} changed */
export function otherRuns(t, changed) {
  const list = element("div");
  const title = element("summary");
  const made = element("details.control.over", { hidden: true }, title, list);
  /** @param {string} name @param {string[]} drawn */
  const box = (name, drawn) => {
    const id = unique("run");
    const isOn = drawn.includes(name);
    const onchange = async () => {
      const others = drawn.filter((each) => each !== name);
      made.open = false;
      await changed((isOn ? others : [...others, name]).join(SEPARATOR));
      title.focus();
    };
    // There are no more colors.
    const disabled = !isOn && drawn.length >= MOST_COLORS - 1;
    const look = { type: "checkbox", id, disabled, checked: isOn, onchange };
    return element("div", element("input", look), element("label", { for: id }, name));
  };
  let shape = "";
  const show = (/** @type {Run} */ { runs, others }) => {
    const drawn = Object.keys(others);
    const before = shape;
    shape = JSON.stringify([runs, drawn]);
    if (shape === before) return;
    made.hidden = !runs.length;
    fill(title, t("training.over", { count: runs.length }));
    fill(
      list,
      runs.map((name) => box(name, drawn)),
    );
  };
  return Object.assign(made, { show });
}
