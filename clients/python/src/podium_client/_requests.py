"""Short constructors of requests."""

from collections.abc import Iterable
from typing import Any

from podium_client.v1 import podium_pb2, run_pb2


def question(text: str, **fields: Any) -> podium_pb2.CreateRunRequest:
    """A request with one message of the user; `fields` are further fields of `CreateRunRequest`."""
    return podium_pb2.CreateRunRequest(messages=[user_message(text)], **fields)


def system_message(text: str) -> run_pb2.Message:
    """Instructions of the caller's application."""
    return run_pb2.Message(role=run_pb2.ROLE_SYSTEM, text=text)


def user_message(text: str) -> run_pb2.Message:
    """A message of the user."""
    return run_pb2.Message(role=run_pb2.ROLE_USER, text=text)


def assistant_message(text: str, calls: Iterable[run_pb2.ToolCall] = ()) -> run_pb2.Message:
    """An earlier answer, with its tool calls."""
    parts = [run_pb2.Part(tool_call=call) for call in calls]
    return run_pb2.Message(role=run_pb2.ROLE_ASSISTANT, text=text, parts=parts)


def tool_result(call: run_pb2.ToolCall, output: str, *, is_error: bool = False) -> run_pb2.ToolResult:
    """The result of a call, or the error message of a tool that failed."""
    return run_pb2.ToolResult(call_id=call.id, output=output, is_error=is_error)


def tool_results_message(results: Iterable[run_pb2.ToolResult]) -> run_pb2.Message:
    """The results of the tool calls of the message before."""
    parts = [run_pb2.Part(tool_result=result) for result in results]
    return run_pb2.Message(role=run_pb2.ROLE_USER, parts=parts)
