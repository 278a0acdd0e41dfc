// Restate: calls the handler of `service.mjs` through the server's HTTP ingress, each run under an idempotency key of its own,
// which makes it durable and safe to repeat, as Podium's are. Prints one line of JSON.

import { execFileSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import { readFileSync, readdirSync } from "node:fs";
import { Agent, request } from "node:http";
import { createRequire } from "node:module";
import { parseArgs } from "node:util";

const CALL_MS_MAX = 60_000;
const WARM_UP_RUNS = 3;

const { values: options } = parseArgs({
  options: {
    runs: { type: "string" },
    "in-flight": { type: "string" },
    ingress: { type: "string" },
    server: { type: "string", multiple: true, default: [] },
  },
});
const [runs, inFlight] = [Number(options.runs), Number(options["in-flight"])];
const agent = new Agent({ keepAlive: true, maxSockets: inFlight });
const session = randomUUID();
const ticksPerSecond = Number(execFileSync("getconf", ["CLK_TCK"]));

function run(name, number) {
  return new Promise((resolve, reject) => {
    const body = JSON.stringify(number);
    const headers = {
      "content-type": "application/json",
      "content-length": Buffer.byteLength(body),
      "idempotency-key": `${session}-${name}`,
    };
    const call = request(`${options.ingress}/bench/threeSteps`, { method: "POST", agent, headers }, (answer) => {
      let text = "";
      answer.setEncoding("utf8").on("data", (part) => (text += part));
      answer.on("end", () => {
        if (answer.statusCode === 200 && Number(text) === number + 3) resolve();
        else reject(new Error(`run ${name} gave ${answer.statusCode} ${text}`));
      });
    });
    call.on("error", reject).setTimeout(CALL_MS_MAX, () => call.destroy(new Error(`run ${name} took too long`)));
    call.end(body);
  });
}

// CPU seconds of a process and all below it, those that have ended and were waited for included.
function cpuSeconds(root) {
  const processes = new Map();
  for (const name of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    try {
      const stat = readFileSync(`/proc/${name}/stat`, "utf8");
      const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ").map(Number);
      processes.set(Number(name), { parent: fields[1], ticks: fields[11] + fields[12] + fields[13] + fields[14] });
    } catch {
      // It has ended.
    }
  }
  let ticks = 0;
  for (const todo = [root]; todo.length > 0; ) {
    const id = todo.pop();
    ticks += processes.get(id)?.ticks ?? 0;
    for (const [child, { parent }] of processes) if (parent === id) todo.push(child);
  }
  return ticks / ticksPerSecond;
}

for (let number = 0; number < WARM_UP_RUNS; number++) await run(`warm-up-${number}`, number);
const servers = options.server.map((server) => server.split("="));
const pids = [["client", process.pid], ...servers.map(([name, pid]) => [name, Number(pid)])];
const cpuBefore = pids.map(([, pid]) => cpuSeconds(pid));
const times = [];
let next = 0;
const begun = performance.now();
await Promise.all(
  Array.from({ length: inFlight }, async () => {
    while (next < runs) {
      const number = next++;
      const runBegun = performance.now();
      await run(number, number);
      times.push(performance.now() - runBegun);
    }
  }),
);
const wallMs = performance.now() - begun;
const cpu = pids.map(([name, pid], at) => [name, ((cpuSeconds(pid) - cpuBefore[at]) * 1000) / runs]);
times.sort((a, b) => a - b);
const rounded = (value, digits) => Number(value.toFixed(digits));
const percentile = (share) => rounded(times[Math.min(times.length - 1, Math.floor(share * times.length))], 2);
const { dependencies } = createRequire(import.meta.url)("./package.json");
const line = {
  engine: `Restate ${dependencies["@restatedev/restate-server"]}, SDK ${dependencies["@restatedev/restate-sdk"]}`,
  runs,
  in_flight: inFlight,
  wall_s: rounded(wallMs / 1000, 3),
  per_s: rounded((runs * 1000) / wallMs, 1),
  p50_ms: percentile(0.5),
  p99_ms: percentile(0.99),
  cpu_ms_per_run: Object.fromEntries(cpu.map(([name, ms]) => [name, rounded(ms, 3)])),
};
console.log(JSON.stringify(line));
process.exit(0);
