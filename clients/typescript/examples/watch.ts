// Prints the events of a run. The watch resumes by itself after a lost connection; a program that was stopped continues after the
// last event that it printed.
//
//     node watch.ts http://127.0.0.1:8081 RUN_ID [AFTER_SEQUENCE]

import { PodiumClient } from "podium-client";

const [url, runId, after] = process.argv.slice(2);
if (!url || !runId) throw new Error("usage: watch.ts URL RUN_ID [AFTER_SEQUENCE]");
const client = new PodiumClient(url);
for await (const update of client.watch(runId, BigInt(after ?? 0))) {
  // Later versions of the server may have other kinds.
  if (update.case === "event") console.log(`${update.value.sequence} ${update.value.kind.case ?? "unknown"}`);
}
client.close();
