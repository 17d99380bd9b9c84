// The page without a server: its data come before it starts.
import "./live.js";
import "../app.js";

export { sources } from "../source.js";
