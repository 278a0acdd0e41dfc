// Tool calls through Podium's Chat Completions, with the official `openai` package for Node. VENDOR_SIM_BIN names the simulator's
// binary; `podium` is next to it, or PODIUM_BIN names it.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, test } from "node:test";

import OpenAI from "openai";

const PATIENCE_MS = 60_000;
const ODD_ARGUMENTS = '{ "city":\t"Oslo" }';
const model = "podium-mini";

const started = [];
let folder, vendor, openai;

function freePort() {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.on("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}

async function start(binary, options, url) {
  const child = spawn(binary, options, { stdio: "ignore" });
  started.push(child);
  for (const deadline = Date.now() + PATIENCE_MS; ; ) {
    assert.equal(child.exitCode, null, `${binary} ended at once`);
    try {
      if ((await fetch(url)).ok) return;
    } catch (error) {
      if (Date.now() > deadline) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

before(async () => {
  const simulator = process.env.VENDOR_SIM_BIN;
  assert.ok(simulator, "VENDOR_SIM_BIN must name the simulator's binary");
  const podium = process.env.PODIUM_BIN ?? path.join(path.dirname(simulator), "podium");
  folder = await mkdtemp(path.join(tmpdir(), "podium-tools-"));
  const [vendorPort, http, grpc] = await Promise.all([freePort(), freePort(), freePort()]);
  vendor = `http://127.0.0.1:${vendorPort}`;
  await start(simulator, ["--listen", `127.0.0.1:${vendorPort}`, "--token-ms", "2"], `${vendor}/healthz`);
  const demo = await readFile(path.join(import.meta.dirname, "../../../pools/demo.toml"), "utf8");
  const pool = demo
    .replace(/base_url = "[^"]*"/, `base_url = "${vendor}/v1"`)
    .replace('model = "sim-words"', 'model = "sim-echo"\nfeatures = ["tools", "one_tool_call"]');
  await writeFile(path.join(folder, "pool.toml"), pool);
  const options = ["serve", "--listen", `127.0.0.1:${http}`, "--grpc-listen", `127.0.0.1:${grpc}`];
  options.push("--data", path.join(folder, "data"), "--pool", path.join(folder, "pool.toml"));
  await start(podium, [...options, "--conductor", "direct:sim-words"], `http://127.0.0.1:${http}/healthz`);
  openai = new OpenAI({ baseURL: `http://127.0.0.1:${http}/v1`, apiKey: "none", maxRetries: 0, timeout: PATIENCE_MS });
});

after(async () => {
  started.forEach((child) => child.kill());
  if (folder) await rm(folder, { recursive: true, force: true });
});

async function reply(replies) {
  const headers = { "content-type": "application/json" };
  const body = JSON.stringify({ token_ms: 2, replies });
  const answer = await fetch(`${vendor}/control/behaviour/sim-echo`, { method: "PUT", headers, body });
  assert.ok(answer.ok);
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
