"""The state of a watch: its place, and the live text that the caller has."""

import time
from typing import TypeAlias

from podium_client._connection import RetryPolicy
from podium_client._errors import CallError
from podium_client.v1 import event_pb2, podium_pb2, run_pb2

_Output: TypeAlias = tuple[int, int, int]

_FINAL = ("succeeded", "failed", "cancelled")
_ENDED = (run_pb2.RUN_STATE_SUCCEEDED, run_pb2.RUN_STATE_FAILED, run_pb2.RUN_STATE_CANCELLED)


class Place:
    """The events and text that the caller of a watch has, so that a resumed watch has no gap and no repetition."""

    def __init__(self, run_id: str, after_sequence: int, retry: RetryPolicy) -> None:
        self.run_id = run_id
        self.sequence = after_sequence
        self._retry = retry
        self._failures = 0
        self._heard_at = time.monotonic()
        self._is_final = False
        # Bytes of each output, and of the reasoning before it.
        self._written: dict[_Output, int] = {}
        self._reasoned: dict[_Output, int] = {}
        self._planning: int | None = None
        self._planning_cut: int | None = None
        self._calls: set[tuple[_Output, int]] = set()
        self._calls_cut: set[tuple[_Output, int]] = set()

    def request(self) -> podium_pb2.WatchRunRequest:
        """The request of a watch that continues here."""
        return podium_pb2.WatchRunRequest(run_id=self.run_id, after_sequence=self.sequence)

    def follows(self, update: podium_pb2.WatchRunResponse) -> bool:
        """Whether no event is missing before the update."""
        return update.WhichOneof("update") != "event" or update.event.sequence <= self.sequence + 1

    def unseen(self, update: podium_pb2.WatchRunResponse) -> podium_pb2.WatchRunResponse | None:
        """The part of the next update that the caller does not have."""
        self._failures, self._heard_at = 0, time.monotonic()
        kind = update.WhichOneof("update")
        if kind == "event":
            event = update.event
            if event.sequence <= self.sequence:
                return None
            self.sequence = event.sequence
            name = event.WhichOneof("kind")
            self._is_final |= name in _FINAL
            if name == "step_called":
                # The next turn of the step begins a new output.
                self._forget(event.step_called.round, event.step_called.step)
        elif kind == "planning_text":
            self._planning = update.planning_text.round
            if self._planning == self._planning_cut:
                return None
        elif kind == "step_text":
            return update if self._cut(update.step_text, self._written) else None
        elif kind == "step_reasoning":
            return update if self._cut(update.step_reasoning, self._reasoned) else None
        elif kind == "step_tool_call":
            return self._call(update)
        elif kind == "step_restarted":
            self._forget(update.step_restarted.round, update.step_restarted.step)
        else:
            return None
        return update

    def is_over(self, run: run_pb2.Run | None) -> bool:
        """Whether a watch that ended without an error was complete. `run` is needed if `needs_run`."""
        return self._is_final or (run is not None and run.state in _ENDED and run.sequence <= self.sequence)

    @property
    def needs_run(self) -> bool:
        return not self._is_final

    def resume_pause_s(self, error: CallError) -> float:
        """The connection was lost: how long to wait. Raises the error if no retry can help, or if it would come too late."""
        if self._planning is not None:
            self._planning_cut = self._planning
        self._calls_cut |= self._calls
        self._calls.clear()
        self._failures += 1
        pause = self._retry.pause_s(self._failures, error)
        if not error.is_transient or time.monotonic() - self._heard_at + pause > self._retry.resume_within_s:
            raise error
        return pause

    def _forget(self, round: int, step: int) -> None:
        self._written = {key: end for key, end in self._written.items() if key[:2] != (round, step)}
        self._reasoned = {key: end for key, end in self._reasoned.items() if key[:2] != (round, step)}
        self._calls = {call for call in self._calls if call[0][:2] != (round, step)}
        self._calls_cut = {call for call in self._calls_cut if call[0][:2] != (round, step)}

    @staticmethod
    def _cut(text: event_pb2.StepText | event_pb2.StepReasoning, known: dict[_Output, int]) -> bool:
        """Cuts the beginning that the caller has. Returns whether something is left."""
        key = (text.round, text.step, text.attempt)
        written, encoded = known.get(key, 0), text.text.encode()
        end = text.offset + len(encoded)
        if end <= written:
            return False
        seen = max(written - text.offset, 0)
        known[key] = end
        if seen:
            text.text = encoded[seen:].decode(errors="ignore")
            text.offset += seen
        return True

    def _call(self, update: podium_pb2.WatchRunResponse) -> podium_pb2.WatchRunResponse | None:
        piece = update.step_tool_call
        call = ((piece.round, piece.step, piece.attempt), piece.index)
        if call in self._calls_cut or not (piece.id or call in self._calls):
            return None
        self._calls.add(call)
        return update
