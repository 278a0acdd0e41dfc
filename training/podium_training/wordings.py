"""The wording bank `wordings.toml`, read and checked. The grammar of its templates is described at the top of that file."""

from __future__ import annotations

import random
import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

WORDINGS_PATH = Path(__file__).resolve().parent.parent / "wordings.toml"
SPLITS = ("train", "test")
FORMS = ("noun", "verb", "ask")

_CHOICE = re.compile(r"\[([^\[\]]*)\]")
_SLOT = re.compile(r"\{([A-Za-z]\w*(?:\.\w+)?)\}")


def expand(template: str, rng: random.Random) -> str:
    """Picks one alternative of every `[a|b|]` and collapses the spaces that an empty one leaves behind."""
    text = _CHOICE.sub(lambda match: rng.choice(match.group(1).split("|")), template)
    return re.sub(r" +", " ", text).strip()


def expansions(template: str) -> list[str]:
    """Every text that `expand` can give for the template."""
    match = _CHOICE.search(template)
    if match is None:
        return [re.sub(r" +", " ", template).strip()]
    before, after = template[: match.start()], template[match.end() :]
    return [text for choice in match.group(1).split("|") for text in expansions(before + choice + after)]


def slots(template: str) -> list[str]:
    """The names of the slots of a template, in the order of the text: `x`, `A.noun`."""
    return _SLOT.findall(template)


def fill(template: str, values: dict[str, str]) -> str:
    """Puts a text into every slot. A slot without a value is a KeyError: the caller always knows what its template needs."""
    return _SLOT.sub(lambda match: values[match.group(1)], template)


@dataclass(frozen=True)
class Operation:
    """One operation: its skill and its clause templates, by split and form."""

    id: str
    skill: str
    clauses: dict[str, dict[str, tuple[str, ...]]]

    def templates(self, split: str, form: str) -> tuple[str, ...]:
        """The clause templates of one split in one form; empty where the operation has none."""
        return self.clauses[split].get(form, ())


@dataclass(frozen=True)
class Bank:
    """The whole wording bank."""

    operations: dict[str, Operation]
    frames: dict[tuple[str, str], tuple[str, ...]]
    references: dict[str, dict[str, list[str]]]
    units: tuple[tuple[str, ...], ...]
    subjects: dict[str, tuple[str, ...]]
    general: dict[str, list[str]]


@cache
def load(path: Path = WORDINGS_PATH) -> Bank:
    """Reads the bank; ValueError names what is malformed."""
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    if data.get("schema") != 1:
        raise ValueError(f"{path}: schema {data.get('schema')!r} is not 1")
    operations = {}
    for entry in data["op"]:
        clauses = {split: {form: tuple(texts) for form, texts in entry[split].items()} for split in SPLITS}
        for split in SPLITS:
            unknown = set(clauses[split]) - set(FORMS)
            if unknown:
                raise ValueError(f"{path}: operation {entry['id']}: unknown form {sorted(unknown)}")
        operations[entry["id"]] = Operation(entry["id"], entry["skill"], clauses)
    frames: dict[tuple[str, str], tuple[str, ...]] = {}
    for entry in data["frame"]:
        key = (entry["split"], entry["shape"])
        frames[key] = frames.get(key, ()) + tuple(entry["text"])
    return Bank(
        operations=operations,
        frames=frames,
        references=data["references"],
        units=tuple(tuple(group["names"]) for group in data["unit"]),
        subjects={group["op"]: tuple(group["names"]) for group in data["subject"]},
        general=data["general"],
    )
