"""The checks of the compliance suite of the Open Responses specification, written anew.

Each test has the name of a case of that suite. Bodies and events are checked against the types of the `openai` package, and
against the members that the specification requires.
"""

import base64
import json

import httpx
import pytest
from conftest import PATIENCE_S, Podium
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter
from websockets.sync.client import ClientConnection, connect

EVENT = TypeAdapter(ResponseStreamEvent)
REQUIRED = {
    "id", "object", "created_at", "completed_at", "status", "incomplete_details", "model", "previous_response_id",
    "instructions", "output", "error", "tools", "tool_choice", "truncation", "parallel_tool_calls", "text", "top_p",
    "presence_penalty", "frequency_penalty", "top_logprobs", "temperature", "reasoning", "user", "usage",
    "max_output_tokens", "max_tool_calls", "store", "background", "service_tier", "metadata", "safety_identifier",
    "prompt_cache_key",
}  # fmt: skip
LAST = {"response.completed", "response.failed", "response.incomplete", "error"}
MODEL = "podium-mini"
# A red square of two pixels by two.
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAIAAAD91JpzAAAAEElEQVR4nGP4z8AARAwQCgAf7gP9i18U1AAAAABJRU5ErkJggg=="
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather at a place.",
    "parameters": {"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]},
}


def check(response: dict) -> dict:
    """A response that has every required member, each of its type."""
    assert not REQUIRED - response.keys(), REQUIRED - response.keys()
    Response.model_validate(response)
    for item in response["output"]:
        assert item["id"] and item["type"]
    if response["usage"] is not None:
        details = {"input_tokens_details", "output_tokens_details"}
        assert not {"input_tokens", "output_tokens", "total_tokens", *details} - response["usage"].keys()
    return response


def check_events(events: list[dict]) -> dict:
    """The response at the end of a stream, whose events are valid and numbered without gaps."""
    assert events
    for number, event in enumerate(events):
        EVENT.validate_python(event)
        assert event["sequence_number"] == number
    assert events[-1]["type"] in LAST
    return check(events[-1]["response"])


def post(podium: Podium, body: dict, path: str = "responses") -> httpx.Response:
    return httpx.post(f"{podium.http}/v1/{path}", json=body, timeout=PATIENCE_S)


def respond(podium: Podium, text: str | list[dict], **parameters: object) -> dict:
    reply = post(podium, {"model": MODEL, "input": text, **parameters})
    assert reply.status_code == 200, reply.text
    response = check(reply.json())
    assert response["output"]
    return response


def said(response: dict) -> str:
    (message,) = [item for item in response["output"] if item["type"] == "message"]
    return message["content"][0]["text"]


def user(text: str | list[dict]) -> dict:
    return {"type": "message", "role": "user", "content": text}


def socket(podium: Podium) -> ClientConnection:
    return connect(f"{podium.http.replace('http', 'ws', 1)}/v1/responses", open_timeout=PATIENCE_S)


def turn(connection: ClientConnection, text: str | list[dict], **parameters: object) -> list[dict]:
    """The events of a request over a WebSocket."""
    connection.send(json.dumps({"type": "response.create", "model": MODEL, "input": text, **parameters}))
    events = []
    while not events or events[-1]["type"] not in LAST:
        events.append(json.loads(connection.recv(timeout=PATIENCE_S)))
    return events


def test_basic_response(able: Podium) -> None:
    assert respond(able, [user("Say hello in exactly 3 words.")])["status"] == "completed"


def test_assistant_phase(able: Podium) -> None:
    said_before = [
        {"type": "message", "role": "assistant", "phase": "commentary", "content": "I take the saved number."},
        {"type": "message", "role": "assistant", "phase": "final_answer", "content": "The number is four."},
    ]
    assert respond(able, [*said_before, user("Repeat the number.")])["status"] == "completed"


def test_response_output_phase_schema(calling: Podium) -> None:
    (message,) = respond(calling, [user("Hello.")])["output"]
    assert message["phase"] == "final_answer"
    with calling.replying("sim-echo", [{"text": "I look.", "calls": [{"name": "get_weather"}]}]):
        output = respond(calling, [user("Look.")], tools=[WEATHER])["output"]
    assert [(item["type"], item.get("phase")) for item in output] == [("message", "commentary"), ("function_call", None)]


def test_streaming_response(able: Podium) -> None:
    body = {"model": MODEL, "input": [user("Count from 1 to 5.")], "stream": True}
    blocks = post(able, body).text.split("\n\n")
    data = [line for block in blocks for line in block.splitlines() if line.startswith("data: ")]
    assert data.pop() == "data: [DONE]"
    response = check_events([json.loads(line.removeprefix("data: ")) for line in data])
    assert response["status"] == "completed"


def test_websocket_response(able: Podium) -> None:
    with socket(able) as connection:
        assert check_events(turn(connection, [user("Count from 1 to 3.")]))["status"] == "completed"


def test_websocket_sequential_responses(able: Podium) -> None:
    with socket(able) as connection:
        for text in ["first", "second"]:
            response = check_events(turn(connection, f"Reply with exactly: {text}", store=False))
            assert text in said(response)


def test_websocket_continuation(able: Podium) -> None:
    with socket(able) as connection:
        first = check_events(turn(connection, "Remember the code word: cobalt.", store=False))
        second = turn(connection, "What is the code word?", store=False, previous_response_id=first["id"])
        assert check_events(second)["previous_response_id"] == first["id"]


def test_websocket_continuation_of_a_suspended_run(calling: Podium) -> None:
    look = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}, "strict": False}
    options = {"model": "podium-ultra", "tools": [look], "store": False}
    with socket(calling) as connection:
        first = check_events(turn(connection, "Ask look.", **options))
        (call,) = first["output"]
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": "fine"}
        second = check_events(turn(connection, [output], previous_response_id=first["id"], **options))
        assert second["id"] == first["id"] + "_r1" and second["previous_response_id"] == first["id"]
        assert said(second) == "The tools gave: fine"
        third = check_events(turn(connection, "And now?", previous_response_id=second["id"], **options))
        assert third["previous_response_id"] == second["id"]


def test_websocket_reconnect_store_false_recovery(able: Podium) -> None:
    with socket(able) as connection:
        first = check_events(turn(connection, "Remember the code word: copper.", store=False))
    with socket(able) as connection:
        (error,) = turn(connection, "Continue.", store=False, previous_response_id=first["id"])
        assert error["error"]["code"] == "previous_response_not_found"
        assert check_events(turn(connection, [user("Start anew.")], store=False))["status"] == "completed"


def test_websocket_previous_response_not_found(able: Podium) -> None:
    with socket(able) as connection:
        missing = {"store": False, "previous_response_id": "resp_openresponses_missing_1"}
        (error,) = turn(connection, "This should fail.", **missing)
        assert error["error"]["code"] == "previous_response_not_found"


def test_websocket_failed_continuation_evicts_cache(able: Podium) -> None:
    output = {"type": "function_call_output", "call_id": "call_missing", "output": "No such call."}
    with socket(able) as connection:
        first = check_events(turn(connection, "Remember the code word: ember.", store=False))
        follow = {"store": False, "previous_response_id": first["id"]}
        assert turn(connection, [output], **follow)[-1]["type"] == "error"
        (error,) = turn(connection, "Try to continue.", **follow)
        assert error["error"]["code"] == "previous_response_not_found"


def test_websocket_compact_new_chain(able: Podium) -> None:
    conversation = [
        user([{"type": "input_text", "text": "Remember the code word: slate."}]),
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "OK."}]},
        user([{"type": "input_text", "text": "Compress this conversation."}]),
    ]
    output = post(able, {"model": MODEL, "input": conversation}, "responses/compact").json()["output"]
    with socket(able) as connection:
        events = turn(connection, [*output, user("Continue from here.")], store=False, tools=[])
        assert check_events(events)["status"] == "completed"


def test_system_prompt(able: Podium) -> None:
    system = {"type": "message", "role": "system", "content": "Speak like a pirate."}
    assert respond(able, [system, user("Say hello.")])["status"] == "completed"


def test_tool_calling(calling: Podium) -> None:
    output = respond(calling, [user("Ask get_weather about San Francisco.")], tools=[WEATHER])["output"]
    assert "function_call" in [item["type"] for item in output]


def test_image_input(able: Podium) -> None:
    image = {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"}
    assert respond(able, [user([{"type": "input_text", "text": "What do you see?"}, image])])["status"] == "completed"


def test_multi_turn(able: Podium) -> None:
    answer = {"type": "message", "role": "assistant", "content": "Hello Alice!"}
    asked = [user("My name is Alice."), answer, user("What is my name?")]
    assert respond(able, asked)["status"] == "completed"


def test_compact_response(able: Podium) -> None:
    answer = {"type": "message", "role": "assistant", "content": "Understood."}
    body = {"model": MODEL, "prompt_cache_key": "compact-test", "input": [user("We launch on Tuesday."), answer]}
    reply = post(able, body, "responses/compact")
    compacted = reply.json()
    assert (reply.status_code, compacted["object"]) == (200, "response.compaction")
    assert compacted["id"] and compacted["created_at"] and compacted["usage"]["total_tokens"] > 0
    kept, item = compacted["output"]
    assert (kept["type"], kept["role"], kept["content"][0]["text"]) == ("message", "user", "We launch on Tuesday.")
    assert item["type"] == "compaction" and item["id"] and item["encrypted_content"]


def test_compact_missing_model(able: Podium) -> None:
    reply = post(able, {"input": [user("Compact this conversation.")]}, "responses/compact")
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "model")


def test_function_call_roundtrip(calling: Podium) -> None:
    choice = {"type": "function", "name": "get_weather"}
    first = respond(calling, "Use the weather tool.", tools=[WEATHER], tool_choice=choice)
    (call,) = [item for item in first["output"] if item["type"] == "function_call"]
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "64 degrees and clear"}
    # The second request has no tools.
    second = respond(calling, [output], previous_response_id=first["id"])
    assert second["status"] == "completed"


def test_file_input(able: Podium) -> None:
    def asked(kind: str, data: bytes) -> list[dict]:
        file = f"data:{kind};base64,{base64.b64encode(data).decode()}"
        return [user([{"type": "input_text", "text": "Repeat."}, {"type": "input_file", "filename": "a", "file_data": file}])]

    assert "The title" in said(respond(able, asked("text/markdown", b"# The title")))
    assert "[pdf a.pdf data:application/pdf;base64,JVBERi0xLjE=]" in said(respond(able, asked("application/pdf", b"%PDF-1.1")))
    refused = post(able, {"model": MODEL, "input": asked("application/zip", b"PK")})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "input[0].content[1].file_data")


def test_previous_response_id(able: Podium) -> None:
    first = respond(able, "Remember this code word: papaya.")
    second = respond(able, "What code word?", previous_response_id=first["id"])
    assert (second["status"], second["previous_response_id"]) == ("completed", first["id"])


@pytest.mark.parametrize("name", ["custom", "namespace"])
def test_types_of_tools_that_agents_send(calling: Podium, name: str) -> None:
    inner = {**WEATHER, "strict": False}
    tool, worker, call, expected = {
        "custom": (
            {"type": "custom", "name": "patch", "description": "Patches."},
            "patch",
            {"input": "*** Begin\n+a \"b\""},
            {"type": "custom_tool_call", "name": "patch", "input": "*** Begin\n+a \"b\""},
        ),
        "namespace": (
            {"type": "namespace", "name": "crm", "description": "Customers.", "tools": [inner]},
            "crm__get_weather",
            {"location": "Oslo"},
            {"type": "function_call", "namespace": "crm", "name": "get_weather", "arguments": '{"location": "Oslo"}'},
        ),
    }[name]
    with calling.replying("sim-echo", [{"calls": [{"name": worker, "arguments": json.dumps(call)}]}]):
        response = respond(calling, [user("Go.")], tools=[tool, {"type": "web_search"}])
    (item,) = response["output"]
    assert {member: item.get(member) for member in expected} == expected
    assert response["podium"]["tools_left_out"] == ["web_search"]
    output = {"type": item["type"] + "_output", "call_id": item["call_id"], "output": "done"}
    again = respond(calling, [user("Go."), item, output], tools=[tool])
    assert again["status"] == "completed"
