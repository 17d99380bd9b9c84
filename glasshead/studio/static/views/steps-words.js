// What explain says of one word, beside the matrices, and the sum of one cell below them.
import { element, fill, scrolling } from "../dom.js";
import { figure } from "../numbers.js";

export class Words {
  constructor(label) {
    this.title = element("h2");
    this.told = element("div");
    this.frame = element("aside.words", { "aria-label": label, tabindex: "0" }, this.title, this.told);
  }

  draw({ title, notes, steps }) {
    this.title.textContent = title;
    const section = ({ name, title: heading, text, formula, numbers, why }, place) => {
      return element("section", { "data-step": name },
        place ? element("h3", `${place}. ${heading}`) : null,
        text.map((each) => element("p", each)),
        formula.length + numbers.length ? scrolling(heading, [formula, numbers].map(set)) : null,
        (place ? [why] : [why, ...notes]).map((note) => note && element("p.note", note)));
    };
    fill(this.told, steps.map(section));
    this.mark(this.marked, false);
  }

  mark(name, follow) {
    const step = ["queries", "keys", "values"].includes(name) ? "inputs" : name;
    for (const each of this.told.children) each.classList.toggle("here", each.dataset.step === step);
    if (follow && name !== this.marked) this.frame.scrollTop = (this.told.querySelector(".here")?.offsetTop ?? 12) - 12;
    this.marked = name;
  }
}

function set(lines) {
  const run = ([text, places]) => {
    const names = places.match(/\w+/g) ?? [];
    return names.reduceRight((inner, name) => element(name, inner), text);
  };
  return lines.length ? element("pre.formula", lines.map((line) => [line.map(run), "\n"])) : null;
}

export function sumFrame(t) {
  const frame = element("div.sum", { role: "status", tabindex: "0", "aria-label": t("steps.sum") });
  frame.draw = ({ title, value, lines, note }) => fill(frame,
    element("h2", title),
    lines.map((line) => element("p.line", line.map(written))),
    element("p.quiet", value === null ? null : [`${t("steps.full")}: `,
      element("data.full", { value, "data-value": value }, String(value).replace("-", "−")), note && " · "], note));
  return frame;
}

function written(part) {
  if (typeof part === "number") return element("data", { value: part, title: part }, figure(part));
  return part.up ? element("sup", part.up.map(written)) : part;
}
