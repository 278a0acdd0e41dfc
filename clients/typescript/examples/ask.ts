// Asks a question and prints the answer as it is written.
//
//     node ask.ts http://127.0.0.1:8081 "Why is the sky blue?"
//
// PODIUM_API_KEY is the key, if the server asks for one.

import { PodiumClient, question } from "podium-client";
import { RunState } from "podium-client/v1";

const [url, text] = process.argv.slice(2);
if (!url || !text) throw new Error("usage: ask.ts URL QUESTION");
const apiKey = process.env["PODIUM_API_KEY"];
const client = new PodiumClient(url, apiKey ? { apiKey } : {});
for await (const part of await client.ask(question(text))) {
  if (part.type === "text") process.stdout.write(part.text);
  if (part.type === "restarted") console.log("\n--- the answer begins again ---");
  if (part.type === "ended") {
    if (part.run.state !== RunState.SUCCEEDED) throw new Error(`the run has no answer: ${part.run.failure?.message}`);
    console.log();
  }
}
client.close();
