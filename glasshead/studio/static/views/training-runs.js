// The other runs that are drawn over the one that is followed.
import { MOST_COLORS } from "../colors.js";
import { element, fill, unique } from "../dom.js";

/** @import { Translate } from "../app.js" */
/** @import { Run } from "./training-status.js" */

const SEPARATOR = "/";

// A list of runs, of which some are chosen, as the address names them.
/** @param {Translate} t @param {(chosen: string) => void} changed */
export function otherRuns(t, changed) {
  const list = element("div");
  const title = element("summary");
  const made = element("details.control.over", { hidden: true }, title, list);
  /** @param {string} name @param {string[]} drawn */
  const box = (name, drawn) => {
    const id = unique("run");
    const isOn = drawn.includes(name);
    const onchange = () => {
      const others = drawn.filter((each) => each !== name);
      changed((isOn ? others : [...others, name]).join(SEPARATOR));
    };
    // More are not told apart by their colors.
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
    fill(title, t("training.over", { count: drawn.length }));
    // Whoever is at a box stays there.
    const at = [...list.querySelectorAll("input")].findIndex((each) => each.matches(":focus"));
    fill(
      list,
      runs.map((name) => box(name, drawn)),
    );
    list.querySelectorAll("input")[at]?.focus();
  };
  return Object.assign(made, { show });
}
