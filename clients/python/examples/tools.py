"""Answers a question with a tool that this program executes, with asyncio.

    python tools.py http://127.0.0.1:8081 podium-ultra "How is the weather in Oslo?"
"""

import asyncio
import sys
from collections.abc import Iterable

from podium_client import (
    AsyncClient,
    Ended,
    ToolCalls,
    assistant_message,
    question,
    tool_result,
    tool_results_message,
)
from podium_client.v1 import podium_pb2, run_pb2

WEATHER = run_pb2.Tool(
    name="weather",
    description="The weather in a city.",
    parameters='{"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}',
)


def execute(calls: Iterable[run_pb2.ToolCall]) -> list[run_pb2.ToolResult]:
    """Executes calls. Arguments are the text that the model wrote: a real tool parses and checks them."""
    results = []
    for call in calls:
        print(f"{call.name}({call.arguments})")
        if call.name == "weather":
            results.append(tool_result(call, "4 degrees, rain"))
        else:
            results.append(tool_result(call, f"unknown tool `{call.name}`", is_error=True))
    return results


async def run(client: AsyncClient, request: podium_pb2.CreateRunRequest) -> run_pb2.Run:
    """One run. While it is suspended, executes its calls and submits the results."""
    async for part in await client.ask(request):
        match part:
            case ToolCalls(run_id, calls):
                await client.submit_tool_results(run_id, execute(calls))
            case Ended(run) if run.state == run_pb2.RUN_STATE_SUCCEEDED:
                return run
            case Ended(run):
                sys.exit(f"the run has no answer: {run.failure}")
    raise AssertionError("an answer ends with its run")


async def main() -> None:
    _, url, model, text = sys.argv
    request = question(text, model=model, tools=[WEATHER])
    async with AsyncClient(url) as client:
        while (ended := await run(client, request)).tool_calls:
            # A run of `podium-mini` ends with its calls. The next run continues the conversation.
            results = execute(ended.tool_calls)
            request.messages.append(assistant_message(ended.answer, ended.tool_calls))
            request.messages.append(tool_results_message(results))
        print(ended.answer)


if __name__ == "__main__":
    asyncio.run(main())
