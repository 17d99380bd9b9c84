// Charts over the steps of a training, which share one cross-hair.
import { element, fill, moveOf, setAttributes } from "./dom.js";
import { drawn, node } from "./figure.js";
import { count, short, ticks, within } from "./numbers.js";

const LETTER = 11;
const HEADING = 20;

/** Where the cross-hair of all charts stands: in a step, null being the last one, and in a row. */
export function cursor(step, row, remember) {
  let kept = step;
  const at = {
    step, row, charts: new Set(),
    show(next) { at.step = next; for (const each of at.charts) each.cross(); },
    keep(next) { kept = next; remember({ at: next }); at.show(next); },
    choose(next) { if (next !== at.row) { at.row = next; remember({ head: next }); at.show(at.step); } },
    leave() { at.show(kept); },
  };
  return at;
}

/** A heading, a drawing through which pointer and arrows lead the cross-hair, and the numbers where it stands.
 * `show(spec)` draws what plan(spec, left, top, width) says: `marks` (figure.js) and their `height`, the `steps` where
 * the cross-hair can stand, of which stepAt(x) is one, the `rows` between which it goes up and down, if there are any,
 * each `size` high, and crossed(at): its marks, and what is `told` of the place. */
export function chart(title, at, plan, heading = "h3") {
  const [picture, cross] = ["picture", "cross"].map((name) => node("svg", { class: name, "aria-hidden": "true" }));
  const readout = element("p.readout");
  const plot = element("div.plot", {
    tabindex: 0, role: "slider", "aria-label": title, "aria-valuemin": 0, "aria-valuemax": 0, "aria-valuenow": 0,
    onkeydown: walk, onpointermove: point, onpointerleave: at.leave,
  }, picture, cross);
  const made = element("figure", element(heading, title), plot, readout);
  let spec = null, seen = null;

  function draw() {
    const width = Math.floor(plot.clientWidth);
    if (!spec || !width) return;
    seen = plan(spec, 0, 0, width);
    for (const each of [picture, cross]) setAttributes(each, { width, height: seen.height });
    picture.replaceChildren(...seen.marks.map(drawn));
    made.cross();
  }

  function walk(event) {
    const move = moveOf(event);
    const leaves = event.key === "Escape";
    if (!seen?.steps.length || !(leaves || move)) return;
    const { rows, steps } = seen;
    const [down, right] = move ?? [];
    if (leaves) at.keep(null);
    else if (right || Math.abs(down) > 1) at.keep(stepped(move, steps, at.step));
    else if (rows) at.choose(within(at.row + down, rows.length));
    else return;
    event.preventDefault();
  }

  function point(event) {
    if (!seen?.steps.length) return;
    const box = plot.getBoundingClientRect();
    const y = event.clientY - box.top;
    const row = seen.rows?.findIndex((top) => y >= top && y < top + seen.size) ?? -1;
    if (row >= 0) at.choose(row);
    at.show(seen.stepAt(event.clientX - box.left));
  }

  made.show = (next) => { spec = next; draw(); };
  made.cross = () => {
    if (!seen?.steps.length) return;
    const { marks, told } = seen.crossed(at);
    cross.replaceChildren(...marks.map(drawn));
    fill(readout, told);
    const [first, last] = [seen.steps[0], seen.steps.at(-1)];
    const said = { "aria-valuenow": at.step ?? last, "aria-valuetext": readout.textContent };
    setAttributes(plot, { "aria-valuemin": first, "aria-valuemax": last, ...said });
  };
  made.picture = (x, y, width) => {
    const { marks, height } = plan(spec, x, y + HEADING, width);
    return { marks: [{ x, y: y + 12, text: title, size: 14, weight: 600 }, ...marks], height: height + HEADING + 14 };
  };
  new ResizeObserver(draw).observe(plot);
  at.charts.add(made);
  return made;
}

function stepped([down, right], steps, step) {
  const now = step === null ? steps.length : steps.findLastIndex((each) => each <= step);
  const pages = -Math.sign(down) * Math.ceil(steps.length / 10);
  return steps[within(now + (right || pages), steps.length)];
}

export function told(name, label, value, text = short(value)) {
  return element("span.told", { "data-name": name, "data-value": String(value) }, `${label} `, element("b", text));
}

export function stepAxis(from, to, left, right, y) {
  const span = to > from ? to - from : 1;
  const place = (step) => left + ((step - from) / span) * (right - left);
  const marks = [{ d: `M${left} ${y + 0.5}H${right}`, stroke: "quiet" }];
  for (const step of ticks(from, to, Math.max(2, (right - left) / 90)).filter(Number.isInteger)) {
    const at = Math.round(place(step)) + 0.5;
    const anchor = at > right - 18 ? "end" : at < left + 12 ? "start" : "middle";
    marks.push({ d: `M${at} ${y}v4`, stroke: "quiet" }, small(count(step), Math.min(at, right), y + 16, anchor));
  }
  return { marks, place, step: (x) => from + ((x - left) / (right - left)) * span };
}

export function legend(entries, left, top, width) {
  const marks = [];
  let [x, y] = [left, top + LETTER];
  for (const { label, color, sign, dots, width: thick, opacity } of entries) {
    const long = 44 + [...label].reduce((sum, letter) => sum + (letter > "⺀" ? 12 : 6.6), 0);
    if (x > left && x + long > left + width) [x, y] = [left, y + 18];
    if (sign) marks.push({ ...small(sign, x + 4, y), fill: color });
    else marks.push({ d: `M${x} ${y - 4}h18`, stroke: color, width: thick, opacity });
    if (dots) marks.push(dot(x + 9, y - 4, color));
    marks.push({ ...small(label, x + 24, y), size: LETTER + 1 });
    x += long;
  }
  return { marks, height: entries.length ? y - top + 6 : 0 };
}

export function small(text, x, y, anchor) {
  return { x, y, text, size: LETTER, fill: "quiet", anchor };
}

/** The sign of an alarm, which points down at a place. */
export function alarmAt(x, y) { return { d: `M${x - 5} ${y - 9}h10l-5 9z`, fill: "alarm", stroke: "paper" }; }

export function dot(x, y, fill, r = 2.6) {
  const half = (wide) => `a${r} ${r} 0 1 0 ${wide} 0`;
  return { d: `M${(x - r).toFixed(1)} ${y.toFixed(1)}${half(2 * r)}${half(-2 * r)}z`, fill, stroke: "none" };
}
