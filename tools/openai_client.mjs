// The official OpenAI client for Node through a real gateway: chat, a stream, a stream left early, embeddings, models, errors.
// node openai_client.mjs BASE_URL FOLDER [MODEL...], where FOLDER/node_modules has `openai`; with models: only whether these are listed and found.
import { createRequire } from "node:module";

const [base, folder, ...expected] = process.argv.slice(2);
const require = createRequire(`${folder}/`);
const OpenAI = require("openai").OpenAI;
const client = new OpenAI({ baseURL: `${base}/v1`, apiKey: "sk-test", maxRetries: 0 });
const model = "tidegate-sim-8b";
const messages = [{ role: "user", content: "Where does the tide go?" }];

function check(what, fact) {
  if (!fact) {
    console.error(`openai client for Node: ${what}: FAILED`);
    process.exit(1);
  }
  console.log(`  ok  Node: ${what}`);
}

if (expected.length) {
  const listed = [];
  for await (const found of client.models.list()) listed.push(found.id);
  check("models of two engines in one list", listed.join() === expected.join());
  for (const name of expected) {
    const one = await client.models.retrieve(name);
    check(`one model, ${name}`, one.id === name && one.object === "model");
  }
  const missing = await client.models.retrieve("sim-smal").catch((error) => error);
  check("a model that nobody has is not found", missing instanceof OpenAI.NotFoundError && missing.code === "model_not_found");
  process.exit(0);
}

const answer = await client.chat.completions.create({ model, messages, max_tokens: 7 });
check("chat", answer.choices[0].message.content && answer.usage.completion_tokens === 7);

const stream = await client.chat.completions.create({
  model, messages, max_tokens: 9, stream: true, stream_options: { include_usage: true },
});
let words = 0, usage = null;
for await (const chunk of stream) {
  if (chunk.choices[0]?.delta.content) words += 1;
  usage = chunk.usage ?? usage;
}
check("chat, streaming", words === 9 && usage.completion_tokens === 9);

const long = await client.chat.completions.create({ model, messages, max_tokens: 4000, stream: true });
for await (const _ of long) break;
check("a stream left early", long.controller.signal.aborted);

const embeddings = await client.embeddings.create({ model, input: ["a", "b"] });
check("embeddings", embeddings.data.length === 2);
const models = [];
for await (const found of client.models.list()) models.push(found.id);
check("models", models.join() === model);

const failed = await client.chat.completions.create({ model, messages: [], max_tokens: -1 }).catch((error) => error);
check("errors arrive as the client's own exceptions", failed instanceof OpenAI.BadRequestError && failed.status === 400);
process.exit(0);
