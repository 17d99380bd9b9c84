// The other runs that are drawn over the one that is followed.
import { MOST_COLORS } from "../colors.js";
import { element, fill, unique } from "../dom.js";

/** @import { Translate } from "../app.js" */
/** @import { Run } from "./training-status.js" */

const SEPARATOR = "/";

export class OtherRuns {
  /**
   * @param {Translate} t
   * @param {(chosen: string) => void} changed  Called with them as the address names them
   */
  constructor(t, changed) {
    this.t = t;
    this.changed = changed;
    this.list = element("div");
    this.title = element("summary");
    this.element = element("details.control.over", { hidden: true }, this.title, this.list);
    this.shape = "";
  }

  /** @param {Run} run */
  show({ runs, others }) {
    const drawn = Object.keys(others);
    const shape = JSON.stringify([runs, drawn]);
    if (shape === this.shape) return;
    this.shape = shape;
    this.element.hidden = !runs.length;
    fill(this.title, this.t("training.over", { count: drawn.length }));
    // Whoever is at a box stays there.
    const at = [...this.list.querySelectorAll("input")].findIndex((each) => each.matches(":focus"));
    fill(
      this.list,
      runs.map((name) => this.box(name, drawn)),
    );
    this.list.querySelectorAll("input")[at]?.focus();
  }

  /** @param {string} name @param {string[]} drawn */
  box(name, drawn) {
    const id = unique("run");
    const isOn = drawn.includes(name);
    const onchange = () => {
      const others = drawn.filter((each) => each !== name);
      this.changed((isOn ? others : [...others, name]).join(SEPARATOR));
    };
    // More are not told apart by their colors.
    const disabled = !isOn && drawn.length >= MOST_COLORS - 1;
    const input = element("input", { type: "checkbox", id, disabled, onchange });
    input.checked = isOn;
    return element("div", input, element("label", { for: id }, name));
  }
}
