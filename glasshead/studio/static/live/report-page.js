// The page of a report, which holds all of its data.
import { Page, start } from "../app.js";
import { Report, heldAnswers } from "./report.js";

start(new Page(new Report(heldAnswers())));
