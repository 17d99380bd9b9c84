// What a run tells in words and tables: how far it is, its alarms, its last rows.
import { button, element, fill, table, th } from "../dom.js";
import { count, short } from "../numbers.js";
import { number } from "./training-heads.js";

const UNITS = { day: 86400, hour: 3600, minute: 60, second: 0 };

export function standing(t, language) {
  const [phase, said, place, figures] = ["strong.phase", "span.quiet", "span", "dl.figures"].map((name) => element(name));
  const bar = element("progress", { max: 1, "aria-label": t("training.title") });
  const state = element("p.state", { role: "status" }, phase);
  const made = element("div.standing", state, said, element("div.bar", bar, place), figures);
  const lasting = (seconds) => duration(seconds, language);
  made.show = ({ phase: name, age, pace, best, table: { columns, rows } }) => {
    const { step, steps, seconds, speed, left, patience } = pace;
    // Whoever hears the page is told of another phase alone.
    if (made.dataset.phase !== name) phase.textContent = t(`training.phase.${name}`);
    made.dataset.phase = name;
    said.textContent = t(`training.said.${name}`, { age: lasting(age), patience });
    const progress = `training.progress${steps === null ? ".open" : ""}`;
    place.textContent = t(progress, { step: count(step), steps: count(steps) });
    bar.hidden = steps === null;
    bar.value = Math.min(1, step / (steps || 1));
    const last = (column) => rows.at(-1)?.[columns.indexOf(column)] ?? null;
    const figure = (key, value, text = short, places = {}) => value !== null && element("div",
      element("dt", t(`training.figure.${key}`, places)),
      element("dd", { "data-name": key, "data-value": value }, text(Number(value))));
    fill(figures,
      figure("step", step, count),
      figure("loss", last("loss")),
      best && figure("best", best.value, short, { name: plain(best.monitor), step: count(best.step) }),
      figure("learning_rate", last("learning_rate")),
      figure("speed", speed),
      figure("seconds", seconds, lasting),
      figure("left", name === "quiet" ? null : left, lasting));
  };
  return made;
}

function duration(seconds, language) {
  const [unit, size] = Object.entries(UNITS).find(([, each]) => seconds >= each);
  const maximumFractionDigits = size ? 1 : 0;
  const format = { style: "unit", unit, unitDisplay: "short", maximumFractionDigits };
  return new Intl.NumberFormat(language, format).format(seconds / (size || 1));
}

export function plain(name) {
  return name.replace(/^validation_/, "").replaceAll("_", " ");
}

export function lastRows(t, { columns, rows }) {
  const cell = (value, at) => element(at ? "td" : "th",
    { scope: at ? null : "row", "data-value": value }, value !== null && short(value, 8));
  return framed(t("training.rows"), columns, rows.toReversed().map((row) => row.map(number).map(cell)));
}

export function alarmTable(t, raised, go) {
  const said = (alarm) => {
    const name = `training.said.${alarm.kind}`;
    const told = t(name, { ...alarm, layer: alarm.layer || t("training.the_model") });
    return told === name ? alarm.sentence : told;
  };
  return framed(t("training.alarms"), [t("training.step"), t("training.sentence")], raised.map((alarm) => [
    th("row", button(count(alarm.step), () => go(alarm))),
    element("td", said(alarm)),
  ]));
}

function framed(caption, heads, rows) {
  return element("figure.table", table("table", caption, heads.map((head) => th("col", head)), rows));
}
