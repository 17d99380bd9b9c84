// The choices of the view "steps": a control for each, which offers what there is.
import { asking, choice, menu, slider } from "../controls.js";
import { button, element, fill } from "../dom.js";
import { upTo } from "../numbers.js";

const CONTROLS = { beta: stops, mask: choice, normalizer: menu, heads: choice, head: choice, query: menu };
// What makes no sense with other heads, or another sentence.
const OF_HEADS = { head: null, at: null };
const OF_A_SENTENCE = { ...OF_HEADS, heads: null, query: null };

export class Choices {
  constructor({ t, source, about }, ask) {
    Object.assign(this, { t, ask, controls: {}, offers: {} });
    this.slots = Object.fromEntries(Object.keys(CONTROLS).map((name) => [name, element("div.slot")]));
    const sent = (text) => ask({ ...OF_A_SENTENCE, text });
    this.text = asking(t("steps.sentence"), "", t("steps.show"), sent, about.limits.sentence);
    this.example = button(t("steps.example"), () => ask({ ...OF_A_SENTENCE, text: null, beta: null }));
    this.frame = element("div.controls", { role: "group", "aria-label": t("steps.choices") },
      source.offline ? null : [this.text, this.example], Object.values(this.slots));
  }

  draw(data, query) {
    this.data = data;
    this.text.set(data.text);
    this.example.hidden = data.worked;
    for (const [name, pairs] of Object.entries(this.pairs())) {
      // A control is made anew only where its offer has changed: what is held by pointer or keyboard stays.
      const offer = JSON.stringify(pairs);
      if (offer !== this.offers[name]) {
        this.controls[name] = pairs.length < 2 ? null
          : CONTROLS[name](this.t(`steps.${name}`), pairs, "", (value) => this.take(name, value));
        fill(this.slots[name], this.controls[name]);
        this.offers[name] = offer;
      }
      this.controls[name]?.set(String({ ...data.chosen, query }[name]));
    }
  }

  pairs() {
    const { options, chosen, words } = this.data;
    const pairs = (values, said = String) => values.map((each) => [String(each.name ?? each), each.said ?? said(each)]);
    return {
      beta: pairs(options.betas),
      mask: pairs(options.masks, (each) => this.t(`steps.mask.${each}`)),
      normalizer: pairs(options.normalizers),
      heads: pairs(options.heads),
      head: pairs(upTo(chosen.heads)),
      query: pairs(options.queries, (each) => words[each]),
    };
  }

  take(name, value) {
    const { defaults, options, chosen } = this.data;
    const changes = { [name]: value === String(defaults[name]) ? null : value };
    if (name === "heads") Object.assign(changes, OF_HEADS);
    // What never becomes hard goes on with the sharpest β that is a number.
    const hardens = options.normalizers.find((each) => each.name === value)?.hardens ?? true;
    if (chosen.beta === "inf" && !hardens) changes.beta = options.betas.at(-2).name;
    this.ask(changes);
  }

  explain(query) { if (this.data.options.queries.includes(query)) this.take("query", String(query)); }
}

function stops(label, pairs, value, chosen) {
  const control = slider(label, pairs.length, 0, (place) => pairs[place][1], (place) => chosen(pairs[place][0]));
  const { set } = control;
  control.set = (each) => set(pairs.findIndex(([name]) => name === each));
  return control;
}
