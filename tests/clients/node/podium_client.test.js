// The published TypeScript client and its examples, with the real server, also while that is killed and started again.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { promisify } from "node:util";

import { CallError, Code, PodiumClient, question } from "podium-client";
import { RunState } from "podium-client/v1";

import { behave, PATIENCE_MS, Programs } from "./programs.js";

const EXAMPLES = join(import.meta.dirname, "../../../clients/typescript/examples");

const programs = new Programs();
let vendor, client;

before(async () => {
  vendor = await programs.vendor();
  const able = 'model = "sim-echo"\nfeatures = ["tools", "one_tool_call"]';
  await programs.podium(vendor, (pool) => pool.replace('model = "sim-words"', able));
  const retry = { backoffInitialMs: 10, backoffMaxMs: 50 };
  client = new PodiumClient(programs.grpc, { retry });
});

after(() => {
  client?.close();
  programs.stop();
});

/** The output of an example. */
async function example(name, ...args) {
  const run = promisify(execFile);
  return (await run(process.execPath, [join(EXAMPLES, name), programs.grpc, ...args], { timeout: PATIENCE_MS })).stdout;
}

async function sequences(runId) {
  const seen = [];
  for await (const update of client.watch(runId)) if (update.case === "event") seen.push(Number(update.value.sequence));
  return seen;
}

function countTo(last) {
  return Array.from({ length: Number(last) }, (_, index) => index + 1);
}

test("the example streams an answer", async () => {
  const run = await (await client.ask(question("blue light"))).run();
  assert.equal(await example("ask.ts", "blue light"), `${run.answer}\n`);
  const texts = [];
  for await (const part of client.answer(run.runId)) if (part.type === "text") texts.push(part.text);
  assert.equal(texts.join(""), run.answer);
});

for (const model of ["podium-mini", "podium-ultra"]) {
  test(`the example executes tools with ${model}`, async () => {
    const output = await example("tools.ts", model, "Ask weather.");
    assert.ok(output.startsWith("weather({") && output.endsWith("The tools gave: 4 degrees, rain\n"), output);
  });
}

test("the example watches from any event", async () => {
  const run = await (await client.ask(question("blue light"))).run();
  const lines = (await example("watch.ts", run.runId)).trim().split("\n");
  assert.deepEqual(lines.map((line) => Number.parseInt(line, 10)), countTo(run.sequence));
  assert.ok(lines.at(-1).endsWith(" succeeded"));
  assert.deepEqual((await example("watch.ts", run.runId, "3")).trim().split("\n"), lines.slice(3));
});

test("an error names the fields, and a repeated request id gives the same run", async () => {
  const invalid = client.create(question(" ", { policy: { stepsMax: 99 } }));
  await assert.rejects(invalid, (error) => {
    assert.ok(error instanceof CallError && error.code === Code.InvalidArgument);
    assert.deepEqual(error.fields.map((violation) => violation.field), ["messages", "policy.steps_max"]);
    return error.reason === "INVALID_VALUE";
  });
  const request = question("blue light", { requestId: "client-test-1" });
  const [first, second] = [await client.create(request), await client.create(request)];
  assert.deepEqual([first.existing, second.existing], [false, true]);
  assert.equal(first.run.runId, second.run.runId);
});

test("a watch survives a killed server", { timeout: 2 * PATIENCE_MS }, async () => {
  await behave(vendor, { token_ms: 2, faults: [{ fault: { kind: "hang" }, next_calls: 1 }] });
  const calls = async () => (await (await fetch(`${vendor}/control/calls`)).json()).calls.length;
  const before = await calls();
  const answer = await client.ask(question("blue light"));
  const [watched, ended] = [sequences(answer.runId), answer.run()];
  while ((await calls()) === before) await new Promise((resolve) => setTimeout(resolve, 20));
  await programs.killAndStartAgain();
  const run = await ended;
  assert.equal(run.state, RunState.SUCCEEDED);
  assert.deepEqual(await watched, countTo(run.sequence));
});

test("a cancelled run ends its answer", async () => {
  await behave(vendor, { token_ms: 2, faults: [{ fault: { kind: "hang" }, next_calls: 1 }] });
  const answer = await client.ask(question("blue light"));
  assert.equal((await client.cancel(answer.runId)).state, RunState.CANCELLED);
  assert.equal((await answer.run()).state, RunState.CANCELLED);
});
