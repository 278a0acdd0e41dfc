"""The parts of an answer."""

from dataclasses import dataclass
from typing import TypeAlias

from podium_client.v1 import podium_pb2, run_pb2


@dataclass(frozen=True)
class Text:
    """The next text of the answer."""

    text: str


@dataclass(frozen=True)
class Restarted:
    """The text so far is not the answer: discard it. The answer begins again."""


@dataclass(frozen=True)
class ToolCalls:
    """The run waits for the results of these calls: pass them to `submit_tool_results`, and read on."""

    run_id: str
    calls: tuple[run_pb2.ToolCall, ...]


@dataclass(frozen=True)
class Ended:
    """The run has ended; this is the last part.

    If it succeeded, all text since the last restart is its answer. The answer may have tool calls too, whose results begin a new
    run.
    """

    run: run_pb2.Run


AnswerPart: TypeAlias = Text | Restarted | ToolCalls | Ended


class Progress:
    """Turns the updates of a run into the parts of its answer."""

    def __init__(self) -> None:
        self._output: tuple[int, int, int] | None = None
        self._text = b""

    def is_suspended(self, update: podium_pb2.WatchRunResponse) -> bool:
        """Whether the update says that the run waits for the results of tool calls."""
        is_suspended: bool = update.event.WhichOneof("kind") == "suspended"
        if is_suspended:
            self._output = None
        return is_suspended

    def write(self, update: podium_pb2.WatchRunResponse) -> list[AnswerPart]:
        """Adds live text. Text after a gap is left out: the end of the run has it."""
        text = update.step_text
        if update.WhichOneof("update") != "step_text" or not text.is_answer:
            return []
        parts: list[AnswerPart] = []
        output = (text.round, text.step, text.attempt)
        if output != self._output:
            if text.offset > 0:
                return []
            self._restart(parts)
            self._output = output
        seen = len(self._text) - text.offset
        if seen >= 0:
            self._add(text.text.encode()[seen:], parts)
        return parts

    def end(self, run: run_pb2.Run) -> list[AnswerPart]:
        """Adds the rest of the answer, and the end."""
        parts: list[AnswerPart] = []
        if run.state == run_pb2.RUN_STATE_SUCCEEDED:
            answer = run.answer.encode()
            if not answer.startswith(self._text):
                self._restart(parts)
            self._add(answer[len(self._text) :], parts)
        return [*parts, Ended(run)]

    def _add(self, text: bytes, parts: list[AnswerPart]) -> None:
        if text:
            self._text += text
            parts.append(Text(text.decode(errors="replace")))

    def _restart(self, parts: list[AnswerPart]) -> None:
        if self._text:
            self._text = b""
            parts.append(Restarted())
