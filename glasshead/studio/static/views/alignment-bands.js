// Two lines of words, or columns where there is no room, and between them lines as thick as their weights.
import { scale } from "../colors.js";
import { element, moveOf, setAttributes } from "../dom.js";
import { node } from "../figure.js";
import { decimal, within } from "../numbers.js";
import { curve, stacked } from "./alignment-curves.js";

const OTHER = { source: "target", target: "source" };
const TOLD = 3;
// What is weaker has no line.
const SEEN = 0.03;
const MARGIN = 20, HEADING = 44;

/** `show({side, at} | null)` sets a word apart for a while, `keep("t3" | null)` until another is; `kept` and `marked`
 * are told which. `redraw(matrix)` draws other weights. */
export function bands(source, target, { t, marked, kept }) {
  const place = scale();
  const lines = source.flatMap((_, column) => target.map((__, row) => ({ row, column, path: node("path", {}) })));
  const svg = node("svg", { "aria-hidden": "true" });
  svg.append(...lines.map(({ path }) => path));
  const words = { source, target };
  const lists = { source: list("source"), target: list("target") };
  const readout = element("p.readout", { "aria-live": "polite" });
  const stage = element("div.stage", lists.source, svg, lists.target);
  const made = element("div.bands", stage, readout);
  let matrix = [], held = null, pointed = null, columns = false;

  function list(side) {
    const item = (word, at) => element("li", {
      role: "option", tabindex: at ? -1 : 0, "data-word": `${side[0]}${at}`,
      onpointerenter: () => show({ side, at }), onpointerleave: () => show(null),
      onfocus: () => hold({ side, at }), onkeydown: (event) => move(event, { side, at }),
    }, element("bdi.word", word), element("span.weight"));
    const label = t(`alignment.${side}`);
    return element(`ul.words.${side}`, { role: "listbox", "aria-label": label }, words[side].map(item));
  }

  const taken = ({ side, at }) => (side === "target" ? matrix[at] : matrix.map((row) => row[at]));
  const isOf = (line, word) => (word.side === "target" ? line.row : line.column) === word.at;
  const items = (side) => [...lists[side].children];

  function show(word) { pointed = word; mark(); }

  function hold(word) {
    held = word;
    if (word) items(word.side).forEach((item, at) => { item.tabIndex = at === word.at ? 0 : -1; });
    kept(word && `${word.side[0]}${word.at}`);
    mark();
  }

  function move(event, word) {
    const [down, right] = moveOf(event) ?? [];
    const along = Math.abs(right) > 1 || !columns ? right : down;
    const { side, at } = word;
    if (event.key === "Escape") hold(null);
    else if (along) items(side)[within(at + along, words[side].length)].focus();
    else if (Math.abs(down || right) === 1) items(OTHER[side])[strongest(word)[0][1]].focus();
    else return;
    event.preventDefault();
  }

  function strongest(word) {
    return taken(word).map((weight, at) => [weight, at]).sort((a, b) => b[0] - a[0]).slice(0, TOLD);
  }

  function mark() {
    const word = pointed ?? held;
    stage.classList.toggle("pointing", word !== null);
    for (const line of lines) line.path.classList.toggle("on", word !== null && isOf(line, word));
    for (const side of Object.keys(lists)) {
      const weights = word && word.side !== side ? taken(word) : null;
      items(side).forEach((item, at) => {
        const number = item.lastChild;
        item.setAttribute("aria-selected", String(word?.side === side && word.at === at));
        item.className = weights ? `w${place(weights[at])}` : "";
        number.textContent = weights ? decimal(weights[at], 2) : "";
        if (weights) number.dataset.value = weights[at];
      });
    }
    readout.textContent = word ? said(word) : t("alignment.hint");
    marked(word);
  }

  function said(word) {
    const { side, at } = word;
    const [all, each] = side === "target" ? ["took", "from"] : ["gave", "to"];
    const others = words[OTHER[side]];
    const weights = strongest(word)
      .map(([weight, other]) => t(`alignment.${each}`, { weight: decimal(weight), word: others[other] }));
    return t(`alignment.${all}`, { word: words[side][at], weights: weights.join(t("shell.comma")) });
  }

  function placed() {
    stage.classList.remove("columns");
    columns = Object.values(lists).some((each) => each.scrollWidth > stage.clientWidth);
    stage.classList.toggle("columns", columns);
    for (const each of Object.values(lists)) each.setAttribute("aria-orientation", columns ? "vertical" : "horizontal");
    const frame = svg.getBoundingClientRect();
    const [begin, end] = columns ? ["top", "bottom"] : ["left", "right"];
    const extents = (side) => items(side).map((item) => item.getBoundingClientRect())
      .map((box) => [box[begin] - frame[begin], box[end] - frame[begin]]);
    const shown = stacked(lines.filter(({ weight }) => weight >= SEEN), extents("source"), extents("target"));
    for (const { path } of lines) path.classList.add("out");
    for (const line of shown) {
      const d = curve(line, columns ? frame.width : frame.height, columns);
      const width = line.width.toFixed(2);
      setAttributes(line.path, { d, class: "", "stroke-width": width, "data-weight": line.weight });
      line.path.style.setProperty("--weight", line.weight);
    }
    mark();
  }

  let before = 0;
  new ResizeObserver(() => {
    if (stage.clientWidth !== before) { before = stage.clientWidth; placed(); }
  }).observe(stage);

  made.show = show;
  made.keep = (name) => {
    const side = Object.keys(words).find((each) => each[0] === name?.[0]);
    const at = Number(name?.slice(1));
    hold(side && at in words[side] ? { side, at } : null);
  };
  made.redraw = (values) => {
    matrix = values;
    for (const line of lines) line.weight = matrix[line.row][line.column];
    placed();
  };
  made.figure = (title) => {
    const [frame, inner] = [stage, svg].map((each) => each.getBoundingClientRect());
    const transform = `translate(${inner.left - frame.left + MARGIN} ${inner.top - frame.top + HEADING})`;
    const paths = [...svg.querySelectorAll("path:not(.out)")].map((path) => {
      const { strokeWidth: thick, strokeOpacity: opacity } = getComputedStyle(path);
      return { d: path.getAttribute("d"), width: thick, opacity, transform };
    });
    const texts = [...stage.querySelectorAll(".word, .weight:not(:empty)")].map((part) => {
      const box = part.getBoundingClientRect();
      const x = (box.left + box.right) / 2 - frame.left + MARGIN;
      const y = (box.top + box.bottom) / 2 - frame.top + HEADING + 5;
      const look = part.className === "word" ? { size: 16 } : { size: 12, fill: "quiet" };
      return { x, y, text: part.textContent, anchor: "middle", ...look };
    });
    const width = frame.width + 2 * MARGIN;
    const heading = { x: width / 2, y: MARGIN + 6, text: title, fill: "quiet", anchor: "middle" };
    return { width, height: frame.height + HEADING + MARGIN, marks: [heading, ...paths, ...texts] };
  };
  return made;
}
