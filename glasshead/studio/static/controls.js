// Controls: each has a label that is seen, and calls back with what was chosen.
import { button, element, fill, unique } from "./dom.js";
import { grouped } from "./numbers.js";
import { Refused } from "./source.js";

/** @import { Context, Translate } from "./app.js" */
/** @import { Children } from "./dom.js" */

// A value and the text that names it, or one that names itself.
/** @typedef {(string | number)[] | string | number} Option */

/** @typedef {HTMLElement & {set: (value: string | number) => void}} Control */

/**
 * @typedef {(label: string, options: Option[], value: string | number,
 *   chosen: (value: string) => void) => Control} MakeControl
 */

// A longer text is not put into its field again.
const MOST_SHOWN = 20000;
// Nor is a longer one in the address.
const MOST_IN_ADDRESS = 1500;

// A field of that id with its label.
/** @param {string} id @param {string} label @param {...Children} held */
function labeled(id, label, ...held) {
  return element("div.control", element("label", { for: id }, label), held);
}

/** @param {Option} option @returns {[string, string]} */
function named(option) {
  return /** @type {any} */ (Array.isArray(option) ? option : [option, option]).map(String);
}

/** A menu that drops down. @type {MakeControl} */
export function menu(label, options, value, chosen) {
  const id = unique("menu");
  const select = element(
    "select",
    { id, onchange: () => chosen(select.value) },
    options.map(named).map(([each, text]) => element("option", { value: each }, text)),
  );
  const set = (/** @type {string | number} */ each) => {
    select.value = String(each);
  };
  set(value);
  return Object.assign(labeled(id, label, select), { set });
}

/** Radio buttons that stand side by side. @type {MakeControl} */
export function choice(label, options, value, chosen) {
  const name = unique("choice");
  const held = options.map(named).map(([each, text]) => {
    const id = unique("option");
    const onchange = () => chosen(each);
    const input = element("input", { type: "radio", name, id, value: each, onchange });
    return { input, label: element("label", { for: id }, text) };
  });
  const set = (/** @type {string | number} */ each) => {
    for (const { input } of held) input.checked = input.value === each;
  };
  set(value);
  const all = element("div.choice", held.map(Object.values));
  const made = element("fieldset.control", element("legend", label), all);
  return Object.assign(made, { set });
}

/**
 * A slider over the places of a list.
 * @param {string} label @param {number} count @param {number} place
 * @param {(place: number) => string | number} textOf @param {(place: number) => void} moved
 */
export function slider(label, count, place, textOf, moved) {
  const id = unique("slider");
  const output = element("output", { for: id });
  const oninput = () => {
    set(Number(input.value));
    moved(Number(input.value));
  };
  const input = element("input", { type: "range", id, min: 0, max: count - 1, step: 1, oninput });
  const set = (/** @type {number} */ next) => {
    const text = String(textOf(next));
    input.value = String(next);
    output.textContent = text;
    input.ariaValueText = text;
  };
  set(place);
  const made = labeled(id, label, element("div.slider", input, output));
  return Object.assign(made, { set });
}

/**
 * The scales of colors that a map has.
 * @param {Translate} t @param {boolean} isLogarithmic
 * @param {(isLogarithmic: boolean) => void} chosen
 */
export function scaleChoice(t, isLogarithmic, chosen) {
  const scales = ["linear", "log"].map((name) => [name, t(`shell.${name}`)]);
  const value = isLogarithmic ? "log" : "linear";
  return choice(t("shell.colors"), scales, value, (scale) => chosen(scale === "log"));
}

// Buttons that zoom in and out, and to all that there is, by the factor 0.
/** @param {Translate} t @param {(factor: number) => void} zoom */
export function zoomButtons(t, zoom, step = 2) {
  const all = button(t("shell.all"), () => zoom(0));
  const group = element(
    "div.zooming",
    { role: "group", "aria-label": t("shell.zoom") },
    button("+", () => zoom(step), t("shell.nearer")),
    button("−", () => zoom(1 / step), t("shell.farther")),
    all,
  );
  return Object.assign(group, { all });
}

/** A check box. @param {string} label @param {boolean} on @param {(on: boolean) => void} changed */
export function toggle(label, on, changed) {
  const id = unique("toggle");
  const onchange = () => changed(input.checked);
  const input = element("input", { type: "checkbox", id, onchange });
  input.checked = on;
  return element("div.control.toggle", input, element("label", { for: id }, label));
}

/**
 * A line of text, and the button that sends it; blanks alone are not sent.
 * @param {string} label @param {string} text
 * @param {string} send  Text of the button
 * @param {(text: string) => void} sent
 * @param {number} most  Characters
 */
export function textField(label, text, send, sent, most) {
  const id = unique("text");
  const plain = { autocomplete: "off", spellcheck: "false" };
  const field = element("input", { type: "text", id, maxlength: most, ...plain });
  field.value = text;
  const onsubmit = (/** @type {Event} */ event) => {
    event.preventDefault();
    if (field.value.trim()) sent(field.value);
  };
  const row = element("div.row", field, element("button", { type: "submit" }, send));
  const form = element(
    "form.control.asking",
    { onsubmit },
    element("label", { for: id }, label),
    row,
  );
  const set = (/** @type {string} */ next) => {
    field.value = next;
  };
  return Object.assign(form, { set });
}

// A file to choose, by a button in the words of the page.
/** @param {string} label @param {string} accept @param {(file: File | undefined) => void} chosen */
export function fileButton(label, accept, chosen) {
  const id = unique("file");
  const onchange = () => chosen(file.files[0]);
  const file = element("input", { type: "file", id, accept, onchange });
  return element("div.file", file, element("label", { for: id }, label));
}

/** A text of any length, written or from a file, that is sent to the studio. */
export class TextPicker {
  /**
   * @param {Context} context
   * @param {(place: {text: string, said: string | null}) => Promise<void>} read  Shows the text
   *   that was sent, of which this is in the address
   */
  constructor({ t, source, about, signal, failed }, read) {
    this.t = t;
    this.source = source;
    this.signal = signal;
    this.mostBytes = about.limits.text;
    this.read = read;
    this.failedElsewhere = failed;
    this.field = element("textarea", {
      id: unique("text"),
      rows: 4,
      spellcheck: "false",
      dir: "auto",
    });
    this.refusal = element("p.wrong", { role: "alert" });
    const file = fileButton(t("shell.file"), ".txt,.md,text/*", (one) => this.sendFile(one));
    const send = element("button", { type: "submit" }, t("shell.read"));
    const onsubmit = (/** @type {Event} */ event) => {
      event.preventDefault();
      this.send(this.field.value);
    };
    this.element = element(
      "details.text",
      // One is open at a time.
      { name: "text" },
      element("summary", t("shell.choose")),
      element(
        "form",
        { onsubmit },
        labeled(this.field.id, t("shell.text"), this.field),
        element("div.row", send, file),
        this.refusal,
      ),
    );
  }

  /** Put the text of a name into the field. @param {string} name */
  async show(name) {
    const answer = this.source.json(`texts/${name}`, null, { signal: this.signal });
    // A text that is not there any more leaves the field empty.
    const { text } = await answer.catch(() => ({ text: "" }));
    this.put(text);
  }

  put(/** @type {string} */ text) {
    if (text.length <= MOST_SHOWN) this.field.value = text;
  }

  async send(/** @type {string} */ text) {
    fill(this.refusal);
    try {
      const name = await this.source.send(text);
      // The address holds a short text itself, so that it opens when the studio has forgotten it, and
      // in another browser.
      await this.read({ text: name, said: text.length <= MOST_IN_ADDRESS ? text : null });
      this.element.open = false;
    } catch (error) {
      this.failed(error);
    }
  }

  async sendFile(/** @type {File | undefined} */ file) {
    if (!file) return;
    if (file.size > this.mostBytes) {
      const sizes = { size: grouped(file.size), most: grouped(this.mostBytes) };
      fill(this.refusal, this.t("shell.large", sizes));
      return;
    }
    const text = await file.text();
    this.put(text);
    await this.send(text);
  }

  /** Show a refusal next to the field, where another text may be chosen. @param {Error} error */
  failed(error) {
    if (this.signal.aborted || !(error instanceof Refused)) {
      this.failedElsewhere(error);
      return;
    }
    fill(this.refusal, error.message);
    this.element.open = true;
  }
}

// The name of the text that a view begins with: that of the address, or else a sample.
/** @param {Context} context @param {HTMLElement} told  Where it is said what the sample is from */
export async function firstText({ source, state, t, sample }, told) {
  if (state.said) return source.send(state.said);
  if (state.text) return state.text;
  const { text, origin, why } = await sample();
  tellOrigin(told, t, origin, why);
  return source.send(text);
}

// Say where a text is from that nobody has chosen.
/** @param {HTMLElement} told @param {Translate} t @param {string} origin @param {string} why */
export function tellOrigin(told, t, origin, why) {
  fill(told, origin === "given" ? null : t(`shell.origin.${origin}`, { why }));
  told.title = origin === "own" ? t("shell.origin.own.why") : "";
  told.toggleAttribute("data-why", Boolean(why));
}

export function progress(/** @type {string} */ label) {
  const id = unique("progress");
  const bar = element("progress", { id, max: 1 });
  const output = element("label", { for: id }, label);
  const made = element("div.progress", { role: "status" }, output, bar);
  /** @param {number | null} share  From 0 to 1; null where nobody knows @param {string} [text] */
  const show = (share, text) => {
    if (share === null) bar.removeAttribute("value");
    else bar.value = share;
    if (text) output.textContent = text;
  };
  return Object.assign(made, { show });
}
