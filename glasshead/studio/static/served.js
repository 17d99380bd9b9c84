// The page of a studio that answers.
import { rememberInSearch } from "./address.js";
import { Page, start } from "./app.js";
import { Server } from "./source.js";

// The address may be shared, without the token: a cookie has it from now on.
rememberInSearch({ token: null });
start(new Page(new Server()));
