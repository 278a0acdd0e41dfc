"""Tool calls through Chat Completions, with the official `openai` package."""

import json
import re

import httpx
import openai
import pytest
from conftest import PATIENCE_S, Podium

MODEL = "sim-echo"
# The pattern of OpenAI and of Anthropic, and OpenAI's longest id.
CALL_ID = re.compile(r"^[a-zA-Z0-9_-]{1,64}$")
ODD_ARGUMENTS = '{ "city":\t"Oslo", "days": [1,2] }'


def tool(name: str, **more: object) -> dict:
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    return {"type": "function", "function": {"name": name, "description": f"The {name}.", "parameters": parameters, **more}}


TOOLS = [tool("weather"), tool("clock")]


def ask(podium: Podium, messages: str | list[dict], **parameters: object) -> object:
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    parameters = {"model": "podium-mini", "messages": messages, "tools": TOOLS, **parameters}
    return podium.openai(max_retries=0).chat.completions.create(**parameters)


def test_a_worker_calls_one_tool(calling: Podium) -> None:
    choice = ask(calling, "Ask weather, please.").choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    (call,) = choice.message.tool_calls
    assert call.type == "function" and call.function.name == "weather"
    assert json.loads(call.function.arguments) == {"city": "Ask weather, please."}
    assert CALL_ID.match(call.id)


def test_parallel_calls_have_different_ids(calling: Podium) -> None:
    calls = ask(calling, "Ask weather and clock.").choices[0].message.tool_calls
    assert [call.function.name for call in calls] == ["weather", "clock"]
    assert len({call.id for call in calls}) == 2
    (only,) = ask(calling, "Ask weather and clock.", parallel_tool_calls=False).choices[0].message.tool_calls
    assert only.function.name == "weather"


def test_arguments_arrive_as_the_worker_wrote_them(calling: Podium) -> None:
    replies = [{"calls": [{"name": "weather", "arguments": ODD_ARGUMENTS}, {"name": "clock", "arguments": "{broken"}]}]
    with calling.replying(MODEL, replies):
        calls = ask(calling, "look").choices[0].message.tool_calls
        assert [call.function.arguments for call in calls] == [ODD_ARGUMENTS, "{broken"]


def test_streamed_calls_are_the_plain_ones_in_pieces(calling: Podium) -> None:
    replies = [{"text": "I look.", "calls": [{"name": "weather", "arguments": ODD_ARGUMENTS}, {"name": "clock"}]}]
    with calling.replying(MODEL, replies):
        plain = ask(calling, "look").choices[0].message
        chunks = list(ask(calling, "look", stream=True, stream_options={"include_usage": True}))
    assert plain.content == "I look."
    assert chunks[-1].usage.completion_tokens > 0
    choices = [chunk.choices[0] for chunk in chunks if chunk.choices]
    assert "".join(choice.delta.content or "" for choice in choices) == "I look."
    assert choices[-1].finish_reason == "tool_calls"
    calls: list[dict] = []
    for piece in [piece for choice in choices for piece in choice.delta.tool_calls or []]:
        if piece.id is not None:
            assert piece.index == len(calls) and piece.type == "function" and piece.function.arguments == ""
            calls.append({"id": piece.id, "name": piece.function.name, "arguments": "", "pieces": 0})
        else:
            assert piece.function.name is None
            calls[piece.index]["arguments"] += piece.function.arguments
            calls[piece.index]["pieces"] += 1
    assert [(call["name"], call["arguments"]) for call in calls] == [("weather", ODD_ARGUMENTS), ("clock", "{}")]
    assert calls[0]["pieces"] > 1, "the arguments are streamed while the worker writes them"


def test_results_go_back_to_the_worker(calling: Podium) -> None:
    with calling.openai(max_retries=0) as client:
        messages = [{"role": "user", "content": "Ask weather and clock."}]
        raw = client.chat.completions.with_raw_response.create(model="podium-mini", messages=messages, tools=TOOLS)
        asked = raw.parse().choices[0].message
        messages.append(asked.model_dump(exclude_none=True))
        for call in asked.tool_calls:
            messages.append({"role": "tool", "tool_call_id": call.id, "content": f"{call.function.name} is fine"})
        final = client.chat.completions.create(model="podium-mini", messages=messages, tools=TOOLS)
        assert final.choices[0].message.content == "The tools gave: weather is fine; clock is fine"
        assert final.choices[0].finish_reason == "stop"
        run = httpx.get(f"{calling.http}/v1/runs/{raw.headers['x-podium-run-id']}").json()
    assert [call["id"] for call in run["tool_calls"]] == [call.id for call in asked.tool_calls]
    assert run["answer"] == ""


def test_results_of_another_system_are_history(calling: Podium) -> None:
    call = {"id": "functions.weather:0", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "Ask weather."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "functions.weather:0", "content": [{"type": "text", "text": "cold"}]},
    ]
    assert ask(calling, messages).choices[0].message.content == "The tools gave: cold"
    # Without tools, the calls are still history.
    assert ask(calling, messages, tools=openai.NOT_GIVEN).choices[0].message.content == "The tools gave: cold"


def names(completion: object) -> list[str]:
    return [call.function.name for call in completion.choices[0].message.tool_calls or []]


def test_tool_choice_is_obeyed(calling: Podium) -> None:
    named = {"type": "function", "function": {"name": "clock"}}
    tools = [{"type": "function", "function": {"name": "clock"}}]
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": tools}}
    both = "Ask weather and clock."
    assert names(ask(calling, both, tool_choice="none")) == []
    assert names(ask(calling, "Ask nobody.", tool_choice="auto")) == []
    assert names(ask(calling, "Ask nobody.", tool_choice="required")) == ["weather"]
    assert names(ask(calling, both, tool_choice=named)) == ["clock"]
    assert names(ask(calling, both, tool_choice=allowed)) == ["clock"]


def test_tools_without_parameters_and_strict_tools_are_accepted(calling: Podium) -> None:
    bare = {"type": "function", "function": {"name": "clock"}}
    strict = tool("weather", strict=True)
    strict["function"]["parameters"]["additionalProperties"] = False
    calls = ask(calling, "Ask weather and clock.", tools=[strict, bare]).choices[0].message.tool_calls
    assert [call.function.arguments for call in calls][1] == "{}"


def test_the_ultra_tier_continues_its_run_with_the_results(calling: Podium) -> None:
    with calling.openai(max_retries=0) as client:
        messages = [{"role": "user", "content": "Ask weather and clock."}]
        raw = client.chat.completions.with_raw_response.create(model="podium-ultra", messages=messages, tools=TOOLS)
        first = raw.parse()
        assert names(first) == ["weather", "clock"] and first.choices[0].finish_reason == "tool_calls"
        run = raw.headers["x-podium-run-id"]
        assert httpx.get(f"{calling.http}/v1/runs/{run}").json()["state"] == "suspended"
        asked = first.choices[0].message
        messages.append(asked.model_dump(exclude_none=True))
        for call in asked.tool_calls:
            messages.append({"role": "tool", "tool_call_id": call.id, "content": f"{call.function.name} is fine"})
        raw = client.chat.completions.with_raw_response.create(model="podium-ultra", messages=messages, tools=TOOLS)
        second = raw.parse()
        assert second.choices[0].message.content == "The tools gave: weather is fine; clock is fine"
        assert raw.headers["x-podium-run-id"] == run and second.id != first.id
        chunks = list(client.chat.completions.create(model="podium-ultra", messages=messages, tools=TOOLS, stream=True))
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        assert text == second.choices[0].message.content
        ended = httpx.get(f"{calling.http}/v1/runs/{run}").json()
    assert ended["state"] == "succeeded"
    assert ended["usage"]["total_tokens"] == first.usage.total_tokens + second.usage.total_tokens


@pytest.mark.parametrize(
    ("parameters", "param"),
    [
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
        ({"tools": [{"type": "custom", "custom": {"name": "a"}}]}, "tools[0].type"),
        ({"tools": [tool("a"), tool("a")]}, "tools[1].function.name"),
        ({"tool_choice": {"type": "function", "function": {"name": "other"}}}, "tool_choice"),
        ({"tool_choice": "always"}, "tool_choice"),
        ({"functions": [{"name": "a"}]}, "functions"),
        ({"function_call": {"name": "a"}}, "function_call"),
    ],
)
def test_an_error_names_the_parameter(calling: Podium, parameters: dict, param: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        ask(calling, "Ask weather.", **parameters)
    assert caught.value.param == param


def test_a_result_needs_its_call_and_a_call_its_result(calling: Podium) -> None:
    user = {"role": "user", "content": "Ask weather."}
    call = {"id": "a", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    called = {"role": "assistant", "content": None, "tool_calls": [call]}
    for messages, param in [
        ([user, called, user], "messages[1].tool_calls"),
        ([user, {"role": "tool", "tool_call_id": "a", "content": "cold"}], "messages[1].tool_call_id"),
        ([user, {"role": "tool", "content": "cold"}], "messages[1].tool_call_id"),
    ]:
        with pytest.raises(openai.BadRequestError) as caught:
            ask(calling, messages)
        assert caught.value.param == param


def test_tools_without_a_worker_that_calls_them_are_refused(direct: Podium) -> None:
    with pytest.raises(openai.APIStatusError) as caught:
        ask(direct, "Ask weather.")
    assert caught.value.param == "tools"
    assert "does not take tools" in caught.value.message


def test_a_repeated_request_streams_the_same_calls(calling: Podium) -> None:
    options = {"stream": True, "extra_headers": {"idempotency-key": "tools-1"}, "timeout": PATIENCE_S}
    streams = [list(ask(calling, "Ask weather.", **options)) for _ in range(2)]
    ids = [[piece.id for chunk in chunks for piece in chunk.choices[0].delta.tool_calls or [] if piece.id] for chunks in streams]
    assert len(ids[0]) == 1 and ids[0] == ids[1]
