// The Messages API of the real `podium` binary, through Anthropic's own Node package.
// VENDOR_SIM_BIN names the simulator's binary; PODIUM_BIN that of Podium, by default the one next to it.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, before, test } from "node:test";

import Anthropic from "@anthropic-ai/sdk";

const PATIENCE_MS = 60_000;
const ROOT = join(import.meta.dirname, "../../..");
const QUESTION = "Write 123456 in words.";
const ANSWER = "one hundred and twenty-three thousand four hundred and fifty-six";
const REQUEST = { model: "podium-ultra", max_tokens: 200, messages: [{ role: "user", content: QUESTION }] };

const children = [];
let folder, client;

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

async function start(binary, args, url) {
  const child = spawn(binary, args, { stdio: "ignore" });
  children.push(child);
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
  const [simulator, podium] = [process.env.VENDOR_SIM_BIN, process.env.PODIUM_BIN];
  assert.ok(simulator, "VENDOR_SIM_BIN must name the simulator's binary");
  const [vendorPort, httpPort, grpcPort] = [await freePort(), await freePort(), await freePort()];
  const vendor = `http://127.0.0.1:${vendorPort}`;
  await start(simulator, ["--listen", `127.0.0.1:${vendorPort}`, "--token-ms", "2"], `${vendor}/healthz`);
  folder = mkdtempSync(join(tmpdir(), "podium-"));
  const pool = readFileSync(join(ROOT, "pools/demo.toml"), "utf8");
  writeFileSync(join(folder, "pool.toml"), pool.replace(/base_url = "[^"]*"/, `base_url = "${vendor}/v1"`));
  const http = `http://127.0.0.1:${httpPort}`;
  const args = ["serve", "--listen", `127.0.0.1:${httpPort}`, "--grpc-listen", `127.0.0.1:${grpcPort}`];
  args.push("--data", join(folder, "data"), "--pool", join(folder, "pool.toml"), "--conductor", "direct:sim-words");
  await start(podium ?? join(dirname(simulator), "podium"), args, `${http}/readyz`);
  client = new Anthropic({ baseURL: http, apiKey: "none", maxRetries: 0, timeout: PATIENCE_MS });
});

after(() => {
  for (const child of children) child.kill();
  if (folder) rmSync(folder, { recursive: true, force: true });
});

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
