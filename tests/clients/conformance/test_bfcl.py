"""The expected calls of the Berkeley Function Calling Leaderboard, from the package `bfcl-eval`, through Podium.

For each question the simulated worker makes the expected calls, and they must reach the client unchanged: the same tools in the
same order with the same arguments, through every API, streamed or not. So this tests Podium, not a language model. The package's
folder is named by BFCL; `make test-conformance` installs it without the packages that it needs for language models."""

import asyncio
import importlib.util
import json
import os
import pathlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass

import anthropic
import httpx
import openai
import pytest
from conftest import PATIENCE_S, Podium, roomy_pool, serve_pool

BFCL = pathlib.Path(os.environ.get("BFCL", "/nonexistent")) / "bfcl_eval"
CATEGORIES = ["simple_python", "simple_java", "simple_javascript", "multiple", "parallel", "parallel_multiple"]
CATEGORIES += ["live_simple", "live_multiple", "live_parallel", "live_parallel_multiple"]
CASES = 2501
# The simulator holds up to a thousand scripted replies.
BATCH = 500
AT_ONCE = 16


@dataclass
class Case:
    """A question with its tools, and the expected calls as names and arguments."""

    id: str
    messages: list[dict]
    tools: list[dict]
    calls: list[tuple[str, str]]

    @property
    def mark(self) -> str:
        """The text by which the simulator finds the reply: instructions that come before the question."""
        return f"This is question {self.id}."

    def system(self) -> str:
        return "\n".join([self.mark, *(message["content"] for message in self.messages if message["role"] == "system")])

    def turns(self) -> list[dict]:
        return [message for message in self.messages if message["role"] != "system"]

    def reply(self) -> dict:
        calls = [{"name": name, "arguments": arguments} for name, arguments in self.calls]
        return {"when": {"any_contains": self.mark}, "calls": calls}


def tool_name(name: str) -> str:
    """The leaderboard also writes `_` for `.`, which OpenAI does not accept in names."""
    return name.replace(".", "_")


def json_schema(schema: object, types: dict[str, str]) -> object:
    """The schema with the names of JSON Schema for the types of Python, Java and JavaScript."""
    if isinstance(schema, list):
        return [json_schema(one, types) for one in schema]
    if not isinstance(schema, dict):
        return schema
    changed = {key: json_schema(value, types) for key, value in schema.items()}
    if isinstance(schema.get("type"), str):
        changed["type"] = types.get(schema["type"], "string")
    return changed


def tool(function: dict, types: dict[str, str]) -> dict:
    parameters = json_schema(function["parameters"], types)
    return {"name": tool_name(function["name"]), "description": function["description"], "parameters": parameters}


def arguments(expected: dict) -> str:
    """The first of the accepted values of each parameter; an empty text means that it is left out."""
    chosen = {name: values[0] for name, values in expected.items() if values and values[0] != ""}
    return json.dumps(chosen, ensure_ascii=False)


def cases() -> Iterator[Case]:
    spec = importlib.util.spec_from_file_location("type_mappings", BFCL / "constants" / "type_mappings.py")
    assert spec and spec.loader, f"{BFCL} is missing: set BFCL to the folder that bfcl-eval is installed in"
    mappings = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(mappings)
    for category in CATEGORIES:
        questions = BFCL / "data" / f"BFCL_v4_{category}.json"
        answers = BFCL / "data" / "possible_answer" / questions.name
        for question, answer in zip(questions.open(), answers.open(), strict=True):
            question, answer = json.loads(question), json.loads(answer)
            assert question["id"] == answer["id"]
            tools = [tool(function, mappings.GORILLA_TO_OPENAPI) for function in question["function"]]
            calls = [(tool_name(name), arguments(call[name])) for call in answer["ground_truth"] for name in call]
            yield Case(question["id"], question["question"][0], tools, calls)


Asked = list[tuple[str, str]]


async def chat(client: openai.AsyncOpenAI, case: Case, stream: bool) -> Asked:
    tools = [{"type": "function", "function": tool} for tool in case.tools]
    messages = [{"role": "system", "content": case.system()}, *case.turns()]
    request = {"model": "podium-mini", "messages": messages, "tools": tools}
    if not stream:
        completion = await client.chat.completions.create(**request)
        assert completion.choices[0].finish_reason == "tool_calls"
        return [(call.function.name, call.function.arguments) for call in completion.choices[0].message.tool_calls]
    async with client.chat.completions.stream(**request) as events:
        completion = await events.get_final_completion()
    assert completion.choices[0].finish_reason == "tool_calls"
    return [(call.function.name, call.function.arguments) for call in completion.choices[0].message.tool_calls]


async def responses(client: openai.AsyncOpenAI, case: Case, stream: bool) -> Asked:
    tools = [{"type": "function", **tool, "strict": False} for tool in case.tools]
    request = {"model": "podium-mini", "instructions": case.system(), "input": case.turns(), "tools": tools, "store": False}
    if stream:
        async with client.responses.stream(**request) as events:
            response = await events.get_final_response()
    else:
        response = await client.responses.create(**request)
    return [(item.name, item.arguments) for item in response.output if item.type == "function_call"]


async def messages(client: anthropic.AsyncAnthropic, case: Case, stream: bool) -> Asked:
    names = {"name": "name", "description": "description", "parameters": "input_schema"}
    tools = [{names[key]: value for key, value in tool.items()} for tool in case.tools]
    request = {"model": "podium-mini", "max_tokens": 4000, "system": case.system(), "messages": case.turns(), "tools": tools}
    if stream:
        async with client.messages.stream(**request) as events:
            message = await events.get_final_message()
    else:
        message = await client.messages.create(**request)
    assert message.stop_reason == "tool_use"
    return [(block.name, json.dumps(block.input, ensure_ascii=False)) for block in message.content if block.type == "tool_use"]


@pytest.fixture(scope="module")
def roomy(tmp_path_factory: pytest.TempPathFactory, vendor: str) -> Iterator[Podium]:
    pool = roomy_pool(vendor, caller="sim-echo")
    process, server = serve_pool(tmp_path_factory.mktemp("bfcl"), vendor, "direct:caller", pool)
    try:
        yield server
    finally:
        process.stop()


@pytest.fixture
async def ask(request: pytest.FixtureRequest, roomy: Podium) -> AsyncIterator[Callable[[Case, bool], Awaitable[Asked]]]:
    limits = {"api_key": "none", "max_retries": 0, "timeout": PATIENCE_S}
    if request.param == "messages":
        async with anthropic.AsyncAnthropic(base_url=roomy.http, **limits) as client:
            yield lambda case, stream: messages(client, case, stream)
    else:
        api = {"chat": chat, "responses": responses}[request.param]
        async with openai.AsyncOpenAI(base_url=f"{roomy.http}/v1", **limits) as client:
            yield lambda case, stream: api(client, case, stream)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("ask", ["chat", "responses", "messages"], indirect=True)
async def test_expected_calls_arrive_unchanged(ask: Callable[[Case, bool], Awaitable[Asked]], roomy: Podium, stream: bool) -> None:
    every = list(cases())
    assert len(every) == CASES
    gate = asyncio.Semaphore(AT_ONCE)
    wrong = []

    async def check(case: Case) -> None:
        async with gate:
            try:
                asked = await ask(case, stream)
            except (openai.OpenAIError, anthropic.AnthropicError, AssertionError) as error:
                wrong.append(f"{case.id}: {error!r}")
                return
        if asked != case.calls:
            wrong.append(f"{case.id}: expected {case.calls}, got {asked}")

    for start in range(0, len(every), BATCH):
        batch = every[start : start + BATCH]
        behaviour = {"replies": [case.reply() for case in batch]}
        httpx.put(f"{roomy.vendor}/control/behaviour/sim-echo", json=behaviour, timeout=PATIENCE_S).raise_for_status()
        await asyncio.gather(*map(check, batch))
    assert not wrong, f"{len(wrong)} of {CASES} differ: " + "\n".join(wrong[:10])
