import js from "@eslint/js";
import globals from "globals";

// Names of one letter: coordinates, a path's data, and `t`, the translation of a string.
const LETTERS = ["d", "t", "x", "y", "_"];

export default [
  { ignores: ["**/*", "!glasshead/", "!glasshead/studio/", "!glasshead/studio/static/**"] },
  js.configs.recommended,
  {
    files: ["glasshead/studio/static/**/*.js"],
    languageOptions: { ecmaVersion: 2024, sourceType: "module", globals: globals.browser },
    linterOptions: { reportUnusedDisableDirectives: "error" },
    rules: {
      curly: ["error", "multi-line"],
      eqeqeq: "error",
      "id-length": ["error", { min: 2, exceptions: LETTERS, properties: "never" }],
      "max-lines-per-function": ["error", { max: 60, skipBlankLines: true, skipComments: true }],
      "max-lines": ["error", { max: 400, skipBlankLines: true, skipComments: true }],
      complexity: ["error", 12],
      "max-depth": ["error", 3],
      "no-eval": "error",
      "no-implied-eval": "error",
      "no-shadow": ["error", { builtinGlobals: false }],
      "no-unused-expressions": "error",
      "no-var": "error",
      "object-shorthand": "error",
      "one-var": ["error", "never"],
      "prefer-const": "error",
      "prefer-template": "error",
    },
  },
];
