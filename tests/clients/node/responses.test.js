// The Responses API of the real `podium` binary, through the official `openai` package.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import OpenAI from "openai";

import { OPTIONS, PATIENCE_MS, Programs } from "./programs.js";

const QUESTION = "Write 123456 in words.";
const ANSWER = "one hundred and twenty-three thousand four hundred and fifty-six";
const model = "podium-mini";

const programs = new Programs();
let client;

before(async () => {
  client = new OpenAI({ baseURL: `${await programs.podium(await programs.vendor())}/v1`, ...OPTIONS });
});

after(() => programs.stop());

test("a response is created, retrieved and continued", async () => {
  const first = await client.responses.create({ model, input: QUESTION, instructions: "Be brief." });
  assert.deepEqual([first.status, first.output_text], ["completed", ANSWER]);
  const stored = await client.responses.retrieve(first.id);
  assert.equal(stored.output_text, ANSWER);
  const next = await client.responses.create({ model, input: QUESTION, previous_response_id: first.id });
  assert.deepEqual([next.previous_response_id, next.instructions], [first.id, null]);
  const items = await client.responses.inputItems.list(next.id);
  assert.deepEqual(
    items.data.map((item) => item.content[0].text),
    [QUESTION],
  );
});

test("a stream has the stored answer, and is resumed", async () => {
  const events = [];
  for await (const event of await client.responses.create({ model, input: QUESTION, stream: true })) events.push(event);
  assert.deepEqual(
    events.map((event) => event.sequence_number),
    events.map((_, index) => index),
  );
  const deltas = events.filter((event) => event.type === "response.output_text.delta");
  assert.equal(deltas.map((event) => event.delta).join(""), ANSWER);
  const { response } = events.at(-1);
  assert.deepEqual([events.at(-1).type, response.status], ["response.completed", "completed"]);
  const again = [];
  const query = { stream: true, starting_after: 4 };
  for await (const event of await client.responses.retrieve(response.id, query)) again.push(event);
  assert.deepEqual(again, events.slice(5));
});

test("a response in the background completes", async () => {
  let response = await client.responses.create({ model, input: QUESTION, background: true });
  assert.equal(response.status, "queued");
  for (const deadline = Date.now() + PATIENCE_MS; response.status !== "completed"; ) {
    assert.ok(Date.now() < deadline, response.status);
    response = await client.responses.retrieve(response.id);
  }
  assert.equal(response.output_text, ANSWER);
});

test("errors name the parameter", async () => {
  for (const [change, status, param] of [
    [{ temperature: 9 }, 400, "temperature"],
    [{ model: "gpt-5" }, 404, "model"],
    [{ previous_response_id: "resp_none" }, 400, "previous_response_id"],
  ]) {
    await assert.rejects(client.responses.create({ model, input: QUESTION, ...change }), (error) => {
      assert.deepEqual([error.status, error.param], [status, param]);
      return true;
    });
  }
  await assert.rejects(client.responses.retrieve("resp_none"), { status: 404 });
});
