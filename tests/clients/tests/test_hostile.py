"""Hostile requests: each API answers hundreds of them with the right status and an error that names the field. None is answered
with 500, none hangs, none reaches a worker, and memory and open files return to where they were."""

import asyncio
import dataclasses
import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest
from conftest import Podium, Process, roomy_pool, serve_pool
from hostile_files import FILES_GROWTH_MAX, GROWTH_MAX_KB, PDF, wrong_documents, wrong_files

PATIENCE_S = 20
AT_ONCE = 8

# Two values of each kind of JSON.
VALUES = {
    "boolean": [True, False],
    "integer": [7, -3],
    "fraction": [0.25, -7.5],
    "text": ["x", ""],
    "list": [[1], [[]]],
    "object": [{"x": 1}, {"": {}}],
}
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
RESPONSES_TOOL = {"type": "function", "name": "look", "parameters": {"type": "object"}}
MESSAGES_TOOL = {"name": "look", "input_schema": {"type": "object"}}
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}


@dataclass
class Raw:
    """JSON that Python would not write, such as a number that is too large."""

    text: str


@dataclass
class Parameter:
    """The kinds of values that a parameter has, and values of these kinds that are wrong nevertheless."""

    kinds: str
    wrong: list[object] = dataclasses.field(default_factory=list)
    needs: dict[str, object] = dataclasses.field(default_factory=dict)

    def values(self) -> list[object]:
        kinds = self.kinds.replace("number", "integer fraction").split()
        wrong_kinds = [value for kind, values in VALUES.items() if kind not in kinds for value in values]
        huge = [] if "integer" in kinds and not self.wrong else [Raw("9" * 300), Raw("-1e300")]
        return [*wrong_kinds, *huge, *self.wrong]


HUGE = [0, -1, 2**32, 2**64, Raw("1.0e0")]
OFF_SCALE = [-0.1, 2.1, Raw("1e300"), Raw("-1e-2")]
PODIUM = Parameter(
    "object",
    [
        {"colour": "red"},
        *({name: value} for name in ("cost_max_nano_usd", "deadline_ms", "steps_max") for value in (-1, 0.5, "1", [], 2**64)),
        *({name: "sometimes"} for name in ("fallback", "broken_answer", "failed_step", "step_cache")),
        {"workers_allowed": ["no such name!"]},
        {"workers_allowed": "caller"},
    ],
)

CHAT = {
    "model": Parameter("text"),
    "stream": Parameter("boolean"),
    "stream_options": Parameter("object", [{"include_usage": 1}, {"colour": 1}], {"stream": True}),
    "reasoning_effort": Parameter("", ["extreme", "LOW", "low\u0000"]),
    "max_tokens": Parameter("integer", HUGE),
    "max_completion_tokens": Parameter("integer", HUGE),
    "temperature": Parameter("number", OFF_SCALE),
    "top_p": Parameter("number", [-0.1, 1.1]),
    "seed": Parameter("integer"),
    "response_format": Parameter(
        "",
        [
            {"type": "xml"},
            {"type": 1},
            {"type": "text", "colour": 1},
            {"type": "json_schema"},
            {"type": "json_schema", "json_schema": {}},
            {"type": "json_schema", "json_schema": {"name": "a b", "schema": {}}},
            {"type": "json_schema", "json_schema": {"name": "a", "schema": 7}},
            {"type": "json_schema", "json_schema": {"name": "a", "schema": {}, "strict": "yes"}},
        ],
    ),
    "stop": Parameter("text", [["x"] * 5, ["x" * 65], [""], ["x", 7], [["x"]], [None]]),
    "tools": Parameter(
        "",
        [
            "look",
            [TOOL] * 2,
            [{**TOOL, "function": {"name": f"t{number}"}} for number in range(129)],
            [{"type": "function"}],
            [{"type": "function", "function": {}}],
            *([{"type": "function", "function": {"name": name}}] for name in ("", "a b", "a" * 129, "é", "a\u0000", 7, None)),
            *([{"type": "function", "function": {"name": "a", "parameters": value}}] for value in (7, "x", [], True)),
            [{"type": "function", "function": {"name": "a", "strict": "yes"}}],
        ],
    ),
    "tool_choice": Parameter(
        "",
        ["always", {"type": "function", "function": {"name": "other"}}, {"type": "function"}, {"type": "colour"}],
        {"tools": [TOOL]},
    ),
    "parallel_tool_calls": Parameter("boolean"),
    "verbosity": Parameter("", ["loud"]),
    "n": Parameter("", [0, 2]),
    "logprobs": Parameter("boolean", [True]),
    "top_logprobs": Parameter("", [21]),
    "presence_penalty": Parameter("", [3]),
    "frequency_penalty": Parameter("", [-3]),
    "logit_bias": Parameter("object", [{"50256": -100}]),
    "functions": Parameter("", [[{"name": "look"}]]),
    "modalities": Parameter("", [["audio"]]),
    "audio": Parameter("", [{"voice": "x"}]),
    "web_search_options": Parameter("", [{}]),
    "podium": PODIUM,
    **{name: Parameter("text") for name in ("user", "service_tier", "prompt_cache_key", "safety_identifier")},
    **{name: Parameter("object") for name in ("metadata", "prompt_cache_options", "prediction")},
    "store": Parameter("boolean"),
}

RESPONSES = {
    "model": Parameter("text"),
    "instructions": Parameter("text"),
    "max_output_tokens": Parameter("integer", HUGE),
    "reasoning": Parameter("object", [{"effort": "extreme"}, {"effort": 7}, {"summary": 7}, {"summary": "loud"}]),
    "text": Parameter("object", [{"format": {"type": "xml"}}, {"format": 7}, {"verbosity": "loud"}, {"colour": 1}]),
    "temperature": Parameter("number", OFF_SCALE),
    "top_p": Parameter("number", [-0.1, 1.1]),
    "metadata": Parameter(
        "object",
        [{"x": 1}, {"x": ["y"]}, {"x" * 65: "y"}, {"x": "y" * 513}, {f"x{number}": "y" for number in range(17)}],
    ),
    **{name: Parameter("text", ["x" * 513]) for name in ("user", "safety_identifier", "prompt_cache_key")},
    "store": Parameter("boolean"),
    "background": Parameter("boolean"),
    "stream": Parameter("boolean"),
    "stream_options": Parameter("object", [{"include_obfuscation": 1}], {"stream": True}),
    "truncation": Parameter("", ["always"]),
    "include": Parameter("", [["colour"], [7], ["message.output_text.logprobs"], "x"]),
    "service_tier": Parameter("", ["gold"]),
    "tools": Parameter(
        "",
        [
            "look",
            [RESPONSES_TOOL] * 2,
            [{**RESPONSES_TOOL, "name": f"t{number}"} for number in range(129)],
            *([{"type": "function", "name": name}] for name in ("", "a b", "a" * 129, "é", 7)),
            *([{"type": "function", "name": "a", "parameters": value}] for value in (7, "x", [], True)),
            [{"type": "function", "name": "a", "strict": "yes"}],
            [{"type": "colour"}],
        ],
    ),
    "tool_choice": Parameter(
        "", ["always", {"type": "function", "name": "other"}, {"type": "function"}, {"type": "colour"}], {"tools": [RESPONSES_TOOL]}
    ),
    "parallel_tool_calls": Parameter("boolean"),
    "max_tool_calls": Parameter("integer", [0, -1]),
    "previous_response_id": Parameter("", ["resp_", "resp_1", "x" * 1000, "resp_" + "0" * 32, "../../etc/passwd", "resp_\u0000"]),
    "presence_penalty": Parameter("", [3]),
    "frequency_penalty": Parameter("", [-3]),
    "top_logprobs": Parameter("", [21]),
    "prompt": Parameter("", [{"id": "p"}]),
    "moderation": Parameter("", [{}]),
    **{name: Parameter("object") for name in ("client_metadata", "prompt_cache_options")},
    "podium": PODIUM,
}

MESSAGES = {
    "model": Parameter("text"),
    "max_tokens": Parameter("integer", HUGE),
    "system": Parameter("text", [[{"type": "image"}], [{"type": "text"}], [{"text": "x"}], [7], [{"type": "text", "text": 7}]]),
    "stream": Parameter("boolean"),
    "stop_sequences": Parameter("", ["x", ["x"] * 5, ["x" * 65], [""], [7]]),
    "temperature": Parameter("number", [-0.1, 1.1, Raw("1e300")]),
    "top_p": Parameter("number", [-0.1, 1.1]),
    "top_k": Parameter("integer", [-1, 2**40]),
    "thinking": Parameter(
        "",
        [
            {"type": "deep"},
            {"type": "enabled"},
            {"type": "enabled", "budget_tokens": 0},
            {"type": "enabled", "budget_tokens": "1"},
            {"type": "adaptive", "display": "loud"},
            {"type": "disabled", "colour": 1},
        ],
    ),
    "output_config": Parameter("object", [{"effort": "extreme"}, {"format": {"type": "xml"}}, {"task_budget": 1}, {"colour": 1}]),
    "tools": Parameter(
        "",
        [
            "look",
            [MESSAGES_TOOL] * 2,
            [{**MESSAGES_TOOL, "name": f"t{number}"} for number in range(129)],
            *([{"name": name, "input_schema": {}}] for name in ("", "a b", "a" * 129, "é", 7, None)),
            *([{"name": "a", "input_schema": value}] for value in (7, "x", [], True, None)),
            [{"name": "a"}],
            [{"type": "web_search_20250305", "name": "web_search"}],
        ],
    ),
    "tool_choice": Parameter(
        "", ["auto", {"type": "tool", "name": "other"}, {"type": "tool"}, {"type": "colour"}], {"tools": [MESSAGES_TOOL]}
    ),
    "metadata": Parameter("object", [{"colour": 1}, {"user_id": 7}, {"user_id": "x" * 513}]),
    "service_tier": Parameter("", ["gold"]),
    "cache_control": Parameter("", [{"type": "eternal"}, {"type": "ephemeral", "ttl": "9h"}]),
    "context_management": Parameter("object"),
    "speed": Parameter("", ["fast"]),
    "container": Parameter("", ["c"]),
    "mcp_servers": Parameter("", [[{"url": "http://127.0.0.1"}]]),
    "inference_geo": Parameter("", ["moon"]),
    "podium": PODIUM,
}


def chat_messages() -> list[tuple[object, str]]:
    part = lambda **part: [{"role": "user", "content": [part]}]  # noqa: E731
    called = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    user = {"role": "user", "content": "x"}
    return [
        (part(), "messages[0].content[0].type"),
        (part(type="text"), "messages[0].content[0].text"),
        (part(type="text", text=7), "messages[0].content[0].text"),
        (part(type="input_audio", input_audio={"data": "", "format": "wav"}), "messages[0].content[0].type"),
        *(
            (part(type="image_url", image_url={"url": url}), "messages[0].content[0].image_url.url")
            for url in ("", "x", "file:///etc/passwd", "javascript:1", "data:image/png;base64,%%%", "data:text/html;base64,eA==", 7)
        ),
        *((part(type="file", file=file), f"messages[0].content[0].file.{field}") for file, field in wrong_files()),
        (part(type="file"), "messages[0].content[0].file"),
        (part(type="file", file=PDF), "messages[0].content[0].file"),
        (part(type="file", file={"filename": "a.pdf"}), "messages[0].content[0].file.file_data"),
        (part(type="file", file={"file_id": "f"}), "messages[0].content[0].file.file_id"),
        (part(type="file", file={"file_url": "https://example.org/a.pdf"}), "messages[0].content[0].file.file_url"),
        (part(type="file", file={"file_data": PDF + "A" * (1 << 20)}), "messages"),
        ([{"role": "system", "content": [{"type": "file", "file": {"file_data": PDF}}]}], "messages[0].content[0].type"),
        ([{"role": "user", "content": [{"type": "text", "text": "x"}] * 257}], "messages[0].content"),
        ([{**user, "colour": 1}], "messages[0].colour"),
        ([user] * 1001, "messages"),
        ([user, called, user], "messages[1].tool_calls"),
        ([user, called, {"role": "tool", "content": "x"}], "messages[2].tool_call_id"),
        ([user, called, {"role": "tool", "content": "x", "tool_call_id": "other"}], "messages[2].tool_call_id"),
        ([user, {"role": "tool", "content": "x", "tool_call_id": "c1"}], "messages[1].tool_call_id"),
        ([user, {**called, "tool_calls": [{**CALL, "id": ""}]}], "messages[1].tool_calls[0].id"),
        ([user, {**called, "tool_calls": [{**CALL, "id": 7}]}], "messages[1].tool_calls[0].id"),
        ([user, {**called, "tool_calls": [{"id": "c1", "type": "function"}]}], "messages[1].tool_calls[0].function"),
        ([{"role": "assistant", "content": " "}], "messages"),
        ([{"role": "system", "content": " "}], "messages"),
        ([{"role": "user", "content": " \t\n"}], "messages"),
    ]


def messages_messages() -> list[tuple[object, str]]:
    part = lambda **part: [{"role": "user", "content": [part]}]  # noqa: E731
    user = {"role": "user", "content": "x"}
    used = {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "look", "input": {}}]}
    image = lambda **source: part(type="image", source=source)  # noqa: E731
    pdf = {"type": "base64", "media_type": "application/pdf", "data": "eA=="}
    result = lambda **result: {"role": "user", "content": [{"type": "tool_result", **result}]}  # noqa: E731
    wrongly_used = {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "look", "input": "x"}]}
    return [
        (part(), "messages[0].content[0].type"),
        (part(type="text"), "messages[0].content[0].text"),
        (part(type="text", text=7), "messages[0].content[0].text"),
        (part(type="text", text="x", colour=1), "messages[0].content[0].colour"),
        (part(type="tool_use", id="c", name="look", input={}), "messages[0].content[0].type"),
        (part(type="thinking", thinking="x", signature="y"), "messages[0].content[0].type"),
        (part(type="server_tool_use"), "messages[0].content[0].type"),
        *((part(**block), f"messages[0].content[0].{field}") for block, field in wrong_documents()),
        (part(type="document", source={**pdf, "data": "A" * (1 << 20) + "AAAA"}), "messages"),
        ([{"role": "assistant", "content": [{"type": "document", "source": pdf}]}], "messages[0].content[0].type"),
        (image(type="file", file_id="f"), "messages[0].content[0].source.type"),
        (image(type="base64", media_type="image/bmp", data="eA=="), "messages[0].content[0].source.media_type"),
        (image(type="base64", media_type="image/png", data="%%%"), "messages[0].content[0].source.data"),
        (image(type="url", url="file:///etc/passwd"), "messages[0].content[0].source.url"),
        ([{"role": "user", "content": [{"type": "text", "text": "x"}] * 257}], "messages[0].content"),
        ([{**user, "colour": 1}], "messages[0].colour"),
        ([user] * 1001, "messages"),
        ([user, used, user], "messages[1].content[0]"),
        ([user, used, result(content="x")], "messages[2].content[0].tool_use_id"),
        ([user, used, result(tool_use_id="c2")], "messages[2].content[0]"),
        ([user, wrongly_used], "messages[1].content[0].input"),
        ([user, {"role": "assistant", "content": "x"}], "messages"),
        ([{"role": "user", "content": " \t\n"}], "messages"),
    ]


def responses_input() -> list[tuple[object, str]]:
    part = lambda **part: [{"role": "user", "content": [part]}]  # noqa: E731
    call = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c1", "output": "x"}
    user = {"role": "user", "content": "x"}
    return [
        (part(), "input[0].content[0].type"),
        (part(type="input_text"), "input[0].content[0].text"),
        (part(type="input_text", text=7), "input[0].content[0].text"),
        (part(type="input_audio", input_audio={}), "input[0].content[0]"),
        (part(type="input_image"), "input[0].content[0]"),
        (part(type="input_image", image_url="file:///etc/passwd"), "input[0].content[0].image_url"),
        (part(type="input_image", image_url=7), "input[0].content[0].image_url"),
        *((part(type="input_file", **file), f"input[0].content[0].{field}") for file, field in wrong_files()),
        (part(type="input_file"), "input[0].content[0].file_data"),
        (part(type="input_file", file_id="f"), "input[0].content[0].file_id"),
        (part(type="input_file", file_url="file:///etc/passwd"), "input[0].content[0].file_url"),
        (part(type="input_file", file_url=PDF), "input[0].content[0].file_url"),
        (part(type="input_file", file_url="https://example.org/a", file_data=PDF), "input[0].content[0].file_url"),
        (part(type="input_file", file_data=PDF + "A" * (1 << 20)), "input"),
        ([{"role": "assistant", "content": [{"type": "input_file", "file_data": PDF}]}], "input[0].content[0].type"),
        ([{"role": "user", "content": [{"type": "input_text", "text": "x"}] * 257}], "input[0].content"),
        ([user] * 1001, "input"),
        ([{"type": "colour"}], "input[0].type"),
        ([{"type": 7}], "input[0].type"),
        ([user, call], "input"),
        ([user, output], "input"),
        ([user, call, {**output, "call_id": "c2"}], "input"),
        ([user, call, {**output, "output": 7}], "input[2].output"),
        ([user, {**call, "name": "a b"}, output], "input[1].name"),
        ([user, {**call, "arguments": {}}, output], "input[1].arguments"),
        ([{"role": "assistant", "content": " "}], "input"),
        (" \t\n", "input"),
        ([{"type": "item_reference", "id": "msg_none"}], "input"),
        ([{"type": "compaction", "encrypted_content": "%%%"}], "input[0].encrypted_content"),
    ]


def wrong_lists(name: str) -> list[tuple[object, str]]:
    """Values that are no messages, whatever the API."""
    entries = [None, 7, "x", True, 0.5, [], [[]]]
    roles = [None, 7, "", "king", "USER", ["user"], {}, "user\u0000"]
    contents = [7, True, 0.5, {}, {"text": "x"}]
    return [
        *((value, name) for value in (7, True, 0.5, {}, {"role": "user", "content": "x"})),
        *(([entry], f"{name}[0]") for entry in entries),
        *(([{"role": role, "content": "x"}], f"{name}[0].role") for role in roles),
        *(([{"role": "user", "content": content}], f"{name}[0].content") for content in contents),
        *(([{"role": "user", "content": [entry]}], f"{name}[0].content[0]") for entry in entries),
    ]


@dataclass
class Api:
    """An API: a request that it accepts, its parameters, and its own wrong messages."""

    path: str
    good: dict[str, object]
    parameters: dict[str, Parameter]
    messages: list[tuple[object, str]]
    # Anthropic's errors name the field in their text only.
    names_in_text: bool = False

    @property
    def messages_name(self) -> str:
        return "input" if "input" in self.good else "messages"


APIS = {
    "chat": Api(
        "/v1/chat/completions",
        {"model": "podium-mini", "messages": [{"role": "user", "content": "x"}]},
        CHAT,
        [*wrong_lists("messages"), *chat_messages(), ([], "messages"), ("x", "messages")],
    ),
    "responses": Api(
        "/v1/responses", {"model": "podium-mini", "input": "x"}, RESPONSES, [*wrong_lists("input"), *responses_input()]
    ),
    "messages": Api(
        "/v1/messages",
        {"model": "podium-mini", "max_tokens": 10, "messages": [{"role": "user", "content": "x"}]},
        MESSAGES,
        [*wrong_lists("messages"), *messages_messages(), ([], "messages"), ("x", "messages")],
        names_in_text=True,
    ),
}


@dataclass
class Case:
    """A hostile request and the error that it must get. `field` is the beginning of the name of the wrong field."""

    body: bytes
    status: int = 400
    field: str = ""
    headers: dict[str, str] = dataclasses.field(default_factory=dict)


def written(value: object) -> str:
    """JSON with the raw parts as they are."""
    if isinstance(value, Raw):
        return value.text
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(name)}: {written(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(written, value)) + "]"
    return json.dumps(value)


def nested(depth: int) -> Raw:
    return Raw("[" * depth + "]" * depth)


def wrong_values(api: Api) -> Iterator[Case]:
    for name, parameter in api.parameters.items():
        for value in parameter.values():
            body = written({**api.good, **parameter.needs, name: value}).encode()
            # A name that no model has is an unknown model.
            yield Case(body, 404 if name == "model" and isinstance(value, str) else 400, name)
    for value, path in api.messages:
        yield Case(written({**api.good, api.messages_name: value}).encode(), 400, path)
    for name in api.good:
        yield Case(written({key: value for key, value in api.good.items() if key != name}).encode(), 400, name)
        yield Case(written({**api.good, name: None}).encode(), 400, name)
        yield Case(written({**api.good, name: nested(100)}).encode(), 400, name)
    for name in ("colour", "", "Model", "model ", "__proto__", "messages[0]", "a" * 10_000, "\u0000", "$where"):
        yield Case(written({**api.good, name: 1}).encode(), 400)
    for name in ("gpt-5", "podium", "podium-ultra@", "podium-ultra@../x", "podium-mini\u0000", "x" * 100_000):
        yield Case(written({**api.good, "model": name}).encode(), 404, "model")


def broken_bodies(api: Api) -> Iterator[Case]:
    good = written(api.good)
    yield from (Case(good[:end].encode()) for end in range(0, len(good), 4))
    for place in range(0, len(good), 9):
        for bad in (b"\xff", b"\xc3\x28", b"\xed\xa0\x80", b"\x00"):
            yield Case(good[:place].encode() + bad + good[place:].encode())
    yield from (Case(text.encode()) for text in ("null", "true", "7", '"x"', "[]", "[{}]", " ", "\ufeff" + good))
    yield from (Case(good.encode(code)) for code in ("utf-16", "utf-32"))
    yield from (Case((good + rest).encode()) for rest in ("}", ",", "x", good, "\n[]", "/* */"))
    no_numbers = ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "9" * 400, "01", "+1", ".5", "1.", "0x10"]
    for value in (*no_numbers, "'x'", "undefined", "True"):
        yield Case(written({**api.good, "temperature": Raw(value)}).encode())
    for text in ('"\\ud800"', '"\\udc00\\ud800"', '"\\u12"', '"\\x41"', '"a\nb"', '"\t"'):
        yield Case(written({**api.good, "user": Raw(text)}).encode())
    yield from (Case(written({**api.good, "x": nested(depth)}).encode()) for depth in (129, 1_000, 100_000))
    yield Case(("{" + '"a":{' * 5_000 + "}" * 5_001).encode())
    yield Case(written({**api.good, "x": [0] * 60_000}).encode())
    yield Case(written({**api.good, "user": "x" * (2 << 20)}).encode(), 413)


def wrong_headers(api: Api) -> Iterator[Case]:
    good = written(api.good).encode()
    for kind in ("text/plain", "application/xml", "multipart/form-data; boundary=x", "application/x-www-form-urlencoded", "x"):
        yield Case(good, 415, headers={"content-type": kind})
    for key in ("x" * 129, "\u00e9", "a\tb"):
        yield Case(good, 400, headers={"idempotency-key": key})
    yield Case(good, 403, headers={"origin": "https://evil.example"})
    yield Case(good, 403, headers={"host": "evil.example"})
    yield Case(good, 431, headers={"x-long": "x" * 40_000})


def corpus(api: Api) -> list[Case]:
    return [*wrong_values(api), *broken_bodies(api), *wrong_headers(api)]


@dataclass
class Server:
    """A server with little patience, whose memory is watched."""

    podium: Podium
    process: Process


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, vendor: str) -> Iterator[Server]:
    patience = ["--request-head-ms", "1000", "--request-body-ms", "1000"]
    pool = roomy_pool(vendor, caller="sim-echo")
    process, podium = serve_pool(tmp_path_factory.mktemp("hostile"), vendor, "direct:caller", pool, *patience)
    try:
        yield Server(podium, process)
    finally:
        process.stop()


def complaint(api: Api, case: Case, answer: httpx.Response) -> str | None:
    """The difference between an answer and the expected one; None if there is none."""
    if answer.status_code != case.status:
        return f"status {answer.status_code}, not {case.status}: {answer.text[:300]}"
    if answer.status_code == 431:
        return None
    error = answer.json()["error"]
    if api.names_in_text:
        text = error["message"]
        is_named = case.field in text if case.field else bool(text)
        shape = {"type", "message"} <= error.keys() and answer.json()["type"] == "error" and answer.json()["request_id"]
    else:
        is_named = (error["param"] or "").startswith(case.field)
        shape = {"message", "type", "param", "code"} <= error.keys()
    if not shape or not is_named:
        return f"the error does not name {case.field!r}: {error}"
    return None


async def assault(api: Api, server: Server) -> list[str]:
    """Sends every request, and returns what was wrong with the answers."""
    gate = asyncio.Semaphore(AT_ONCE)
    json_type = {"content-type": "application/json"}

    async def send(client: httpx.AsyncClient, case: Case) -> str | None:
        headers = {name: value.encode() for name, value in {**json_type, **case.headers}.items()}
        async with gate:
            try:
                answer = await client.post(api.path, content=case.body, headers=headers)
                wrong = complaint(api, case, answer)
            except httpx.TransportError as error:
                # The connection is closed after a head that is too long, often before the client has sent all of it.
                wrong = None if case.status == 431 else f"no answer: {error!r}"
        return wrong and f"{wrong}\n  for {case.headers} {case.body[:300]!r}"

    async with httpx.AsyncClient(base_url=server.podium.http, timeout=PATIENCE_S) as client:
        answers = await asyncio.gather(*(send(client, case) for case in corpus(api)))
    return [wrong for wrong in answers if wrong]


@pytest.mark.parametrize("api", APIS.values(), ids=APIS.keys())
async def test_hostile_requests_get_the_right_error(api: Api, server: Server) -> None:
    assert len(corpus(api)) >= 300
    calls = len(server.podium.calls())
    wrong = await assault(api, server)
    assert not wrong, f"{len(wrong)} of {len(corpus(api))} answers are wrong:\n" + "\n".join(wrong[:200])
    assert len(server.podium.calls()) == calls, "a hostile request reached a worker"


async def test_hostile_requests_leave_no_memory_and_no_files_behind(server: Server) -> None:
    for api in APIS.values():
        await assault(api, server)
    memory, files = server.process.memory_kb(), server.process.files()
    for api in APIS.values():
        await assault(api, server)
    assert server.process.memory_kb() - memory < GROWTH_MAX_KB
    assert server.process.files() - files <= FILES_GROWTH_MAX


def exchange(server: Server, sent: bytes) -> bytes:
    """Sends bytes and reads until the server closes the connection or the answer's end is sure."""
    host, port = server.podium.http.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as connection:
        connection.sendall(sent)
        received = b""
        while chunk := connection.recv(65536):
            received += chunk
        return received


POST = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\n"


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET /v1/models HTTP/1.1\r\nhost: local", b""),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"400"),
        (b"HELLO\r\n\r\n", b"400"),
        (b"GET /v1/models HTTP/9.9\r\n\r\n", b"400"),
        (POST + b"content-length: 100\r\n\r\n{", b"408"),
        (POST + b"content-length: -1\r\n\r\n{}", b"400"),
        (POST + b"content-length: 9e9\r\n\r\n{}", b"400"),
        (POST + b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}x", b"400"),
        (POST + b"transfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n", b"400"),
        (POST + b"transfer-encoding: gzip\r\n\r\n{}", b"400"),
        (POST + b"content-length: 2\r\nx\x00y: 1\r\n\r\n{}", b"400"),
        (POST + b"content-length: 99999999999999999999\r\n\r\n{}", b"400"),
        (POST + b"content-length: 999999999\r\n\r\n{}", b"413"),
        (b"DELETE /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n", b"405"),
        (b"GET /../../etc/passwd HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n", b"404"),
        (b"GET /v1/runs/%00 HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n", b"400"),
        (b"GET /v1/runs/%ff%fe HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n", b"404"),
        (b"GET /v1/runs?limit=999999999999999999999 HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n", b"400"),
        (b"GET /v1/" + b"x" * 20_000 + b" HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n", b"404"),
    ],
)
def test_broken_http_gets_an_answer_and_an_end(server: Server, sent: bytes, status: bytes) -> None:
    received = exchange(server, sent)
    # A connection that has sent no whole head is closed without an answer.
    assert received[:13] == (b"HTTP/1.1 " + status + b" " if status else b""), received[:300]
