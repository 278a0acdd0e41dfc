// The AI SDK of Vercel over Podium's three APIs, each through the SDK's own provider packages.

import assert from "node:assert/strict";
import { after, before, beforeEach, describe, test } from "node:test";

import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenResponses } from "@ai-sdk/open-responses";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { Output, ToolLoopAgent, generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";

import { Programs, behave } from "./programs.js";

// The SDK warns that it does not know the limits of Podium's models.
globalThis.AI_SDK_LOG_WARNINGS = false;

const QUESTION = "How warm is it in Oslo and in Rome?";
const ANSWER = "Rome is warmer than Oslo, by far.";
const REPLIES = [
  {
    when: { last: "user", last_contains: QUESTION },
    text: "I look.",
    calls: [
      { name: "weather", arguments: { city: "Oslo" } },
      { name: "weather", arguments: { city: "Rome" } },
    ],
  },
  { when: { last: "tool", last_contains: "Oslo: 5" }, text: ANSWER },
];
// A PNG of one pixel.
const PNG =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const ABLE = `model = "sim-echo"
modalities = ["text", "image", "pdf"]
features = ["temperature", "top_p", "stop", "seed", "tools", "one_tool_call", "json_object", "json_schema"]`;

const PROVIDERS = {
  "openai, Responses": (url) => createOpenAI({ baseURL: `${url}/v1`, apiKey: "none" }).responses,
  "openai, Chat Completions": (url) => createOpenAI({ baseURL: `${url}/v1`, apiKey: "none" }).chat,
  "openai-compatible": (url) =>
    createOpenAICompatible({ name: "podium", baseURL: `${url}/v1`, includeUsage: true, supportsStructuredOutputs: true }),
  anthropic: (url) => createAnthropic({ baseURL: `${url}/v1`, apiKey: "none" }),
  "open-responses": (url) => createOpenResponses({ name: "podium", url: `${url}/v1/responses` }),
};

const CITY = jsonSchema({
  type: "object",
  properties: { city: { type: "string" }, inhabitants: { type: "integer" } },
  required: ["city", "inhabitants"],
  additionalProperties: false,
});

function weather(called) {
  return tool({
    description: "The weather of a city.",
    inputSchema: jsonSchema({ type: "object", properties: { city: { type: "string" } }, required: ["city"] }),
    execute: ({ city }) => {
      called.push(city);
      return `${city}: ${city.length + 1} degrees`;
    },
  });
}

const programs = new Programs();
let vendor, podium;

before(async () => {
  vendor = await programs.vendor();
  podium = await programs.podium(vendor, (pool) => pool.replace('model = "sim-words"', ABLE));
});

beforeEach(() => behave(vendor, { token_ms: 2, replies: REPLIES }));

after(() => programs.stop());

for (const [name, provider] of Object.entries(PROVIDERS)) {
  describe(name, () => {
    const options = (more) => ({ model: provider(podium)("podium-mini"), maxRetries: 0, ...more });
    const stopWhen = stepCountIs(5);

    test("a text is generated", async () => {
      const result = await generateText(
        options({ instructions: "Be brief.", prompt: "Hello there", temperature: 0.3, maxOutputTokens: 1000 }),
      );
      assert.equal(result.text, "Hello there");
      assert.equal(result.finishReason, "stop");
      assert.ok(result.usage.inputTokens > 0 && result.usage.outputTokens > 0);
      assert.deepEqual(result.warnings ?? [], []);
    });

    test("a text is streamed", async () => {
      const result = streamText(options({ prompt: "One two three four five" }));
      const pieces = [];
      for await (const piece of result.textStream) pieces.push(piece);
      assert.ok(pieces.length > 1);
      assert.equal(pieces.join(""), "One two three four five");
      assert.equal(await result.finishReason, "stop");
      const usage = await result.usage;
      assert.ok(usage.inputTokens > 0 && usage.outputTokens > 0);
    });

    test("an answer that is too long ends by its length", async () => {
      const result = await generateText(options({ prompt: "One two three four five", maxOutputTokens: 2 }));
      assert.equal(result.finishReason, "length");
      assert.equal(result.text, "One two ");
    });

    test("two tools are called at once, and their results are used", async () => {
      const called = [];
      const result = await generateText(options({ prompt: QUESTION, tools: { weather: weather(called) }, stopWhen }));
      assert.equal(result.text, ANSWER);
      assert.deepEqual(called, ["Oslo", "Rome"]);
      assert.deepEqual(
        result.steps.map((step) => step.finishReason),
        ["tool-calls", "stop"],
      );
    });

    test("a streamed agent calls tools", async () => {
      const called = [];
      const agent = new ToolLoopAgent({ ...options({}), tools: { weather: weather(called) }, stopWhen });
      const result = await agent.stream({ prompt: QUESTION });
      const kinds = [];
      let text = "";
      for await (const part of result.fullStream) {
        if (part.type === "error") throw part.error;
        kinds.push(part.type);
        if (part.type === "text-delta") text += part.text;
      }
      assert.equal(text, `I look.${ANSWER}`);
      assert.deepEqual(called.sort(), ["Oslo", "Rome"]);
      assert.equal(kinds.filter((kind) => kind === "tool-result").length, 2);
    });

    test("a tool can be required by its name", async () => {
      const toolChoice = { type: "tool", toolName: "weather" };
      const result = await generateText(options({ prompt: "Madrid", tools: { weather: weather([]) }, toolChoice }));
      assert.deepEqual(
        result.toolCalls.map((call) => call.input),
        [{ city: "Madrid" }],
      );
      assert.equal(result.finishReason, "tool-calls");
    });

    test("an object is generated by its schema", async () => {
      const output = Output.object({ schema: CITY });
      const whole = await generateText(options({ prompt: "Lisbon", output }));
      assert.deepEqual(whole.output, { city: "Lisbon", inhabitants: 1 });
      const streamed = streamText(options({ prompt: "Lisbon", output }));
      let last;
      for await (const partial of streamed.partialOutputStream) last = partial;
      assert.deepEqual(last, { city: "Lisbon", inhabitants: 1 });
    });

    test("an image is read", async () => {
      const content = [
        { type: "text", text: "What is this?" },
        { type: "file", data: PNG, mediaType: "image/png" },
      ];
      const result = await generateText(options({ messages: [{ role: "user", content }] }));
      assert.match(result.text, /What is this\?/);
    });

    test("a PDF is read", async () => {
      const content = [
        { type: "text", text: "What is this?" },
        { type: "file", data: Buffer.from("%PDF-1.4").toString("base64"), filename: "a.pdf", mediaType: "application/pdf" },
      ];
      const result = await generateText(options({ messages: [{ role: "user", content }] }));
      assert.match(result.text, /What is this\?[^]*\[pdf a\.pdf data:application\/pdf;base64,JVBERi0xLjQ=\]/);
    });

    test("a conversation is continued", async () => {
      const messages = [{ role: "user", content: QUESTION }];
      const first = await generateText(options({ messages, tools: { weather: weather([]) }, stopWhen }));
      const next = { role: "user", content: "And tomorrow?" };
      const conversation = [...messages, ...first.responseMessages, next];
      const second = await generateText(options({ messages: conversation, tools: { weather: weather([]) } }));
      assert.equal(second.text, "And tomorrow?");
    });

    test("an unknown model is refused by the server's words", async () => {
      const model = provider(podium)("gpt-9");
      await assert.rejects(generateText({ model, prompt: "x", maxRetries: 0 }), (error) => {
        assert.equal(error.statusCode, 404);
        assert.match(error.message, /gpt-9/);
        return true;
      });
    });
  });
}
