// Answers a question with a tool that this program executes.
//
//     node tools.ts http://127.0.0.1:8081 podium-ultra "How is the weather in Oslo?"

import { assistantMessage, PodiumClient, question, toolResult, toolResultsMessage } from "podium-client";
import { RunState, type CreateRunRequest, type Run, type ToolCall, type ToolResult } from "podium-client/v1";

const weather = {
  name: "weather",
  description: "The weather in a city.",
  parameters: '{"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}',
};

/** Executes a call. Arguments are the text that the model wrote: a real tool parses and checks them. */
function execute(call: ToolCall): ToolResult {
  console.log(`${call.name}(${call.arguments})`);
  if (call.name === "weather") return toolResult(call, "4 degrees, rain");
  return toolResult(call, `unknown tool \`${call.name}\``, true);
}

/** One run. While it is suspended, executes its calls and submits the results. */
async function run(client: PodiumClient, request: CreateRunRequest): Promise<Run> {
  for await (const part of await client.ask(request)) {
    if (part.type === "toolCalls") await client.submitToolResults(part.runId, part.calls.map(execute));
    if (part.type === "ended") {
      if (part.run.state === RunState.SUCCEEDED) return part.run;
      throw new Error(`the run has no answer: ${part.run.failure?.message}`);
    }
  }
  throw new Error("the answer has no end");
}

const [url, model, text] = process.argv.slice(2);
if (!url || !model || !text) throw new Error("usage: tools.ts URL MODEL QUESTION");
const client = new PodiumClient(url);
const request = question(text, { model, tools: [weather] });
let ended = await run(client, request);
while (ended.toolCalls.length > 0) {
  // A run of `podium-mini` ends with its calls. The next run continues the conversation.
  request.messages.push(assistantMessage(ended.answer ?? "", ended.toolCalls));
  request.messages.push(toolResultsMessage(ended.toolCalls.map(execute)));
  ended = await run(client, request);
}
console.log(ended.answer);
client.close();
