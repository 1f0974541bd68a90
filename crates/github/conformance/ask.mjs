// Answers questions with GitHub's own packages: whether a body matches a webhook's schema, and signatures.
// The first argument is the directory of the packages. It reads a JSON array of questions from stdin and
// writes a JSON array of answers to stdout. Not here: the questions (`tests/conformance`).

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const home = join(process.argv[2], "node_modules");
const require = createRequire(join(home, "x.js"));
const methods = pathToFileURL(join(home, "@octokit/webhooks-methods/dist-node/index.js"));
const { sign, verify } = await import(methods);
const Ajv = require("ajv").default;
const ajv = new Ajv({ strict: false, allErrors: true });
require("ajv-formats").default(ajv);
ajv.addSchema(require("@octokit/webhooks-schemas/schema.json"), "webhooks");

const answers = {
  validate: ({ schema, body }) => {
    const check = ajv.getSchema(`webhooks#/definitions/${schema}`);
    return check(body) ? [] : check.errors.map((error) => `${error.instancePath} ${error.message}`);
  },
  sign: ({ secret, body }) => sign(secret, body),
  verify: ({ secret, body, signature }) => verify(secret, body, signature),
  examples: ({ server, event }) => {
    const all = require(`@octokit/webhooks-examples/${server}/index.json`);
    return all.find((entry) => entry.name === event)?.examples ?? [];
  },
};

const questions = JSON.parse(readFileSync(0, "utf8"));
const answered = await Promise.all(questions.map((question) => answers[question.ask](question)));
process.stdout.write(JSON.stringify(answered));
