// The Responses API of `podium`, through the official `openai` package. VENDOR_SIM_BIN names the simulator's binary; that of
// `podium` is named by PODIUM_BIN, or lies next to it.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, before, test } from "node:test";

import OpenAI from "openai";

const QUESTION = "Write 123456 in words.";
const ANSWER = "one hundred and twenty-three thousand four hundred and fifty-six";
const PATIENCE_MS = 60_000;
const model = "podium-mini";

const children = [];
// The binaries lie next to each other.
const podium = process.env.PODIUM_BIN ?? join(dirname(process.env.VENDOR_SIM_BIN ?? ""), "podium");
let client;

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
  assert.ok(binary, "VENDOR_SIM_BIN must name the simulator's binary");
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
  const [vendor, http, grpc] = [await freePort(), await freePort(), await freePort()];
  const simulator = ["--listen", `127.0.0.1:${vendor}`, "--token-ms", "2"];
  await start(process.env.VENDOR_SIM_BIN, simulator, `http://127.0.0.1:${vendor}/healthz`);
  const folder = mkdtempSync(join(tmpdir(), "podium-"));
  const demo = readFileSync(new URL("../../../pools/demo.toml", import.meta.url), "utf8");
  const pool = join(folder, "pool.toml");
  writeFileSync(pool, demo.replace(/base_url = "[^"]*"/, `base_url = "http://127.0.0.1:${vendor}/v1"`));
  const listen = ["--listen", `127.0.0.1:${http}`, "--grpc-listen", `127.0.0.1:${grpc}`];
  const data = ["--data", join(folder, "data"), "--pool", pool, "--conductor", "direct:sim-words"];
  await start(podium, ["serve", ...listen, ...data], `http://127.0.0.1:${http}/readyz`);
  client = new OpenAI({ baseURL: `http://127.0.0.1:${http}/v1`, apiKey: "none", maxRetries: 0 });
});

after(() => children.forEach((child) => child.kill()));

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
