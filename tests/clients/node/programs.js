// Starts the real programs on free loopback ports. VENDOR_SIM_BIN names the simulator's binary; PODIUM_BIN that of Podium, by
// default the one next to it.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";

/** Longest start of a program, and longest wait for an answer, in milliseconds. */
export const PATIENCE_MS = 60_000;
/** Options of the vendors' packages: no retries, which would hide an error. */
export const OPTIONS = { apiKey: "none", maxRetries: 0, timeout: PATIENCE_MS };

/** The programs of one test file. `stop` ends them and removes their files. */
export class Programs {
  #children = [];
  #folder;
  #podium;
  /** The URL of Podium's gRPC API. */
  grpc;

  /** Starts the simulated vendor and returns its URL. */
  async vendor() {
    const port = await freePort();
    const url = `http://127.0.0.1:${port}`;
    await this.#start(simulator(), ["--listen", `127.0.0.1:${port}`, "--token-ms", "2"], `${url}/healthz`);
    return url;
  }

  /** Starts Podium with the demonstration's pool over `vendor`, and returns its URL. `change` edits the text of the pool file. */
  async podium(vendor, change = (pool) => pool) {
    const [http, grpc] = [await freePort(), await freePort()];
    this.#folder = mkdtempSync(join(tmpdir(), "podium-"));
    const demo = readFileSync(join(import.meta.dirname, "../../../pools/demo.toml"), "utf8");
    const pool = join(this.#folder, "pool.toml");
    writeFileSync(pool, change(demo.replace(/base_url = "[^"]*"/, `base_url = "${vendor}/v1"`)));
    const listen = ["--listen", `127.0.0.1:${http}`, "--grpc-listen", `127.0.0.1:${grpc}`];
    const data = ["--data", join(this.#folder, "data"), "--pool", pool, "--conductor", "direct:sim-words"];
    const binary = process.env.PODIUM_BIN ?? join(dirname(simulator()), "podium");
    const url = `http://127.0.0.1:${http}`;
    this.grpc = `http://127.0.0.1:${grpc}`;
    this.#podium = [binary, ["serve", ...listen, ...data], `${url}/readyz`];
    await this.#start(...this.#podium);
    return url;
  }

  /** Kills Podium, and starts it again with the same addresses and data. */
  async killAndStartAgain() {
    const child = this.#children.pop();
    child.kill("SIGKILL");
    await once(child, "exit");
    await this.#start(...this.#podium);
  }

  stop() {
    for (const child of this.#children) child.kill();
    if (this.#folder) rmSync(this.#folder, { recursive: true, force: true });
  }

  async #start(binary, args, url) {
    const child = spawn(binary, args, { stdio: "ignore" });
    this.#children.push(child);
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
}

/** Sets how the simulated worker `sim-echo` behaves. */
export async function behave(vendor, behaviour) {
  const headers = { "content-type": "application/json" };
  const request = { method: "PUT", headers, body: JSON.stringify(behaviour) };
  const answer = await fetch(`${vendor}/control/behaviour/sim-echo`, request);
  assert.ok(answer.ok);
}

function simulator() {
  assert.ok(process.env.VENDOR_SIM_BIN, "VENDOR_SIM_BIN must name the simulator's binary");
  return process.env.VENDOR_SIM_BIN;
}

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
