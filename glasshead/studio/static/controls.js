// Controls: each has a name that is seen, and tells what was chosen.
import { element, fill, unique } from "./dom.js";
import { count } from "./numbers.js";
import { Refused } from "./source.js";

// A longer text is not put into its field again.
const SHOWN = 20000;

function named(id, label, ...held) { return element("div.control", element("label", { for: id }, label), held); }

/** A menu; options are [value, text] pairs. */
export function menu(label, options, value, chosen) {
  const id = unique("menu");
  const select = element("select", { id, onchange: () => chosen(select.value) },
    options.map(([each, text]) => element("option", { value: each }, text)));
  select.value = value;
  const control = named(id, label, select);
  control.set = (each) => { select.value = each; };
  return control;
}

export function choice(label, options, value, chosen) {
  const name = unique("choice");
  const inputs = options.map(([each, text]) => {
    const id = unique("option");
    const input = element("input", { type: "radio", name, id, value: each, onchange: () => chosen(each) });
    input.checked = each === value;
    return [input, element("label", { for: id }, text)];
  });
  const control = element("fieldset.control", element("legend", label), element("div.choice", inputs));
  control.set = (each) => { for (const [input] of inputs) input.checked = input.value === each; };
  return control;
}

/** A slider over a list of places; `told` says a place in words. */
export function slider(label, count, place, told, moved) {
  const id = unique("slider");
  const said = element("output", { for: id });
  const input = element("input", {
    type: "range", id, min: 0, max: count - 1, step: 1,
    oninput: () => { show(Number(input.value)); moved(Number(input.value)); },
  });
  const show = (each) => { input.value = each; said.textContent = input.ariaValueText = told(each); };
  show(place);
  return Object.assign(named(id, label, element("div.slider", input, said)), { set: show });
}

export function toggle(label, on, changed) {
  const id = unique("toggle");
  const input = element("input", { type: "checkbox", id, onchange: () => changed(input.checked) });
  input.checked = on;
  return element("div.control.toggle", input, element("label", { for: id }, label));
}

export function asking(label, text, button, sent, most) {
  const id = unique("text");
  const field = element("input", { type: "text", id, maxlength: most, autocomplete: "off", spellcheck: "false" });
  field.value = text;
  const form = element("form.control.asking", {
    onsubmit: (event) => { event.preventDefault(); if (field.value.trim()) sent(field.value); },
  }, element("label", { for: id }, label), element("div.row", field, element("button", { type: "submit" }, button)));
  form.set = (each) => { field.value = each; };
  return form;
}

/** A text, written or from a file; read(name) is told its name, once it was sent, and failed(error) tells what is
 * refused. */
export function textChoice({ t, source, about, signal, failed }, read) {
  const most = about.limits.text;
  const [id, file] = [unique("text"), unique("file")];
  const field = element("textarea", { id, rows: 4, spellcheck: "false", dir: "auto" });
  const wrong = element("p.wrong", { role: "alert" });
  const send = async (text) => {
    fill(wrong);
    await source.send(text).then(read).then(() => { control.open = false; }).catch(control.failed);
  };
  const taken = async ({ target: { files: [one] } }) => {
    if (!one) return;
    if (one.size > most) return fill(wrong, t("shell.large", { size: count(one.size), most: count(most) }));
    const text = await one.text();
    if (text.length <= SHOWN) field.value = text;
    await send(text);
  };
  const control = element("details.text", element("summary", t("shell.choose")),
    element("form", { onsubmit: (event) => { event.preventDefault(); send(field.value); } },
      named(id, t("shell.text"), field),
      element("div.row", element("button", { type: "submit" }, t("shell.read")),
        named(file, t("shell.file"),
          element("input", { type: "file", id: file, accept: ".txt,.md,text/*", onchange: taken }))),
      wrong));
  control.show = async (name) => {
    const { text } = await source.json(`texts/${name}`, null, { signal }).catch(() => ({ text: "" }));
    if (text.length <= SHOWN) field.value = text;
  };
  control.failed = (error) => {
    if (signal.aborted || !(error instanceof Refused)) return failed(error);
    fill(wrong, error.message);
    control.open = true;
  };
  return control;
}

export function progress(label) {
  const id = unique("progress");
  const bar = element("progress", { id, max: 1 });
  const said = element("label", { for: id }, label);
  const control = element("div.progress", { role: "status" }, said, bar);
  control.show = (share, text) => {
    if (share === null) bar.removeAttribute("value"); else bar.value = share;
    if (text) said.textContent = text;
  };
  return control;
}
