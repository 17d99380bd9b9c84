/** The views by name. The code of the less used ones arrives when they are first opened. */
import { Unreachable } from "../source.js";
import { heads } from "./heads.js";
import { prompt } from "./prompt.js";

/** @import { View } from "../app.js" */

/** @type {Record<string, () => Promise<Record<string, View>>>} */
const VIEWS = {
  prompt: async () => ({ prompt }),
  steps: () => import("./steps.js"),
  heads: async () => ({ heads }),
  alignment: () => import("./alignment.js"),
  atlas: () => import("./atlas.js"),
  model: () => import("./model.js"),
  picture: () => import("./picture.js"),
  training: () => import("./training.js"),
};

/**
 * Return a view, after loading its code if necessary.
 * @param {string} name
 * @returns {Promise<View>}
 */
export async function viewOf(name) {
  const code = await VIEWS[name]().catch(() => {
    throw new Unreachable(name);
  });
  return code[name];
}
