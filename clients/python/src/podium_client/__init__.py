"""Client for Podium over its gRPC API `podium.v1`: `Client` for threads, `AsyncClient` for asyncio."""

from podium_client._answer import AnswerPart, Ended, Restarted, Text, ToolCalls
from podium_client._async import AsyncAnswer, AsyncClient, AsyncWatch
from podium_client._connection import RetryPolicy, Tls
from podium_client._errors import CallError, FieldViolation
from podium_client._requests import (
    assistant_message,
    question,
    system_message,
    tool_result,
    tool_results_message,
    user_message,
)
from podium_client._sync import Answer, Client, Watch

__all__ = [
    "Answer",
    "AnswerPart",
    "AsyncAnswer",
    "AsyncClient",
    "AsyncWatch",
    "CallError",
    "Client",
    "Ended",
    "FieldViolation",
    "Restarted",
    "RetryPolicy",
    "Text",
    "Tls",
    "ToolCalls",
    "Watch",
    "assistant_message",
    "question",
    "system_message",
    "tool_result",
    "tool_results_message",
    "user_message",
]
