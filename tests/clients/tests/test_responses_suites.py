"""The Responses API as suites of other servers check it, written anew, with the official package.

The suite is that of OGX. The compliance tests of Open Responses have a file of their own.
"""

import time
from typing import get_args

import openai
import pytest
from conftest import PATIENCE_S, Podium
from openai.types.responses import Response, ResponseError

ERROR_CODES = set(get_args(ResponseError.model_fields["code"].annotation))
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"type": "function", "name": "get_weather", "description": "The weather in a city.", "parameters": CITY, "strict": False}
HOUR = {**WEATHER, "name": "get_time", "description": "The time in a city."}


def create(podium: Podium, **parameters: object) -> Response:
    return podium.openai(max_retries=0).responses.create(**{"model": "podium-mini", "input": "Say hello.", **parameters})


def events(podium: Podium, **parameters: object) -> list:
    return list(create(podium, stream=True, **parameters))


@pytest.mark.parametrize("tier", ["default", "priority", "flex"])
def test_the_service_tier_is_returned(able: Podium, tier: str) -> None:
    first = create(able, service_tier=tier)
    assert first.service_tier == tier
    streamed = events(able, service_tier=tier, previous_response_id=first.id)
    tiers = [event.response.service_tier for event in streamed if hasattr(event, "response")]
    assert set(tiers) == {tier} and len(tiers) == 3


def test_an_automatic_service_tier_is_the_default_one(able: Podium) -> None:
    assert create(able, service_tier="auto").service_tier == "default"


def test_every_event_names_its_response_or_its_item(able: Podium) -> None:
    streamed = events(able)
    assert [streamed[0].type, streamed[-1].type] == ["response.created", "response.completed"]
    id = streamed[0].response.id
    parts = [event for event in streamed if event.type.startswith("response.content_part.")]
    assert [event.response_id for event in parts] == [id, id]
    assert all(event.item_id and event.output_index == event.content_index == 0 for event in parts)
    deltas = "".join(event.delta for event in streamed if event.type == "response.output_text.delta")
    assert deltas == streamed[-1].response.output_text
    assert able.openai().responses.retrieve(id).output_text == deltas


def test_a_failed_stream_has_an_error_code_of_the_api(fresh: Podium) -> None:
    with fresh.behaving("sim-words", {"kind": "server_error"}):
        last = events(fresh, extra_body={"podium": {"fallback": "none", "attempts_max": 1}})[-1]
    assert (last.type, last.response.status) == ("response.failed", "failed")
    assert last.response.error.code in ERROR_CODES and last.response.error.message
    assert last.response.podium["error_code"] == "final_step_failed"


def test_options_of_a_stream_are_accepted_without_one(able: Podium) -> None:
    response = create(able, stream_options={"include_obfuscation": True})
    assert response.status == "completed" and response.usage.total_tokens > 0


def test_a_request_to_compact_later_is_accepted(able: Podium) -> None:
    rule = {"type": "compaction", "compact_threshold": 100}
    assert create(able, context_management=[rule]).output_text


def test_a_conversation_and_an_earlier_response_exclude_each_other(able: Podium) -> None:
    first = create(able)
    with pytest.raises(openai.BadRequestError, match="mutually exclusive"):
        create(able, conversation="conv_test123", previous_response_id=first.id)


@pytest.mark.parametrize(("conversation", "status"), [("other_1", 400), ("conv_none1", 404)])
def test_an_unknown_conversation_is_rejected(able: Podium, conversation: str, status: int) -> None:
    with pytest.raises(openai.APIStatusError) as caught:
        create(able, conversation=conversation)
    assert caught.value.status_code == status and "conv" in str(caught.value).lower()


def test_a_response_in_the_background_is_queued_and_completes(able: Podium) -> None:
    response = create(able, background=True)
    assert (response.status, response.background, response.output) == ("queued", True, [])
    deadline = time.monotonic() + PATIENCE_S
    while response.status in ("queued", "in_progress"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
        response = able.openai().responses.retrieve(response.id)
    assert response.status == "completed" and response.output_text


def test_a_cancelled_response_stays_cancelled(fresh: Podium) -> None:
    client = fresh.openai(max_retries=0)
    with fresh.behaving("sim-words", {"kind": "hang"}):
        response = create(fresh, background=True)
        for _ in range(2):
            assert client.responses.cancel(response.id).status == "cancelled"
        again = client.responses.retrieve(response.id)
    assert (again.status, again.output) == ("cancelled", [])
    completed = create(fresh)
    with pytest.raises(openai.ConflictError, match="cannot be cancelled"):
        client.responses.cancel(completed.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.cancel("resp_fake_nonexistent_id")


def test_the_tokens_of_an_input_are_counted(able: Podium) -> None:
    counts = able.openai(max_retries=0).responses.input_tokens
    short = counts.count(model="podium-mini", input="Say hello.")
    assert (short.object, short.input_tokens > 0) == ("response.input_tokens", True)
    turns = [{"role": "user", "content": "Say hello."}] * 20
    assert counts.count(model="podium-mini", input=turns).input_tokens > short.input_tokens


@pytest.mark.parametrize(("is_parallel", "count"), [(True, 2), (False, 1)])
def test_parallel_calls_are_made_if_they_are_allowed(calling: Podium, is_parallel: bool, count: int) -> None:
    calls = [{"name": "get_weather", "arguments": '{"city": "Paris"}'}, {"name": "get_time", "arguments": '{"city": "London"}'}]
    with calling.replying("sim-echo", [{"calls": calls}]):
        response = create(calling, tools=[WEATHER, HOUR], parallel_tool_calls=is_parallel)
    made = [item for item in response.output if item.type == "function_call"]
    assert (response.parallel_tool_calls, len(made)) == (is_parallel, count)


def test_a_user_may_write_before_the_output_of_a_call(calling: Podium) -> None:
    with calling.replying("sim-echo", [{"calls": [{"name": "get_weather", "arguments": '{"city": "Paris"}'}]}]):
        first = create(calling, tools=[WEATHER])
    (call,) = first.output
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "It rains."}
    sent = [{"role": "user", "content": "Say hello."}, output]
    assert len(create(calling, input=sent, tools=[WEATHER], previous_response_id=first.id).output) == 1
    turns = [{"role": "user", "content": "Say hello."}, call, output]
    assert len(create(calling, input=turns, tools=[WEATHER]).output) == 1


@pytest.mark.parametrize("mode", ["required", "auto"])
def test_a_choice_among_allowed_tools_is_honoured(calling: Podium, mode: str) -> None:
    allowed = {"type": "allowed_tools", "mode": mode, "tools": [{"type": "function", "name": "get_weather"}]}
    response = create(calling, input="Ask get_weather.", tools=[WEATHER, HOUR], tool_choice=allowed)
    made = [item.name for item in response.output if item.type == "function_call"]
    assert response.status == "completed" and set(made) <= {"get_weather"}
    assert made or mode == "auto"


def test_a_compaction_keeps_what_users_said(able: Podium) -> None:
    client = able.openai(max_retries=0)
    turns = [
        {"role": "user", "content": "What is the weather?"},
        {"role": "assistant", "content": "It is 65 F."},
        {"role": "user", "content": "Thanks!"},
    ]
    first = client.responses.compact(model="podium-mini", input=turns)
    assert [item.type for item in first.output] == ["message", "message", "compaction"]
    again = [*[item.to_dict() for item in first.output], {"role": "user", "content": "And now?"}]
    second = client.responses.compact(model="podium-mini", input=again)
    assert [item.type for item in second.output].count("compaction") == 1
    response = create(able, input=again)
    items = client.responses.input_items.list(response.id).data
    assert {item.type for item in items} == {"message"}


def test_a_compaction_drops_calls(calling: Podium) -> None:
    turns = [
        {"role": "user", "content": "What is the weather?"},
        {"type": "function_call", "call_id": "call_1", "name": "get_weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": "65 F"},
        {"role": "assistant", "content": "It is 65 F."},
        {"role": "user", "content": "Thanks!"},
    ]
    output = calling.openai(max_retries=0).responses.compact(model="podium-mini", input=turns).output
    assert [item.type for item in output] == ["message", "message", "compaction"]


def test_an_earlier_response_is_compacted(able: Podium) -> None:
    first = create(able, input="What is the capital of France?")
    client = able.openai(max_retries=0)
    output = client.responses.compact(model="podium-mini", previous_response_id=first.id).output
    assert output[0].content[0].text == "What is the capital of France?"
    assert output[-1].type == "compaction"
