// The wire formats of `vendor-sim`, through the vendors' own Node packages.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import Anthropic from "@anthropic-ai/sdk";
import { ApiError, GoogleGenAI } from "@google/genai";
import OpenAI from "openai";

import { OPTIONS, PATIENCE_MS, Programs, behave } from "./programs.js";

const TEXT = "Žluťoučký kůň 🙂 早, twice.";
const ASK_TOOLS = "Ask weather and clock.";
const NAMES = ["weather", "clock"];
const SCHEMA = {
  type: "object",
  properties: { city: { type: "string" } },
  required: ["city"],
  additionalProperties: false,
};

const programs = new Programs();
let vendor, openai, anthropic, gemini;

before(async () => {
  vendor = await programs.vendor();
  openai = new OpenAI({ baseURL: `${vendor}/v1`, ...OPTIONS });
  anthropic = new Anthropic({ baseURL: vendor, ...OPTIONS });
  gemini = new GoogleGenAI({ apiKey: "none", httpOptions: { baseUrl: vendor, timeout: PATIENCE_MS } });
});

after(() => programs.stop());

function fail(fault) {
  return behave(vendor, { faults: [{ fault, next_calls: 1 }] });
}

const THROTTLED = { kind: "rate_limit", retry_after_s: 2 };

test("chat completions: text, stream, tools, errors", async () => {
  const model = "sim-echo";
  const messages = [{ role: "user", content: TEXT }];
  const whole = await openai.chat.completions.create({ model, messages });
  assert.equal(whole.choices[0].message.content, TEXT);

  const pieces = [];
  for await (const chunk of await openai.chat.completions.create({ model, messages, stream: true })) {
    pieces.push(chunk.choices[0]?.delta?.content ?? "");
  }
  assert.equal(pieces.join(""), TEXT);
  assert.ok(pieces.length > 3);

  const tools = NAMES.map((name) => ({ type: "function", function: { name, parameters: SCHEMA } }));
  const asked = [{ role: "user", content: ASK_TOOLS }];
  const runner = openai.chat.completions.stream({ model, messages: asked, tools });
  const { message, finish_reason } = (await runner.finalChatCompletion()).choices[0];
  assert.equal(finish_reason, "tool_calls");
  assert.deepEqual(message.tool_calls.map((call) => call.function.name), NAMES);
  assert.deepEqual(JSON.parse(message.tool_calls[1].function.arguments), { city: ASK_TOOLS });

  await fail(THROTTLED);
  await assert.rejects(openai.chat.completions.create({ model, messages }), OpenAI.RateLimitError);
  await assert.rejects(openai.chat.completions.create({ model: "none", messages }), OpenAI.NotFoundError);
});

test("responses: text, stream, tools, errors", async () => {
  const model = "sim-echo";
  const whole = await openai.responses.create({ model, input: TEXT });
  assert.equal(whole.output_text, TEXT);

  const stream = openai.responses.stream({ model, input: TEXT, reasoning: { effort: "low", summary: "auto" } });
  const deltas = [];
  for await (const event of stream) {
    if (event.type === "response.output_text.delta") deltas.push(event.delta);
  }
  assert.equal(deltas.join(""), TEXT);
  const final = await stream.finalResponse();
  assert.deepEqual(final.output.map((item) => item.type), ["reasoning", "message"]);

  const tools = NAMES.map((name) => ({ type: "function", name, parameters: SCHEMA, strict: true }));
  const asked = await openai.responses.create({ model, input: ASK_TOOLS, tools });
  assert.deepEqual(asked.output.map((item) => item.name), NAMES);
  const results = asked.output.map(({ call_id, name }) => ({ type: "function_call_output", call_id, output: name }));
  const input = [{ role: "user", content: ASK_TOOLS }, ...asked.output, ...results];
  const answer = await openai.responses.create({ model, input, tools });
  assert.equal(answer.output_text, "The tools gave: weather; clock");

  await fail(THROTTLED);
  await assert.rejects(openai.responses.create({ model, input: TEXT }), OpenAI.RateLimitError);
});

test("messages: text, stream with thinking, tools, errors", async () => {
  const base = { model: "sim-echo", max_tokens: 2048 };
  const messages = [{ role: "user", content: TEXT }];
  const whole = await anthropic.messages.create({ ...base, messages });
  assert.equal(whole.content[0].text, TEXT);

  const thinking = { type: "enabled", budget_tokens: 1024 };
  const stream = anthropic.messages.stream({ ...base, messages, thinking });
  let text = "";
  stream.on("text", (delta) => (text += delta));
  const final = await stream.finalMessage();
  assert.equal(text, TEXT);
  assert.deepEqual(final.content.map((block) => block.type), ["thinking", "text"]);

  const tools = NAMES.map((name) => ({ name, input_schema: SCHEMA }));
  const asked = [{ role: "user", content: ASK_TOOLS }];
  const called = await anthropic.messages.stream({ ...base, messages: asked, tools }).finalMessage();
  assert.equal(called.stop_reason, "tool_use");
  assert.deepEqual(called.content.map((block) => block.input), [{ city: ASK_TOOLS }, { city: ASK_TOOLS }]);
  const content = called.content.map(({ id, name }) => ({ type: "tool_result", tool_use_id: id, content: name }));
  const turns = [...asked, { role: "assistant", content: called.content }, { role: "user", content }];
  const answer = await anthropic.messages.create({ ...base, messages: turns, tools });
  assert.equal(answer.content[0].text, "The tools gave: weather; clock");

  await fail(THROTTLED);
  await assert.rejects(anthropic.messages.create({ ...base, messages }), Anthropic.RateLimitError);
  await fail({ kind: "overloaded" });
  await assert.rejects(anthropic.messages.create({ ...base, messages }), { status: 529 });
});

test("gemini: text, stream with thoughts, tools, errors", async () => {
  const model = "sim-echo";
  const whole = await gemini.models.generateContent({ model, contents: TEXT });
  assert.equal(whole.text, TEXT);

  const config = { thinkingConfig: { includeThoughts: true } };
  let text = "";
  let thoughts = "";
  for await (const chunk of await gemini.models.generateContentStream({ model, contents: TEXT, config })) {
    for (const part of chunk.candidates[0].content.parts) {
      if (part.thought) thoughts += part.text;
      else text += part.text;
    }
  }
  assert.equal(text, TEXT);
  assert.match(thoughts, /^This is a simulation/);

  const functionDeclarations = NAMES.map((name) => ({ name, parametersJsonSchema: SCHEMA }));
  const tools = { tools: [{ functionDeclarations }] };
  const asked = { role: "user", parts: [{ text: ASK_TOOLS }] };
  const called = await gemini.models.generateContent({ model, contents: [asked], config: tools });
  assert.deepEqual(called.functionCalls.map(({ name, args }) => [name, args.city]), [
    ["weather", ASK_TOOLS],
    ["clock", ASK_TOOLS],
  ]);
  const parts = NAMES.map((name) => ({ functionResponse: { name, response: { output: name } } }));
  const contents = [asked, called.candidates[0].content, { role: "user", parts }];
  const answer = await gemini.models.generateContent({ model, contents, config: tools });
  assert.equal(answer.text, "The tools gave: weather; clock");

  await fail(THROTTLED);
  await assert.rejects(gemini.models.generateContent({ model, contents: TEXT }), (error) => {
    assert.ok(error instanceof ApiError);
    return error.status === 429;
  });
});
