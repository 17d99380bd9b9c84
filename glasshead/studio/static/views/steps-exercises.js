// The exercises of the view "steps".
import { Arrows } from "./steps-arrows.js";
import { Predict } from "./steps-predict.js";

/** @import { Context } from "../app.js" */
/** @import { Exercise, Opened } from "./steps-practice.js" */

/** @type {Record<string, new (context: Context, opened: Opened) => Exercise>} */
export const EXERCISES = { predict: Predict, drag: Arrows };
