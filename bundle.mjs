// Bundles the studio's scripts and style sheets: node bundle.mjs
import { readFile, readdir, rename, rm, writeFile } from "node:fs/promises";
import { brotliCompressSync } from "node:zlib";
import { build } from "esbuild";
import { minify } from "terser";

const STATIC = "glasshead/studio/static";
const MADE = "glasshead/studio/bundles";
// Bundles are complete, or those of before.
const BUNDLES = `${MADE}.new`;
// What a page in one file holds; all else is served.
const IN_A_PAGE = /^(report|live)\./;

// A script that is no module is strict as well.
const strict = { compilerOptions: { alwaysStrict: true } };
const shared = { minify: true, charset: "utf8", target: "es2022", logLevel: "warning" };
const texts = { ".css": "text" };
const script = { ...shared, bundle: true, tsconfigRaw: strict, loader: texts };

await rm(BUNDLES, { recursive: true, force: true });
// For a server: the code of each view is a file of its own.
await build({
  ...script,
  entryPoints: { app: `${STATIC}/served.js` },
  format: "esm",
  splitting: true,
  inject: [`${STATIC}/base.js`],
  sourcemap: true,
  outdir: BUNDLES,
  chunkNames: "[name]-[hash]",
});
// For a report, which is one file.
const whole = { ...script, format: "iife" };
const report = { entryPoints: [`${STATIC}/live/report-page.js`], outfile: `${BUNDLES}/report.js` };
await build({ ...whole, ...report });
// For a page that works without a server, which has three views.
const others = ["alignment", "atlas", "model", "picture", "training"];
await build({
  ...whole,
  entryPoints: [`${STATIC}/live/page.js`],
  globalName: "glasshead",
  outfile: `${BUNDLES}/live.js`,
  external: others.map((view) => `./${STATIC}/views/${view}.js`),
});
await build({
  ...shared,
  bundle: true,
  entryPoints: ["style", "report"].map((name) => `${STATIC}/${name}.css`),
  external: ["*.woff2"],
  outdir: BUNDLES,
});

// Terser makes esbuild's minified scripts a thirtieth smaller.
for (const name of await readdir(BUNDLES)) {
  if (!name.endsWith(".js")) continue;
  const file = `${BUNDLES}/${name}`;
  const isModule = !IN_A_PAGE.test(name);
  const sourceMap = isModule && {
    content: await readFile(`${file}.map`, "utf8"),
    url: `${name}.map`,
  };
  const ecma = 2022;
  const compress = { passes: 3 };
  const made = await minify(await readFile(file, "utf8"), {
    ecma,
    module: isModule,
    compress,
    sourceMap,
  });
  await writeFile(file, made.code);
  if (isModule) await writeFile(`${file}.map`, made.map);
}

// Compress each file that the server sends unchanged: Python has no Brotli.
for (const name of await readdir(BUNDLES)) {
  if (IN_A_PAGE.test(name) || name.endsWith(".map")) continue;
  // The default quality is the highest.
  await writeFile(
    `${BUNDLES}/${name}.br`,
    brotliCompressSync(await readFile(`${BUNDLES}/${name}`)),
  );
}

await rm(MADE, { recursive: true, force: true });
await rename(BUNDLES, MADE);
