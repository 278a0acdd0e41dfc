// Tool calls through Podium's Chat Completions, with the official `openai` package.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import OpenAI from "openai";

import { OPTIONS, Programs, behave } from "./programs.js";

const ODD_ARGUMENTS = '{ "city":\t"Oslo" }';
const model = "podium-mini";

const programs = new Programs();
let vendor, openai;

before(async () => {
  vendor = await programs.vendor();
  const able = 'model = "sim-echo"\nfeatures = ["tools", "one_tool_call"]';
  const podium = await programs.podium(vendor, (pool) => pool.replace('model = "sim-words"', able));
  openai = new OpenAI({ baseURL: `${podium}/v1`, ...OPTIONS });
});

after(() => programs.stop());

function reply(replies) {
  return behave(vendor, { token_ms: 2, replies });
}

const PARAMETERS = { type: "object", properties: { city: { type: "string" } } };

function runnable(name, called) {
  const parse = JSON.parse;
  const call = (args) => {
    called.push([name, args]);
    return `${name} is fine`;
  };
  return { type: "function", function: { name, description: `The ${name}.`, parameters: PARAMETERS, parse, function: call } };
}

for (const stream of [false, true]) {
  test(`the package's own tool loop completes, ${stream ? "streamed" : "whole"}`, async () => {
    await reply([
      { when: { assistant_turns: 0 }, text: "I look.", calls: [{ name: "weather", arguments: ODD_ARGUMENTS }, { name: "clock" }] },
      { when: { last: "tool", assistant_turns: 1 }, calls: [{ name: "clock", arguments: '{"city": "Rome"}' }] },
      { when: { last: "tool", last_contains: "clock is fine" }, text: "All is fine." },
    ]);
    const called = [];
    const tools = [runnable("weather", called), runnable("clock", called)];
    const messages = [{ role: "user", content: "How is it?" }];
    const runner = openai.chat.completions.runTools({ model, messages, tools, stream });
    assert.equal(await runner.finalContent(), "All is fine.");
    assert.deepEqual(called, [["weather", { city: "Oslo" }], ["clock", {}], ["clock", { city: "Rome" }]]);
    const calls = runner.messages.flatMap((message) => message.tool_calls ?? []);
    assert.equal(new Set(calls.map((call) => call.id)).size, 3);
    assert.equal(calls[0].function.arguments, ODD_ARGUMENTS);
  });
}

test("an error names the parameter", async () => {
  const tools = [{ type: "function", function: { name: "a b" } }];
  const asked = openai.chat.completions.create({ model, messages: [{ role: "user", content: "x" }], tools });
  await assert.rejects(asked, (error) => error instanceof OpenAI.BadRequestError && error.param === "tools[0].function.name");
});
