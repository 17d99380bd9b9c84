// The head that is open: its map, numbers and roles, and the text as the query sees it.
import { scale } from "../colors.js";
import { element, fill, table, th } from "../dom.js";
import { count, decimal, weight } from "../numbers.js";
import { HeadMap } from "./heads-map.js";

const ROWS = ["query", "key", "weight", "rank", "entropy", "distance", "received"];
const UNITS = { entropy: "heads.nats", distance: "heads.tokens" };

export class OneHead {
  constructor(told, t, moved) {
    Object.assign(this, { told, t });
    this.map = new HeadMap(told.tokens, t, (query, key) => { this.tell(); moved(query, key); });
    this.title = element("h2");
    this.key = element("p.key");
    this.cells = Object.fromEntries(ROWS.map((row) => [row, element("td", { "data-row": row })]));
    const name = (row) => th("row", t(`heads.${row}`), UNITS[row] && ` ${t(UNITS[row])}`);
    const readout = element("table.readout",
      { id: "heads-readout", "aria-live": "polite", "aria-label": t("heads.readout") },
      element("tbody", ROWS.map((row) => element("tr", name(row), this.cells[row]))));
    this.roles = this.roleTable();
    this.tokens = told.running.map((word, at) => element("span", { "data-at": at }, word));
    const hovered = ({ target }) => { if (target.dataset.at) this.map.go(Number(target.dataset.at), this.map.key); };
    this.element = element("section.one", { "aria-label": t("heads.open") },
      element("div.head", this.title, this.key), this.map.element, readout,
      element("h2", t("heads.text")), element("p.quiet", t("heads.text_told")),
      element("p.tokens", { onpointerover: hovered, onclick: hovered }, this.tokens));
  }

  roleTable() {
    const { t, told } = this;
    const all = told.roles.flat();
    const roles = Object.keys(told.scores);
    this.scores = Object.fromEntries(roles.map((role) => [role, element("td.score", { "data-score": role })]));
    const heads = ["heads.role", "heads.score", "heads.having"].map((name) => th("col", t(name)));
    return table("table", t("heads.roles"), heads, Object.entries(this.scores).map(([role, cell]) => [
      th("row", t(`heads.role.${role}`), element("small", t(`heads.means.${role}`))),
      cell, element("td.right", { "data-role": role }, all.filter((one) => one === role).length)]));
  }

  show(layer, head, whole, at, look) {
    const { t, told } = this;
    const own = told.roles[layer][head];
    this.whole = whole;
    Object.assign(this.map, at);
    fill(this.title, t("heads.named", { layer, head }),
      own && element("span.tag", t(`heads.role.${own}`)), element("code", told.layers[layer]));
    for (const [role, cell] of Object.entries(this.scores)) {
      const score = told.scores[role][layer][head];
      cell.dataset.value = score ?? "";
      fill(cell, decimal(score, 3));
      cell.style.setProperty("--share", score ?? 0);
      cell.parentNode.classList.toggle("here", role === own);
    }
    this.recolor(look);
  }

  recolor(look) {
    // Without the first token, the bars of the others are longer.
    if (this.map.whole === this.whole && this.look.skip === look.skip) this.map.color(look);
    else this.map.show(this.whole, look);
    this.look = look;
    const { largest, pooled } = this.map;
    fill(this.key, element("span", look.logarithmic ? weight(largest * 1e-4) : "0"),
      element("span.ramp", { "aria-hidden": "true" }), element("span", { "data-value": largest }, decimal(largest)),
      pooled ? element("span", this.t("heads.pooled")) : null);
    this.shaded = null;
    this.tell();
  }

  tell() {
    const { told: { tokens }, whole, cells, map: { query, key } } = this;
    const row = whole.values.subarray(query * tokens.length, (query + 1) * tokens.length);
    const own = row[key];
    const over = (least) => row.reduce((sum, value) => sum + (value > least), 0);
    const say = (name, value, ...text) => { fill(cells[name], text); cells[name].dataset.value = value; };
    const place = (name, at) => say(name, at, element("b", tokens[at]), element("span.at", count(at)));
    const along = (name, at) => say(name, whole[name][at], decimal(whole[name][at]));
    place("query", query);
    place("key", key);
    say("weight", own, weight(own));
    const rank = own > 0 ? 1 + over(own) : "";
    say("rank", rank, rank ? this.t("heads.of", { rank: count(rank), count: count(over(0)) }) : "–");
    along("entropy", query);
    along("distance", query);
    along("received", key);
    if (this.shaded !== query) this.shade(row);
    this.shaded = query;
    for (const [name, at] of [["asks", query], ["asked", key]]) {
      this[name]?.classList.remove(name);
      this[name] = this.tokens[at];
      this[name].classList.add(name);
    }
  }

  shade(row) {
    const { skip, logarithmic } = this.look;
    const level = scale({ top: Math.max(...row.subarray(skip)), logarithmic });
    this.tokens.forEach((token, at) => {
      const name = at < skip ? "off" : row[at] > 0 ? `w${level(row[at])}` : "";
      if (token.className !== name) token.className = name;
    });
  }
}
