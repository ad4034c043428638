// node answers.mjs MODULE REQUEST: opens an artifact and prints what it answers to the request, as JSON.
import { readFile } from "node:fs/promises";

const [, , module, path] = process.argv;
const { open } = await import(module);
const { url, inputs, texts, options } = JSON.parse(await readFile(path, "utf8"));
const steps = [];
try {
  const model = await open(url, { onProgress: (step) => steps.push(step) });
  const found = { facts: model.facts, progress: steps.at(-1) };
  if (inputs) {
    found.answers = await model.predict(inputs);
    found.alone = await model.predict(inputs[0]);
  }
  if (texts) found.vectors = (await model.encode(texts, options)).map((vector) => [...vector]);
  model.close();
  console.log(JSON.stringify(found));
} catch (error) {
  console.log(JSON.stringify({ error: String(error), isError: error instanceof Error }));
}
