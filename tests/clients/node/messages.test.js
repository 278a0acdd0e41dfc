// The Messages API of the real `podium` binary, through Anthropic's own Node package.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import Anthropic from "@anthropic-ai/sdk";

import { OPTIONS, Programs } from "./programs.js";

const QUESTION = "Write 123456 in words.";
const ANSWER = "one hundred and twenty-three thousand four hundred and fifty-six";
const REQUEST = { model: "podium-ultra", max_tokens: 200, messages: [{ role: "user", content: QUESTION }] };

const programs = new Programs();
let client;

before(async () => {
  client = new Anthropic({ baseURL: await programs.podium(await programs.vendor()), ...OPTIONS });
});

after(() => programs.stop());

test("a question is answered by a message", async () => {
  const message = await client.messages.create(REQUEST);
  assert.deepEqual([message.type, message.role, message.stop_reason], ["message", "assistant", "end_turn"]);
  assert.equal(message.content[0].text, ANSWER);
  assert.ok(message.usage.input_tokens > 0 && message.usage.output_tokens > 0);
});

test("a streamed message is the plain one in pieces", async () => {
  const pieces = [];
  const stream = client.messages.stream(REQUEST).on("text", (text) => pieces.push(text));
  const message = await stream.finalMessage();
  assert.ok(pieces.length > 1);
  assert.equal(pieces.join(""), ANSWER);
  assert.deepEqual([message.content[0].text, message.stop_reason], [ANSWER, "end_turn"]);
  assert.ok(message.usage.output_tokens > 0);
});

test("tokens are counted and models listed", async () => {
  const { messages, model } = REQUEST;
  const count = await client.messages.countTokens({ model, messages });
  assert.ok(count.input_tokens > 0);
  const ids = [];
  for await (const found of client.models.list()) ids.push(found.id);
  assert.deepEqual(ids.slice(0, 2), ["podium-mini", "podium-ultra"]);
  assert.equal((await client.models.retrieve("podium-mini")).id, "podium-mini");
});

test("errors have the classes of the package", async () => {
  const unknown = { ...REQUEST, model: "claude-opus-5" };
  await assert.rejects(client.messages.create(unknown), (error) => {
    assert.ok(error instanceof Anthropic.NotFoundError);
    assert.equal(error.error.error.type, "not_found_error");
    assert.equal(error.error.request_id, error.requestID);
    return true;
  });
  await assert.rejects(client.messages.create({ ...REQUEST, max_tokens: 0 }), Anthropic.BadRequestError);
});
