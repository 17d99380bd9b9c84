/** Code that arrives when it is first needed: that of the views that not everyone opens. */

import { Unreachable } from "./source.js";

/**
 * Return what a module gives, after loading its script if necessary.
 * @param {string} path
 * @returns {Promise<any>}
 */
export async function later(path) {
  if (!(path in modules())) await run(`static/${path}`);
  return modules()[path];
}

/** What each module of the page gives, by its path. */
function modules() {
  return /** @type {Record<string, any>} */ (Reflect.get(window, "$modules"));
}

/** @param {string} address */
function run(address) {
  const script = document.createElement("script");
  return new Promise((done, failed) => {
    script.onload = done;
    script.onerror = () => {
      script.remove();
      failed(new Unreachable(address));
    };
    script.src = address;
    document.head.append(script);
  });
}
