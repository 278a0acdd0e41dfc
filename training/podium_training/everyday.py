"""Questions in everyday words (`everyday.toml`), with exact answers and, for each, a plan in words that every worker understands."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from podium_training import exact, wordings
from podium_training.plan import Step

PATH = Path(__file__).resolve().parent.parent / "everyday.toml"
_FORMS = ("verb", "noun")


@dataclass(frozen=True)
class Everyday:
    """A question, its kind, its plan and its exact answer."""

    text: str
    tag: str
    steps: tuple[Step, ...]
    answer: str


def load(path: Path = PATH) -> list[Everyday]:
    """Reads the file. A `ValueError` names the question that is malformed."""
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    if data.get("schema") != 1:
        raise ValueError(f"{path}: schema {data.get('schema')!r} is not 1")
    return [_question(path, entry) for entry in data["question"]]


def records() -> Iterator[str]:
    """The lines of the file for `podium eval`. `plan` is the plan in plain words, which `podium eval` ignores."""
    for index, question in enumerate(load(), start=1):
        steps = [{"skill": step.skill, "subtask": step.subtask, "sees": list(step.access)} for step in question.steps]
        fields = {"id": f"everyday-{index:03}", "question": question.text, "answer": question.answer, "tags": [question.tag]}
        yield json.dumps(fields | {"plan": steps}, ensure_ascii=False)


def _question(path: Path, entry: dict) -> Everyday:
    outputs: list[str] = []
    steps: list[Step] = []
    for given in entry["steps"]:
        arguments = {name: value for name, value in given.items() if name != "op"}
        sees = tuple(int(value[1:]) - 1 for value in arguments.values() if value.startswith("#"))
        if any(seen >= len(outputs) for seen in sees) or given["op"] not in exact.RUN:
            raise ValueError(f"{path}: {entry['text']!r}: invalid step {given}")
        values = {name: outputs[int(value[1:]) - 1] if value.startswith("#") else value for name, value in arguments.items()}
        outputs.append(exact.RUN[given["op"]](values))
        steps.append(_step(given["op"], arguments, sees))
    return Everyday(entry["text"], entry["tag"], tuple(steps), outputs[-1])


def _step(operation: str, arguments: dict[str, str], sees: tuple[int, ...]) -> Step:
    """The step in the first wording of the operation that fits: with a literal or with an earlier output."""
    refused = "l" if sees else "r"
    known = wordings.load().operations[operation]
    template = next(text for form in _FORMS for text in known.templates("train", form) if refused not in wordings.slots(text))
    shown = ["the result"] if len(sees) == 1 else [f"result {index + 1}" for index in range(len(sees))]
    references = iter(shown)
    filled = {name: next(references) if value.startswith("#") else value for name, value in arguments.items()}
    main = filled.get("x", "")
    return Step(known.skill, wordings.fill(wordings.expansions(template)[0], filled | {"l": main, "r": main}), sees)
