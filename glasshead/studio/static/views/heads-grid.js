// The small maps of all heads, a row a layer: a grid that arrow keys walk through.
import { element, moveOf, table } from "../dom.js";
import { draw } from "../map.js";
import { decimal, upTo, within } from "../numbers.js";

export class HeadsGrid {
  constructor(told, maps, t, chosen) {
    Object.assign(this, { told, maps, t, chosen });
    this.widest = Math.max(...told.heads);
    this.buttons = told.heads.map((count, layer) => upTo(count).map((head) => this.button(layer, head)));
    this.element = this.table();
  }

  table() {
    const { t, told, widest } = this;
    const [head, layer] = [t("heads.head"), t("heads.layer")];
    const numbered = (name, number, more) => element("th.unseen", more, element("span", name, " "), number);
    const heads = upTo(widest).map((at) => numbered(head, at, { scope: "col" }));
    const rows = this.buttons.map((row, at) => [
      numbered(layer, at, { scope: "row", title: told.layers[at] }), row.map((button) => element("td", button))]);
    const corner = element("td", `${head} →`, element("br"), `${layer} ↓`);
    const made = table("table", t("heads.grid"), [corner, heads], rows);
    made.onkeydown = (event) => this.pressed(event);
    made.style.setProperty("--heads", widest);
    return made;
  }

  button(layer, head) {
    const { t, told } = this;
    const role = told.roles[layer][head];
    const entropy = told.entropy[layer][head];
    // A report may hold the whole maps of some heads alone.
    const there = !told.whole || told.whole.some(([one, other]) => one === layer && other === head);
    const said = { layer, head, role: t(`heads.role.${role ?? "none"}`), entropy: decimal(entropy, 2) };
    const name = t("heads.one", said);
    return element("button.small", {
      type: "button", tabindex: "-1", "aria-label": name,
      title: there ? name : t("heads.absent"), "aria-disabled": there ? null : "true",
      "data-layer": layer, "data-head": head, "data-entropy": entropy, "data-role": role ?? "",
      onclick: () => { this.stop(layer, head); if (there) this.chosen(layer, head); },
    }, element("canvas"), element("span.role", role ? said.role : "–"), element("span.entropy", said.entropy));
  }

  stop(layer, head) {
    if (this.stopped) this.stopped.tabIndex = -1;
    this.stopped = this.buttons[layer][head];
    this.stopped.tabIndex = 0;
  }

  mark(layer, head) {
    if (this.marked) this.marked.ariaCurrent = null;
    this.marked = this.buttons[layer][head];
    this.marked.ariaCurrent = "true";
    this.stop(layer, head);
  }

  pressed(event) {
    const from = event.target.closest("button");
    const move = moveOf(event);
    if (!from || !move) return;
    event.preventDefault();
    const layer = within(Number(from.dataset.layer) + move[0], this.told.heads.length);
    this.stop(layer, within(Number(from.dataset.head) + move[1], this.told.heads[layer]));
    this.stopped.focus();
  }

  show({ logarithmic, skip }) {
    const [, side, wider] = this.maps.shape;
    // A block of the first token alone is greyed.
    const greyed = side === this.told.tokens.length ? skip : 0;
    this.buttons.flat().forEach((button, at) => {
      const values = new Float32Array(side * side);
      for (let row = 0; row < side; row += 1) {
        const blocks = this.maps.values.subarray((at * side + row) * wider, (at * side + row + 1) * wider);
        values.set(blocks.subarray(0, side), row * side);
        // The last column is what the first token alone gets.
        if (skip) values[row * side] -= blocks[side];
      }
      draw(button.firstChild, values, side, { logarithmic, skip: greyed });
    });
  }

  figure() {
    const [side, right, down, left, top] = [72, 84, 98, 64, 56];
    const marks = [{ x: left, y: 26, text: this.t("heads.grid"), size: 15, weight: 600 }];
    this.buttons.forEach((row, layer) => {
      const y = top + layer * down;
      marks.push({ x: left - 12, y: y + side / 2, text: layer, anchor: "end" });
      row.forEach((button, head) => {
        const x = left + head * right;
        const said = Array.from(button.querySelectorAll("span"), (part) => part.textContent).join(" ");
        marks.push({ x, y, width: side, height: side, href: button.firstChild.toDataURL() },
          { x, y: y + side + 13, size: 10, text: said });
      });
    });
    return { width: left + this.widest * right + 20, height: top + this.buttons.length * down, marks };
  }
}
