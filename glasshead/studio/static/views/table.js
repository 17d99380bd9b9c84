/** The views by name, whose code arrives when they are first opened. */
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

// Return a view, after loading its code if necessary.
/** @param {string} name @returns {Promise<View>} */
export async function viewOf(name) {
  const code = await VIEWS[name]().catch(() => {
    throw new Unreachable(name);
  });
  return code[name];
}
