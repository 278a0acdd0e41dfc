"""Errors of the client."""

from dataclasses import dataclass
from typing import Any

import grpc
from google.rpc import error_details_pb2, status_pb2

_DETAILS = "grpc-status-details-bin"
_LOST = (grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL)
# Longest time that a limit may ask a client to wait before the call is repeated.
_LIMIT_DELAY_MAX_S = 60.0
_TRANSIENT = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.ABORTED)


@dataclass(frozen=True)
class FieldViolation:
    """A field of a request is invalid."""

    field: str
    """Its path, such as `policy.steps_max`."""
    description: str
    """The problem, for people."""


class CallError(Exception):
    """A call failed. The cause (`__cause__`) is the error of grpc."""

    def __init__(
        self,
        method: str,
        code: grpc.StatusCode,
        message: str,
        reason: str | None = None,
        fields: tuple[FieldViolation, ...] = (),
        retry_delay_s: float | None = None,
    ) -> None:
        shown = f"{code.name} ({reason})" if reason else code.name
        super().__init__(f"{method} failed with {shown}: {message}")
        self.method = method
        self.code = code
        """The status code; UNAVAILABLE if the connection was lost before the server answered."""
        self.message = message
        self.reason = reason
        """The server's stable reason, such as `IDEMPOTENCY_MISMATCH`. None: the error is of the connection or of a proxy."""
        self.fields = fields
        """The invalid fields of the request, the first dozen at most."""
        self.retry_delay_s = retry_delay_s
        """The time in seconds that the server asks the client to wait before it repeats the call."""

    @property
    def is_transient(self) -> bool:
        """Whether the same call may succeed later. Calls are repeated for this reason only."""
        if self.code is grpc.StatusCode.RESOURCE_EXHAUSTED:
            # A limit that the server expects to have room again soon. A budget's next period may be weeks away.
            return self.retry_delay_s is not None and self.retry_delay_s <= _LIMIT_DELAY_MAX_S
        return self.code in _TRANSIENT


def call_error(method: str, error: Any) -> CallError:
    """The error of a call, from that of grpc or of grpc.aio."""
    info, bad, retry = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest(), error_details_pb2.RetryInfo()
    retry_delay_s, has_details = None, False
    for key, value in error.trailing_metadata() or ():
        if key != _DETAILS:
            continue
        has_details = True
        for detail in status_pb2.Status.FromString(value).details:
            for message in (info, bad, retry):
                if detail.Is(message.DESCRIPTOR):
                    detail.Unpack(message)
                    if message is retry:
                        retry_delay_s = retry.retry_delay.ToTimedelta().total_seconds()
    code = error.code()
    # Podium's own errors always have details.
    if code in _LOST and not has_details:
        code = grpc.StatusCode.UNAVAILABLE
    fields = tuple(FieldViolation(one.field, one.description) for one in bad.field_violations)
    return CallError(method, code, error.details() or "", info.reason or None, fields, retry_delay_s)
