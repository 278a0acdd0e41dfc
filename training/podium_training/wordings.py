"""The wording bank, read and checked. The grammar of its templates is described at the top of `wordings.toml`.

Four splits of wordings:
- `train` and `test` are those of `wordings.toml`; the demo's skill workers understand them.
- `wide` is what a conductor learns from: `train` and most of `paraphrases.toml`, which no worker needs to understand.
- `valid` is the rest of `paraphrases.toml`: what choices are made on, so that `test` stays unseen.
"""

from __future__ import annotations

import hashlib
import math
import random
import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

WORDINGS_PATH = Path(__file__).resolve().parent.parent / "wordings.toml"
PARAPHRASES_PATH = WORDINGS_PATH.with_name("paraphrases.toml")
SPLITS = ("train", "test")
CONDUCTOR_SPLITS = ("wide", "valid")
_VALID_SHARE = 0.06
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


def plain(template: str) -> str:
    """A clause without what does not make it another wording: case, and whether its input must be a literal."""
    return re.sub(r"\{[lr]\}", "{x}", template.lower())


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
    topics: dict[str, list[str]]


@cache
def load(path: Path = WORDINGS_PATH, paraphrases: Path = PARAPHRASES_PATH) -> Bank:
    """Reads the bank; ValueError names what is malformed."""
    data, more = _read(path), _read(paraphrases)
    loose = {entry["id"]: entry for entry in more["op"]}
    if unknown := loose.keys() - {entry["id"] for entry in data["op"]}:
        raise ValueError(f"{paraphrases}: unknown operations {sorted(unknown)}")
    frames: dict[tuple[str, str], tuple[str, ...]] = {}
    for entry in data["frame"]:
        key = (entry["split"], entry["shape"])
        frames[key] = frames.get(key, ()) + tuple(entry["text"])
    for entry in more["frame"]:
        wide, valid = _divide(entry["text"])
        frames["wide", entry["shape"]] = frames["train", entry["shape"]] + wide
        frames["valid", entry["shape"]] = valid
    references = data["references"]
    both = {kind: words + more["references"][kind] for kind, words in references["train"].items()}
    general = data["general"]
    questions, kept = _divide(more["general"]["text"])
    topics = dict.fromkeys(SPLITS, general["topics"]) | dict.fromkeys(CONDUCTOR_SPLITS, general["topics"] + more["general"]["topics"])
    return Bank(
        operations={entry["id"]: _operation(path, entry, loose.get(entry["id"], {})) for entry in data["op"]},
        frames=frames,
        references=references | {"wide": both, "valid": both},
        units=tuple(tuple(group["names"]) for group in data["unit"]),
        subjects={group["op"]: tuple(group["names"]) for group in data["subject"]},
        general={"train": general["train"], "test": general["test"], "wide": [*general["train"], *questions], "valid": list(kept)},
        topics=topics,
    )


def clauses(bank: Bank, split: str) -> frozenset[str]:
    """Every clause of a split, expanded and plain."""
    return frozenset(
        plain(text)
        for operation in bank.operations.values()
        for templates in operation.clauses[split].values()
        for template in templates
        for text in expansions(template)
    )


def _read(path: Path) -> dict:
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    if data.get("schema") != 1:
        raise ValueError(f"{path}: schema {data.get('schema')!r} is not 1")
    return data


def _operation(path: Path, entry: dict, loose: dict) -> Operation:
    clauses: dict[str, dict[str, tuple[str, ...]]] = {split: {} for split in SPLITS + CONDUCTOR_SPLITS}
    for split in SPLITS:
        if unknown := entry[split].keys() - set(FORMS):
            raise ValueError(f"{path}: operation {entry['id']}: unknown form {sorted(unknown)}")
        clauses[split] = {form: tuple(texts) for form, texts in entry[split].items()}
    for form in FORMS:
        wide, valid = _divide(loose.get(form, []))
        clauses["wide"][form] = clauses["train"].get(form, ()) + wide
        clauses["valid"][form] = valid
    return Operation(entry["id"], entry["skill"], clauses)


def _divide(templates: list[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Templates to learn from, and a share of them (at least one) to validate on, chosen by their texts."""
    by_hash = sorted(templates, key=lambda text: hashlib.sha256(text.encode()).digest())
    kept = set(by_hash[: math.ceil(_VALID_SHARE * len(templates))])
    return tuple(text for text in templates if text not in kept), tuple(text for text in templates if text in kept)
