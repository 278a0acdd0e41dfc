// The client with a scripted server: retries, resumed watches, deadlines, errors, TLS.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import http2 from "node:http2";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import { Code, ConnectError } from "@connectrpc/connect";
import { connectNodeAdapter } from "@connectrpc/connect-node";
import { CallError, PodiumClient, question } from "podium-client";
import { PodiumService, RunState } from "podium-client/v1";

import { BadRequestSchema, ErrorInfoSchema, RetryInfoSchema } from "../dist/generated/google/rpc/error_details_pb.js";

const QUICK = { backoffInitialMs: 1, backoffMaxMs: 5 };

/** A server that does as a test says, and the record of its calls. */
class Scripted {
  failures = [];
  watches = [];
  run = { runId: "run" };
  isSilent = false;
  requestIds = [];
  keys = [];
  watchedAfter = [];
  filters = [];
  #server;
  #sessions = new Set();

  async start(tls) {
    const routes = (router) =>
      router.service(PodiumService, {
        createRun: async (request, context) => {
          this.requestIds.push(request.requestId);
          this.keys.push(context.requestHeader.get("authorization"));
          if (this.isSilent) await new Promise((resolve) => context.signal.addEventListener("abort", resolve));
          const failure = this.failures.shift();
          if (failure) throw failure;
          return { run: { runId: "run", requestId: request.requestId } };
        },
        getRun: () => ({ run: this.run }),
        listRuns: ({ pageToken, filter }) => {
          this.filters.push(filter);
          return pageToken ? { runs: [{ runId: "a" }] } : { runs: [{ runId: "c" }, { runId: "b" }], nextPageToken: "second" };
        },
        watchRun: async function* (request) {
          this.watchedAfter.push(request.afterSequence);
          const { updates, end } = this.watches.shift();
          for (const update of updates) yield { update };
          if (end) throw end;
        }.bind(this),
      });
    const handler = connectNodeAdapter({ routes });
    this.#server = tls ? http2.createSecureServer(tls, handler) : http2.createServer(handler);
    this.#server.on("session", (session) => {
      session.on("error", () => {});
      this.#sessions.add(session);
    });
    await new Promise((resolve) => this.#server.listen(0, "localhost", resolve));
    return `${tls ? "https" : "http"}://localhost:${this.#server.address().port}`;
  }

  stop() {
    for (const session of this.#sessions) session.destroy();
    this.#server.close();
  }
}

/** Runs a test with a scripted server and a client. */
function scripted(name, options, body) {
  test(name, { timeout: 60_000 }, async () => {
    const server = new Scripted();
    const client = new PodiumClient(await server.start(), { retry: QUICK, ...options });
    try {
      await body(server, client);
    } finally {
      client.close();
      server.stop();
    }
  });
}

function event(sequence, kind = {}) {
  return { case: "event", value: { sequence: BigInt(sequence), kind } };
}

function text(offset, written) {
  return { case: "stepText", value: { attempt: 1, offset: BigInt(offset), text: written, isAnswer: true } };
}

const succeeded = { case: "succeeded", value: {} };

function unavailable(...details) {
  return new ConnectError("busy", Code.Unavailable, undefined, details);
}

async function failure(call) {
  try {
    await call;
  } catch (error) {
    assert.ok(error instanceof CallError, String(error));
    return error;
  }
  assert.fail("the call did not fail");
}

scripted("only transient errors are repeated, with the same request id", { apiKey: "sk-1" }, async (server, client) => {
  server.failures.push(unavailable(), new ConnectError("conflict", Code.Aborted));
  await client.create(question("Why?"));
  assert.equal(server.requestIds.length, 3);
  assert.ok(server.requestIds[0]);
  assert.equal(new Set(server.requestIds).size, 1);
  assert.deepEqual(new Set(server.keys), new Set(["Bearer sk-1"]));
  server.failures.push(new ConnectError("no budget", Code.ResourceExhausted));
  assert.equal((await failure(client.create(question("Why?")))).code, Code.ResourceExhausted);
  assert.equal(server.requestIds.length, 4);
  server.failures.push(...Array.from({ length: 5 }, () => unavailable()));
  assert.equal((await failure(client.create(question("Why?")))).code, Code.Unavailable);
  assert.equal(server.requestIds.length, 9);
});

scripted("a limit is waited for if it passes soon", { deadlineMs: 0 }, async (server, client) => {
  const limited = (seconds, nanos) => {
    const detail = { desc: RetryInfoSchema, value: { retryDelay: { seconds: BigInt(seconds), nanos } } };
    return new ConnectError("full", Code.ResourceExhausted, undefined, [detail]);
  };
  server.failures.push(limited(0, 10_000_000));
  await client.create(question("Why?"));
  assert.equal(server.requestIds.length, 2);
  server.failures.push(limited(61, 0));
  assert.equal((await failure(client.create(question("Why?")))).code, Code.ResourceExhausted);
  assert.equal(server.requestIds.length, 3);
});

function later(seconds, nanos) {
  return unavailable({ desc: RetryInfoSchema, value: { retryDelay: { seconds: BigInt(seconds), nanos } } });
}

scripted("a pause that the server asks for is kept", {}, async (server, client) => {
  server.failures.push(later(0, 300_000_000));
  const begin = performance.now();
  await client.create(question("Why?"));
  // Timers of Node may be a millisecond early.
  assert.ok(performance.now() - begin >= 299);
});

scripted("a pause that is longer than the deadline is not waited for", {}, async (server, client) => {
  server.failures.push(later(3600, 0));
  const error = await failure(client.create(question("Why?")));
  assert.deepEqual([error.code, error.retryDelayMs], [Code.Unavailable, 3_600_000]);
});

scripted("a deadline ends a call that has no answer", { deadlineMs: 200 }, async (server, client) => {
  server.isSilent = true;
  assert.equal((await failure(client.create(question("Why?")))).code, Code.DeadlineExceeded);
  assert.equal(server.requestIds.length, 1);
});

scripted("an error has the field, the reason and the cause", {}, async (server, client) => {
  const info = { desc: ErrorInfoSchema, value: { reason: "INVALID_VALUE", domain: "podium" } };
  const fieldViolations = [{ field: "policy.steps_max", description: "must be at most 16" }];
  const details = [info, { desc: BadRequestSchema, value: { fieldViolations } }];
  server.failures.push(new ConnectError("steps_max is 99", Code.InvalidArgument, undefined, details));
  const error = await failure(client.create(question("Why?")));
  assert.deepEqual([error.method, error.code, error.reason], ["CreateRun", Code.InvalidArgument, "INVALID_VALUE"]);
  assert.deepEqual(error.fields, fieldViolations);
  assert.ok(error.cause instanceof ConnectError);
});

scripted("a broken watch has no gap and no repetition", {}, async (server, client) => {
  server.watches.push(
    { updates: [event(1), text(0, "blue "), event(2)], end: unavailable() },
    // A server that repeats what the caller has.
    {
      updates: [event(1), event(2), text(0, "blue "), text(0, "blue light"), event(3)],
      end: new ConnectError("reset", Code.Unknown),
    },
    // A gap.
    { updates: [event(5)] },
    { updates: [event(4), text(10, "!"), event(5, succeeded)] },
  );
  const [sequences, written] = [[], []];
  const watch = client.watch("run");
  for await (const update of watch) {
    if (update.case === "event") sequences.push(update.value.sequence);
    if (update.case === "stepText") written.push(update.value.text);
  }
  assert.deepEqual(sequences, [1n, 2n, 3n, 4n, 5n]);
  assert.equal(written.join(""), "blue light!");
  assert.deepEqual(server.watchedAfter, [0n, 2n, 3n, 3n]);
  assert.equal(watch.sequence, 5n);
});

scripted("an answer is complete although text was lost", {}, async (server, client) => {
  server.run = { runId: "run", state: RunState.SUCCEEDED, sequence: 2n, answer: "blue light scatters" };
  server.watches.push(
    { updates: [event(1), text(0, "blue ")], end: unavailable() },
    { updates: [text(11, "scatters"), event(2, succeeded)] },
  );
  const parts = [];
  for await (const part of await client.ask(question("Why is the sky blue?"))) parts.push(part);
  assert.ok(parts.every((part) => part.type !== "restarted"));
  const texts = parts.filter((part) => part.type === "text").map((part) => part.text);
  assert.equal(texts.join(""), "blue light scatters");
  assert.equal(parts.at(-1).run.answer, "blue light scatters");
});

scripted("a watch gives up after its time", { retry: { ...QUICK, resumeWithinMs: 50 } }, async (server, client) => {
  server.watches.push(...Array.from({ length: 200 }, () => ({ updates: [], end: unavailable() })));
  const read = async () => {
    for await (const _ of client.watch("run"));
  };
  assert.equal((await failure(read())).code, Code.Unavailable);
  assert.ok(server.watchedAfter.length < 200);
});

scripted("a signal ends a watch", {}, async (server, client) => {
  server.watches.push({ updates: [event(1), event(2)] });
  const abort = new AbortController();
  await assert.rejects(async () => {
    for await (const _ of client.watch("run", 0n, abort.signal)) abort.abort();
  }, { name: "AbortError" });
  assert.equal(server.watchedAfter.length, 1);
});

scripted("a list reads all pages", {}, async (server, client) => {
  const ids = [];
  for await (const run of client.list()) ids.push(run.runId);
  assert.deepEqual(ids, ["c", "b", "a"]);
  for await (const _ of client.list(undefined, "tier = mini"));
  assert.deepEqual(server.filters, ["", "", "tier = mini", "tier = mini"]);
});

test("a private authority is trusted, and the client has a certificate", { timeout: 60_000 }, async () => {
  const folder = mkdtempSync(join(tmpdir(), "podium-"));
  const server = new Scripted();
  const clients = [];
  try {
    const { root, own, caller } = certificates(folder);
    const url = await server.start({ ...own, ca: root, requestCert: true, rejectUnauthorized: true });
    const get = (tls) => {
      clients.push(new PodiumClient(url, { retry: QUICK, ...(tls && { tls }) }));
      return clients.at(-1).get("run");
    };
    assert.equal((await get({ ca: root, ...caller })).runId, "run");
    assert.ok((await failure(get({ ca: root }))).isTransient);
    await failure(get());
  } finally {
    for (const client of clients) client.close();
    server.stop();
    rmSync(folder, { recursive: true });
  }
  assert.throws(() => new PodiumClient("http://localhost:1", { tls: {} }), /must begin with https/);
});

/** The certificate of an authority, and certificate and key of a server and of a client. */
function certificates(folder) {
  const openssl = (...args) => execFileSync("openssl", args, { cwd: folder, stdio: "ignore" });
  const curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
  openssl("req", "-x509", ...curve, "-keyout", "root.key", "-out", "root.pem", "-subj", "/CN=an authority of a test");
  writeFileSync(join(folder, "names"), "subjectAltName=DNS:localhost");
  const read = (name) => readFileSync(join(folder, name));
  const issue = (name) => {
    openssl("req", ...curve, "-keyout", `${name}.key`, "-out", `${name}.csr`, "-subj", `/CN=${name}`);
    const sign = ["-CA", "root.pem", "-CAkey", "root.key", "-extfile", "names", "-CAcreateserial"];
    openssl("x509", "-req", "-in", `${name}.csr`, ...sign, "-out", `${name}.pem`);
    return { cert: read(`${name}.pem`), key: read(`${name}.key`) };
  };
  return { root: read("root.pem"), own: issue("server"), caller: issue("caller") };
}
