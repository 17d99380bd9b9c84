// The page without a server, which holds its data and works out the rest.
import { Page, start } from "../app.js";
import { Live } from "./live.js";
import { heldAnswers } from "./report.js";

export const sources = [new Live(heldAnswers())];

start(new Page(sources[0]));
