"""Rewards of completions, from `podium rollout` in a process of its own."""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any


@dataclass(frozen=True)
class Rollout:
    """A completion to carry out. `answer` and `grader` are as `podium rollout` documents them."""

    id: str
    question: str
    answer: str
    completion: str
    seed: int
    grader: str | dict[str, Any] = "exact"
    workers: tuple[str, ...] = ()
    """The workers that the positions mean, in order; the pool's if there are none."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a completion. `reward` is missing (None) if a worker or a grader failed: the rollout must be left out then."""

    id: str
    reward: float | None
    is_plan: bool
    is_right: bool | None
    problem: str | None
    workers: tuple[str, ...]
    cost_usd: float
    """The cost of the workers."""
    grading_cost_usd: float = 0.0


class RolloutsFailed(Exception):
    """The process ended; the message is what it printed last."""


class Rollouts:
    """A running `podium rollout`. Use it as a context manager."""

    def __init__(self, command: Sequence[str]) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        try:
            self._process = subprocess.Popen(
                list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True, encoding="utf-8"
            )
        except OSError as error:
            raise RolloutsFailed(f"cannot start {command[0]}: {error}") from error

    def __enter__(self) -> Rollouts:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        if kind is not None:
            self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._errors.close()

    def run(self, batch: Sequence[Rollout]) -> list[Outcome]:
        """The outcomes in the order of the batch. Ids must differ. The process limits how many are in flight."""
        # The process stops reading while it is busy, so writing must not wait for reading.
        writer = threading.Thread(target=self._write, args=(batch,), daemon=True)
        writer.start()
        found: dict[str, Outcome] = {}
        while len(found) < len(batch):
            line = self._process.stdout.readline() if self._process.stdout else ""
            if not line:
                raise RolloutsFailed(self._last_words())
            outcome = outcome_of(json.loads(line))
            found[outcome.id] = outcome
        writer.join()
        return [found[rollout.id] for rollout in batch]

    def _write(self, batch: Iterable[Rollout]) -> None:
        stdin = self._process.stdin
        if stdin is None:
            return
        try:
            for rollout in batch:
                stdin.write(json.dumps(asdict(rollout), ensure_ascii=False) + "\n")
            stdin.flush()
        except (BrokenPipeError, ValueError):
            pass  # The reader notices that the process has ended.

    def _last_words(self) -> str:
        self._process.wait()
        self._errors.seek(0)
        words = self._errors.read().decode(errors="replace").strip()
        return words[-2000:] or f"podium rollout ended with status {self._process.returncode}"


def outcome_of(line: dict[str, Any]) -> Outcome:
    """Reads a line of `podium rollout`."""
    return Outcome(
        id=line["id"],
        reward=line["reward"],
        is_plan=line["is_plan"],
        is_right=line["is_right"],
        problem=line["problem"],
        workers=tuple(step["worker"] for step in line["steps"]),
        cost_usd=line["cost_nano_usd"] / 1e9,
        grading_cost_usd=line["grading_cost_nano_usd"] / 1e9,
    )
