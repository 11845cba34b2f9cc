// The files are parts of modules: what one declares, others use, which tsc checks; here a file is looked at alone.
import js from "@eslint/js";

export default [
  js.configs.recommended,
  {
    languageOptions: { ecmaVersion: 2022, sourceType: "module" },
    rules: {
      "no-undef": "off",
      "no-unused-vars": ["error", { vars: "local", args: "after-used" }],
      eqeqeq: "error",
      "no-var": "error",
      "prefer-const": "error",
    },
  },
  // Parts stand in front of others in one module: their names are used there.
  { files: ["js/{common,commands,page,picture,stage}.js"], languageOptions: { sourceType: "script" } },
];
