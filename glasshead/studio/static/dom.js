// Elements made of data: a text is always a text, never markup.

/** After the name may come attributes and listeners ("onclick"), then what it holds. */
export function element(name, ...children) {
  const [tag, ...classes] = name.split(".");
  const made = document.createElement(tag);
  if (classes.length) made.className = classes.join(" ");
  const attributes = children[0]?.constructor === Object ? children.shift() : {};
  for (const [key, value] of known(attributes)) {
    if (value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key === "value") made.value = value;
    else made.setAttribute(key, value === true ? "" : value);
  }
  fill(made, children);
  return made;
}

export function fill(frame, ...children) {
  frame.replaceChildren(...children.flat(Infinity).filter((child) => ![null, undefined, false].includes(child)));
}

export function setAttributes(node, values) {
  for (const [name, value] of known(values)) node.setAttribute(name, value);
  return node;
}

/** The names and values of an object that are not null or undefined. */
export function known(values) {
  return Object.entries(values ?? {}).filter(([, value]) => value !== null && value !== undefined);
}

export function button(text, onclick) { return element("button", { type: "button", onclick }, text); }

export function th(scope, ...held) { return element("th", { scope }, held); }

/** A frame that scrolls, by the keyboard too. */
export function scrolling(label, ...held) {
  return element("div.scroll", { tabindex: 0, role: "region", "aria-label": label }, held);
}

/** A table in a frame that scrolls; `heads` and each of `rows` are cells. */
export function table(name, caption, heads, rows, label = caption) {
  return scrolling(label,
    element(name, element("caption", element("span", caption)),
      element("thead", element("tr", heads)), element("tbody", rows.map((cells) => element("tr", cells)))));
}

/** The rows and columns that a key moves by; null: no such key, or it is for the browser. */
export function moveOf({ key, altKey, ctrlKey, metaKey }, page = Infinity) {
  if (altKey || ctrlKey || metaKey) return null;
  return {
    ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1],
    PageUp: [-page, 0], PageDown: [page, 0], Home: [0, -Infinity], End: [0, Infinity],
  }[key] ?? null;
}

let last = 0;

export function unique(prefix) {
  last += 1;
  return `${prefix}-${last}`;
}
