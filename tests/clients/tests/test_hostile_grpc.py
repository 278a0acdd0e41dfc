"""Hostile requests over gRPC: wrong values are rejected with the name of their field, and invalid bytes without harm to the server.
Requests are estimated, not run, so none may call a worker."""

import pathlib
import random
from collections.abc import Iterator

import grpc
import pytest
from conftest import PATIENCE_S, Generated, Podium, roomy_pool, serve_pool
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from hostile_files import FILES_GROWTH_MAX, GROWTH_MAX_KB

ESTIMATE = "/podium.v1.PodiumService/EstimateRun"
MUTATIONS = 300
# Allowed results of bytes that are another request or no request.
ALLOWED = {grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.FAILED_PRECONDITION}


def wrong_requests(generated: Generated) -> Iterator[tuple[dict, str]]:
    """Fields of a request, and the name of the wrong one."""
    run = generated.run
    user = {"role": run.ROLE_USER, "text": "why?"}
    call = {"id": "c", "name": "look", "arguments": "{}"}
    called = {"role": run.ROLE_ASSISTANT, "parts": [{"tool_call": call}]}
    tool = {"name": "look", "parameters": '{"type": "object"}'}
    part = lambda part: {"messages": [{**user, "parts": [part]}]}  # noqa: E731
    for role in (0, 4, -1, 2**31 - 1):
        yield {"messages": [{**user, "role": role}]}, "messages[0].role"
    for messages in ([], [{**user, "text": " \t"}], [user, {**user, "role": run.ROLE_ASSISTANT}], [user] * 1001, [user, called]):
        yield {"messages": messages}, "messages"
    yield {"messages": [{**user, "text": "x" * (1 << 20) + "x"}]}, "messages"
    yield {"messages": [{**user, "parts": [{"text": "x"}] * 257}]}, "messages"
    for url in ("", "x", "file:///etc/passwd", "javascript:1", "http://"):
        yield part({"image": {"url": url}}), "messages[0].parts[0]"
    for media_type in ("", "image/bmp", "text/html", "image/png\u0000"):
        yield part({"image": {"data": {"media_type": media_type, "data": b"x"}}}), "messages[0].parts[0]"
    for url in ("", "x", "file:///etc/passwd", "data:application/pdf;base64,JVBERi0=", "http://"):
        yield part({"file": {"url": url}}), "messages[0].parts[0]"
    for media_type in ("", "text/plain", "application/pdf\u0000"):
        yield part({"file": {"data": {"media_type": media_type, "data": b"x"}}}), "messages[0].parts[0]"
    for file in ({}, {"name": "a\nb", "url": "https://example.org/a"}, {"data": {"media_type": "application/pdf"}}):
        yield part({"file": file}), "messages[0].parts[0]"
    yield part({}), "messages[0].parts[0]"
    yield part({"image": {}}), "messages[0].parts[0]"
    for name in ("", "a b", "é", "a" * 129, "a\u0000"):
        yield {"tools": [{**tool, "name": name}]}, "tools[0]"
    for parameters in ("{", "[]", "7", '"x"', "null", "[" * 1000):
        yield {"tools": [{**tool, "parameters": parameters}]}, "tools[0]"
    yield {"tools": [tool, tool]}, "tools[1]"
    yield {"tools": [{**tool, "name": f"t{number}"} for number in range(129)]}, "tools"
    yield {"tools": [tool], "tool_choice": {"name": "other"}}, "tool_choice"
    yield {"tools": [tool], "tool_choice": {"mode": 9}}, "tool_choice"
    for name, schema in (("", "{}"), ("a b", "{}"), ("a" * 65, "{}")):
        yield {"response_format": {"json_schema": {"name": name, "schema": schema}}}, "response_format.json_schema.name"
    for schema in ("{", "[]", "7", "[" * 1000):
        yield {"response_format": {"json_schema": {"name": "a", "schema": schema}}}, "response_format.json_schema.schema"
    yield {"response_format": {}}, "response_format"
    for stop in ([""], ["x"] * 5, ["x" * 65]):
        yield {"stop": stop}, "stop"
    for request_id in ("a b", "é", "x" * 129, "\u0000", "\n"):
        yield {"request_id": request_id}, "request_id"
    yield {"effort": 99}, "effort"
    yield {"answer_tokens_max": 0}, "answer_tokens_max"
    nan, infinity = float("nan"), float("inf")
    for temperature in (nan, infinity, -infinity, -0.1, 2.1):
        yield {"sampling": {"temperature": temperature}}, "sampling.temperature"
    for top_p in (nan, infinity, -0.1, 1.1):
        yield {"sampling": {"top_p": top_p}}, "sampling.top_p"
    for name in ("fallback", "broken_answer", "failed_step", "step_cache"):
        for value in (9, -1):
            yield {"policy": {name: value}}, f"policy.{name}"
    for name in ("steps_max", "rounds_max", "attempts_max", "deadline_ms", "output_bytes_max"):
        for value in (0, 2**32 - 1):
            yield {"policy": {name: value}}, f"policy.{name}"
    for names in (["no such name!"], ["a"] * 1001, ["\u0000"]):
        yield {"policy": {"workers_allowed": names}}, "policy.workers_allowed"


def fields_of(error: grpc.RpcError) -> list[str]:
    for detail in rpc_status.from_call(error).details:
        bad = error_details_pb2.BadRequest()
        if detail.Is(bad.DESCRIPTOR):
            detail.Unpack(bad)
            return [violation.field for violation in bad.field_violations]
    return []


def complaints(stub: object, generated: Generated) -> list[str]:
    """Sends all wrong requests, and returns what is wrong with the answers."""
    wrong = []
    for fields, name in wrong_requests(generated):
        message = {"role": generated.run.ROLE_USER, "text": "why?"}
        request = generated.podium.EstimateRunRequest(run={"messages": [message], **fields})
        try:
            stub.EstimateRun(request, timeout=PATIENCE_S)
            wrong.append(f"{name}: accepted {str(fields)[:200]}")
        except grpc.RpcError as error:
            named = fields_of(error)
            is_named = any(field.startswith(name) for field in named)
            if error.code() != grpc.StatusCode.INVALID_ARGUMENT or not is_named:
                wrong.append(f"{name}: {error.code()} {named} {error.details()[:200]} for {str(fields)[:200]}")
    return wrong


def test_wrong_values_are_rejected_by_name(podium: Podium, stub: object, generated: Generated) -> None:
    calls = len(podium.calls())
    wrong = complaints(stub, generated)
    assert not wrong, "\n".join(wrong)
    assert len(podium.calls()) == calls


def codes_of_invalid_bytes(channel: grpc.Channel, generated: Generated) -> set[grpc.StatusCode]:
    """Sends a request whose bytes are changed at random, many times, and returns the codes of the answers."""
    dice = random.Random(7)
    run = generated.run
    message = {"role": run.ROLE_USER, "text": "why?", "parts": [{"image": {"url": "https://example.org/a.png"}}]}
    tools = [{"name": "look", "parameters": '{"type": "object"}'}]
    request = {"messages": [message], "tools": tools, "policy": {"steps_max": 3, "workers_allowed": ["a"]}, "stop": ["x"]}
    good = generated.podium.EstimateRunRequest(run=request).SerializeToString()
    send = channel.unary_unary(ESTIMATE, request_serializer=None, response_deserializer=None)
    codes = set()
    for _ in range(MUTATIONS):
        body = bytearray(good)
        for _ in range(dice.randint(1, 4)):
            place = dice.randrange(len(body))
            match dice.randrange(4):
                case 0:
                    body[place] = dice.randrange(256)
                case 1:
                    del body[place : place + dice.randint(1, 8)]
                case 2:
                    body[place:place] = dice.randbytes(dice.randint(1, 8))
                case 3:
                    body[place:place] = b"\xff" * 10
            body = body or bytearray(b"\x0a")
        try:
            send(bytes(body), timeout=PATIENCE_S)
            codes.add(grpc.StatusCode.OK)
        except grpc.RpcError as error:
            codes.add(error.code())
    return codes


def test_invalid_bytes_do_no_harm(channel: grpc.Channel, generated: Generated) -> None:
    codes = codes_of_invalid_bytes(channel, generated)
    assert grpc.StatusCode.INVALID_ARGUMENT in codes
    assert codes <= ALLOWED, codes - ALLOWED


def test_hostile_calls_leave_no_memory_and_no_files_behind(
    tmp_path: pathlib.Path, vendor: str, generated: Generated
) -> None:
    process, podium = serve_pool(tmp_path, vendor, "direct:caller", roomy_pool(vendor, caller="sim-echo"))
    try:
        with grpc.insecure_channel(podium.grpc) as channel:
            stub = generated.service.PodiumServiceStub(channel)

            def assault() -> tuple[int, int]:
                for _ in range(3):
                    assert not complaints(stub, generated)
                    codes_of_invalid_bytes(channel, generated)
                return process.memory_kb(), process.files()

            memory, files = assault()
            memory_after, files_after = assault()
        assert memory_after - memory < GROWTH_MAX_KB
        assert files_after - files <= FILES_GROWTH_MAX
    finally:
        process.stop()


@pytest.mark.parametrize("method", ["GetRun", "CancelRun", "WatchRun", "RateRun"])
@pytest.mark.parametrize("run_id", ["", "x", "../../etc/passwd", "0" * 36, "\u0000", "x" * 100_000])
def test_ids_that_no_run_has_are_rejected(stub: object, generated: Generated, method: str, run_id: str) -> None:
    request = getattr(generated.podium, f"{method}Request")(run_id=run_id)
    with pytest.raises(grpc.RpcError) as caught:
        answer = getattr(stub, method)(request, timeout=PATIENCE_S)
        list(answer)
    assert caught.value.code() in {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND}
