// Heads by their layer and number, as the address lists them.

/** @typedef {[number, number]} Head  A layer, and a head of it */

/**
 * Heads as the address holds them, such as "1.3,4.0".
 * @param {string | undefined} written
 * @returns {Head[]}
 */
export function headsOf(written) {
  const names = (written ?? "").split(",").filter((name) => /^\d+\.\d+$/.test(name));
  return names.map((name) => /** @type {Head} */ (name.split(".").map(Number)));
}

/** @param {Head[]} heads */
export function listed(heads) {
  return heads.map((head) => head.join(".")).join(",") || null;
}

/**
 * The index of a head in a list; −1 if the list does not contain it.
 * @param {Head[]} heads
 * @param {Head} one
 */
export function placeOf(heads, [layer, head]) {
  return heads.findIndex((each) => each[0] === layer && each[1] === head);
}

/**
 * A list of heads without one that is in it, or with one that is not.
 * @param {Head[]} heads
 * @param {Head} one
 */
export function toggled(heads, one) {
  const at = placeOf(heads, one);
  return at < 0 ? [...heads, one] : heads.toSpliced(at, 1);
}
