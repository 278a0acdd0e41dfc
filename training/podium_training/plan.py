"""The conductor's text: a plan as one reasoning line and three lists, written and read."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

SLOTS = {"arithmetic": 0, "words": 1, "dates": 2, "units": 3, "lists": 4, "facts": 5, "general": 6}
"""Slot of each skill in the demo pool, as `models/nano/conductor.toml` lists it."""

STEPS_MAX = 4
END = "<|im_end|>"

_PLAN = re.compile(r"\A([^\n]*)\nmodel_id = (\[.*\])\nsubtasks = (\[.*\])\naccess_list = (\[.*\])\Z")


@dataclass(frozen=True)
class Step:
    """One step of a plan: the skill it is for, its subtask and the indices of the earlier steps it sees."""

    skill: str
    subtask: str
    access: tuple[int, ...]


def prompt(question: str) -> str:
    """The prompt exactly as the conductor gets it."""
    return f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"


def _anchor(subtask: str) -> str:
    """How a subtask begins: up to two words, none of which is a reference that another word leads to."""
    words = subtask.split(" ")
    led_to = words[1:3] == ["the", "result"] or words[1:2] == ["result"]
    return " ".join(words[: 1 if led_to else 2])


def render(steps: list[Step], workers: Sequence[int] | None = None) -> str:
    """The assistant's turn for the steps, with its end token. Without `workers`, each step has the slot of its skill."""
    numbers = [SLOTS[step.skill] for step in steps] if workers is None else list(workers)
    parts = "; ".join(f'"{_anchor(step.subtask)}" {step.skill} {number}' for step, number in zip(steps, numbers, strict=True))
    slots = ", ".join(str(number) for number in numbers)
    subtasks = json.dumps([step.subtask for step in steps], ensure_ascii=False)
    access = json.dumps([list(step.access) for step in steps])
    return f"Parts: {parts}.\nmodel_id = [{slots}]\nsubtasks = {subtasks}\naccess_list = {access}{END}"


def lists(workers: Sequence[int], subtasks: Sequence[str], access: Sequence[Sequence[int]]) -> str:
    """The three lists of a plan, without reasoning."""
    texts = json.dumps(list(subtasks), ensure_ascii=False)
    return f"model_id = {list(workers)}\nsubtasks = {texts}\naccess_list = {json.dumps([list(seen) for seen in access])}"


@dataclass(frozen=True)
class ParsedPlan:
    """The three lists as read from a conductor's text."""

    slots: tuple[int, ...]
    subtasks: tuple[str, ...]
    access: tuple[tuple[int, ...], ...]


def parse(text: str) -> ParsedPlan | None:
    """Reads a conductor's text strictly; None unless it is a plan that Podium would accept."""
    match = _PLAN.match(text.split(END)[0])
    if match is None:
        return None
    try:
        slots, subtasks, access = (json.loads(match.group(index)) for index in (2, 3, 4))
    except json.JSONDecodeError:
        return None
    if not 1 <= len(slots) == len(subtasks) == len(access) <= STEPS_MAX:
        return None
    if not all(isinstance(slot, int) and 0 <= slot < len(SLOTS) for slot in slots):
        return None
    if not all(isinstance(subtask, str) for subtask in subtasks):
        return None
    for step, seen in enumerate(access):
        if not isinstance(seen, list) or not all(isinstance(index, int) and 0 <= index < step for index in seen):
            return None
    return ParsedPlan(tuple(slots), tuple(subtasks), tuple(tuple(seen) for seen in access))


def lists_of(steps: list[Step]) -> ParsedPlan:
    """The result that `parse` must give for the text of these steps."""
    return ParsedPlan(
        tuple(SLOTS[step.skill] for step in steps),
        tuple(step.subtask for step in steps),
        tuple(step.access for step in steps),
    )
