/** The views by name, whose code and style arrive when they are first opened. */
import { element } from "../dom.js";
import { Unreachable } from "../source.js";

/** @import { View } from "../app.js" */

/** @type {Record<string, () => Promise<Record<string, View>>>} */
const VIEWS = {
  prompt: () => import("./prompt.js"),
  steps: () => import("./steps.js"),
  heads: () => import("./heads.js"),
  alignment: () => import("./alignment.js"),
  atlas: () => import("./atlas.js"),
  model: () => import("./model.js"),
  picture: () => import("./picture.js"),
  training: () => import("./training.js"),
};

/**
 * Return a view, after loading its code if necessary.
 * @param {string} name @returns {Promise<View>}
 */
export async function viewOf(name) {
  const [code] = await Promise.all([VIEWS[name](), styled(`views/${name}`)]).catch(() => {
    throw new Unreachable(name);
  });
  return code[name];
}

/** @type {Record<string, Promise<Event>>} */
const styles = {};

/** Have a style that is not needed at first, which a page in one file holds. @param {string} name */
export function styled(name) {
  if (document.querySelector("head style")) return null;
  styles[name] ??= new Promise((onload, failed) => {
    const onerror = () => {
      delete styles[name];
      link.remove();
      failed(new Unreachable(name));
    };
    const href = `static/${name}.css`;
    const link = element("link", { rel: "stylesheet", href, onload, onerror });
    document.head.append(link);
  });
  return styles[name];
}
