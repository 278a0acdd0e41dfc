"""Questions of one to four steps with their exact answers and the plan a conductor should write for them."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

from podium_training import literals, wordings
from podium_training.operations import DATE, INTEGER, JOINS, NAMES, NUMBER, NUMBERS, RULES, TEXT, WORD, Value, run
from podium_training.plan import Step
from podium_training.wordings import Bank

GENERAL = "general"
_SHAPES = {
    "train": {"single": 18, "chain2": 26, "chain3": 20, "inverted": 20, "join": 7, "join_parts": 6, "join_then": 7, GENERAL: 6},
    "wide": {"single": 14, "chain2": 26, "chain3": 30, "inverted": 24, "join": 11, "join_parts": 11, "join_then": 16, GENERAL: 4},
    "valid": {"single": 14, "chain2": 28, "chain3": 22, "inverted": 18, "join": 6, "join_parts": 4, "join_then": 8},
    "test": {"single": 14, "chain2": 28, "chain3": 22, "inverted": 18, "join": 6, "join_parts": 4, "join_then": 8},
}
_SKILL_CHANGE = 0.85
_WORD_NOISE = 0.25
# Units have one operation and words have ten: drawn evenly, every second step would be a conversion.
_NEXT_WEIGHTS = {"arithmetic": 4, "words": 4, "dates": 2, "units": 2, "lists": 4}
_REFERENCE_KIND = {INTEGER: "number", NUMBER: "number", DATE: "date", WORD: "text", TEXT: "text", NUMBERS: "list", NAMES: "list"}


@dataclass(frozen=True)
class Question:
    """A question, its plan, its exact answer (None for a general question) and where it came from."""

    text: str
    steps: tuple[Step, ...]
    answer: str | None
    operations: tuple[str, ...]
    shape: str


@dataclass(frozen=True)
class _Call:
    """One operation with its arguments: `source` is a literal main input, None where it works on an earlier output or has none."""

    operation: str
    arguments: dict[str, str]
    source: Value | None
    takes_input: bool
    output: Value


class _Unsuitable(Exception):
    """A drawn combination cannot be worded; draw again."""


class Generator:
    """Draws questions of one split. The same seed gives the same questions."""

    def __init__(self, split: str, seed: int, *, noise: float = 0.0, bank: Bank | None = None) -> None:
        self.split = split
        self.rng = random.Random(f"{split}-{seed}")
        self.noise = noise
        self.bank = bank or wordings.load()
        self.vocabulary = vocabulary(self.bank)
        self.forbidden = wordings.clauses(self.bank, "test") if noise else frozenset()

    def draw(self) -> Question:
        """The next question."""
        shapes = _SHAPES[self.split]
        while True:
            shape = self.rng.choices(list(shapes), list(shapes.values()))[0]
            try:
                if shape == GENERAL:
                    return self._general()
                return self._joined(shape) if shape.startswith("join") else self._chained(shape)
            except _Unsuitable:
                continue

    # ------------------------------------------------------------ drawing operations

    def _skill_of(self, operation: str) -> str:
        return self.bank.operations[operation].skill

    def _first(self, kinds: tuple[str, ...] | None = None) -> _Call:
        skill = self.rng.choice(("arithmetic", "words", "dates", "units", "lists", "facts"))
        operation = self.rng.choice([name for name in RULES if self._skill_of(name) == skill])
        rule = RULES[operation]
        source = rule.literal(self.rng, self.split) if rule.literal else None
        call = self._call(operation, source, source)
        if kinds and call.output.kind not in kinds:
            raise _Unsuitable
        return call

    def _next(self, before: list[_Call]) -> _Call:
        value = before[-1].output
        possible = [name for name, rule in RULES.items() if value.kind in rule.accepts]
        if self.rng.random() < _SKILL_CHANGE:
            used = {self._skill_of(call.operation) for call in before}
            possible = [name for name in possible if self._skill_of(name) not in used]
        if not possible:
            raise _Unsuitable
        skills = sorted({self._skill_of(name) for name in possible})
        skill = self.rng.choices(skills, [_NEXT_WEIGHTS[name] for name in skills])[0]
        operation = self.rng.choice([name for name in possible if self._skill_of(name) == skill])
        return self._call(operation, None, value)

    def _call(self, operation: str, source: Value | None, value: Value | None) -> _Call:
        arguments = RULES[operation].arguments(self.rng, self.bank, value)
        if arguments is None:
            raise _Unsuitable
        output = run(operation, arguments | ({"x": value.text} if value else {}), value)
        if output is None:
            raise _Unsuitable
        return _Call(operation, arguments, source, value is not None, output)

    # ------------------------------------------------------------ wording a clause

    def _template(self, call: _Call, form: str) -> str:
        templates = self.bank.operations[call.operation].templates(self.split, form)
        refused = "r" if call.source else "l"
        templates = tuple(text for text in templates if refused not in wordings.slots(text))
        if not templates:
            raise _Unsuitable
        return self._disturb(wordings.expand(self.rng.choice(templates), self.rng))

    def _disturb(self, template: str) -> str:
        """With some noise, replaces words of a clause, mostly by invented ones: a wording never seen before must be copied all the same,
        and its skill be seen from what remains."""
        if self.rng.random() >= self.noise:
            return template
        words = template.split(" ")
        for index, word in enumerate(words):
            if word.isalpha() and self.rng.random() < _WORD_NOISE:
                known = self.rng.random() < 0.5
                words[index] = self.rng.choice(self.vocabulary) if known else literals.invented_word(self.rng)
        text = " ".join(words)
        return template if wordings.plain(text) in self.forbidden else text

    def _clause(self, call: _Call, form: str, question_input: str, subtask_input: str) -> tuple[str, str]:
        """The clause in the question and the subtask in the plan: one template, two inputs."""
        template = self._template(call, form)
        main = self._literal(call.source) if call.source else None
        slots = set(wordings.slots(template))
        asked = call.arguments | {name: main or question_input for name in ("x", "l", "r") if name in slots}
        planned = call.arguments | {name: main or subtask_input for name in ("x", "l", "r") if name in slots}
        return wordings.fill(template, asked), wordings.fill(template, planned)

    def _literal(self, value: Value) -> str:
        if value.kind == WORD:
            return self.rng.choice(("the word {}", "{}", "'{}'", "the word '{}'")).format(value.text)
        if value.kind == TEXT:
            return self.rng.choice(("'{}'", "{}")).format(value.text) if value.text.isascii() else value.text
        return value.text

    def _reference(self, value: Value) -> str:
        references = self.bank.references[self.split]
        return self.rng.choice(references["any"] * 2 + references[_REFERENCE_KIND[value.kind]])

    def _frame(self, shape: str) -> str:
        frame = self.rng.choice(self.bank.frames[self.split, shape])
        return wordings.expand(frame, self.rng)

    # ------------------------------------------------------------ shapes

    def _chained(self, shape: str) -> Question:
        counts = {"single": (1,), "chain2": (2,), "chain3": (3,), "inverted": (2, 2, 3)}
        calls = [self._first()]
        while len(calls) < self.rng.choice(counts[shape]) or (shape == "chain3" and len(calls) < 3):
            calls.append(self._next(calls))
        if shape == "inverted" and len(calls) == 1:
            raise _Unsuitable
        frame = self._frame(shape)
        slot_texts: dict[str, str] = {}
        subtasks = [""] * len(calls)
        for slot in wordings.slots(frame):
            name, form = slot.split(".")
            if name == "Z":
                slot_texts[slot], subtasks = self._nested(calls, form)
            else:
                index = "ABC".index(name)
                reference = self._reference(calls[index - 1].output) if index else ""
                slot_texts[slot], subtasks[index] = self._clause(calls[index], form, reference, "the result")
        access: list[tuple[int, ...]] = [() if index == 0 else (index - 1,) for index in range(len(calls))]
        return self._question(frame, slot_texts, calls, subtasks, access, shape)

    def _nested(self, calls: list[_Call], form: str) -> tuple[str, list[str]]:
        """The last clause with all earlier ones inside it, and the subtask of each."""
        text, subtask = self._clause(calls[0], "noun", "", "")
        subtasks = [subtask]
        for index, call in enumerate(calls[1:], start=1):
            text, subtask = self._clause(call, form if index == len(calls) - 1 else "noun", text, "the result")
            subtasks.append(subtask)
        return text, subtasks

    def _joined(self, shape: str) -> Question:
        numeric = (INTEGER, NUMBER)
        first, second = self._first(numeric), self._first(numeric)
        operation = self.rng.choice(JOINS)
        swapped = shape == "join_parts" and self.rng.random() < 0.3
        x, y = (second, first) if swapped else (first, second)
        output = run(operation, {"x": x.output.text, "y": y.output.text}, None)
        if output is None:
            raise _Unsuitable
        calls = [first, second, _Call(operation, {}, None, True, output)]
        if shape == "join_then":
            calls.append(self._next(calls))
        frame = self._frame(shape)
        slot_texts: dict[str, str] = {}
        subtasks = [""] * len(calls)
        for slot in wordings.slots(frame):
            name, form = slot.split(".")
            if name in "AB":
                index = "AB".index(name)
                slot_texts[slot], subtasks[index] = self._clause(calls[index], form, "", "")
            elif name == "C":
                slot_texts[slot], subtasks[3] = self._clause(calls[3], form, self._reference(output), "the result")
            elif shape == "join_parts":
                slot_texts[slot], subtasks[2] = self._join_of_references(operation, form, swapped=swapped)
            else:
                slot_texts[slot] = self._join_of_clauses(calls, form if name == "J" else "noun", subtasks)
                if name == "Z":
                    slot_texts[slot], subtasks[3] = self._clause(calls[3], form, slot_texts[slot], "the result")
        access = [(), (), (0, 1), (2,)][: len(calls)]
        return self._question(frame, slot_texts, calls, subtasks, access, shape)

    def _join_template(self, operation: str, form: str) -> str:
        templates = self.bank.operations[operation].templates(self.split, form)
        return self._disturb(wordings.expand(self.rng.choice(templates), self.rng))

    def _join_of_references(self, operation: str, form: str, *, swapped: bool) -> tuple[str, str]:
        template = self._join_template(operation, form)
        references = self.bank.references[self.split]
        index = self.rng.randrange(len(references["first"]))
        asked, planned = [references["first"][index], references["second"][index]], ["result 1", "result 2"]
        if swapped:
            asked.reverse()
            planned.reverse()
        x, y = asked
        return wordings.fill(template, {"x": x, "y": y}), wordings.fill(template, {"x": planned[0], "y": planned[1]})

    def _join_of_clauses(self, calls: list[_Call], form: str, subtasks: list[str]) -> str:
        """The join with its two inputs nested; writes the first three subtasks."""
        template = self._join_template(calls[2].operation, form)
        first, subtasks[0] = self._clause(calls[0], "noun", "", "")
        second, subtasks[1] = self._clause(calls[1], "noun", "", "")
        subtasks[2] = wordings.fill(template, {"x": "result 1", "y": "result 2"})
        return wordings.fill(template, {"x": first, "y": second})

    def _general(self) -> Question:
        topic, other = self.rng.sample(self.bank.topics[self.split], 2)
        template = wordings.expand(self.rng.choice(self.bank.general[self.split]), self.rng)
        text = sentences(wordings.fill(template, {"t": topic, "t2": other}))
        return Question(text, (Step(GENERAL, text, ()),), None, (GENERAL,), GENERAL)

    def _question(
        self, frame: str, slot_texts: dict[str, str], calls: list[_Call], subtasks: list[str], access: list[tuple[int, ...]], shape: str
    ) -> Question:
        if self.rng.random() < self.noise:
            frame = self._disturb_frame(frame)
        text = sentences(wordings.fill(frame, slot_texts))
        if self.rng.random() < self.noise / 2:
            text = text.rstrip(".?")
        skills = [self._skill_of(call.operation) for call in calls]
        steps = tuple(Step(skill, subtask, seen) for skill, subtask, seen in zip(skills, subtasks, access, strict=True))
        return Question(text, steps, calls[-1].output.text, tuple(call.operation for call in calls), shape)

    def _disturb_frame(self, frame: str) -> str:
        """Replaces or adds a few words of a frame, so that a frame never seen before is passed over too."""
        words = frame.split(" ")
        for index, word in enumerate(words):
            if word.isalpha() and self.rng.random() < 0.3:
                words[index] = literals.invented_word(self.rng)
            elif word.endswith((",", ";")) and self.rng.random() < 0.4:
                words[index] = word[:-1] + self.rng.choice((":", ";", " -", "."))
        if self.rng.random() < 0.3:
            words[:0] = [literals.invented_word(self.rng) for _ in range(self.rng.randint(1, 3))]
        return " ".join(words)


def sentences(text: str) -> str:
    """Every sentence begins with a capital letter."""
    return re.sub(r"(^|[.?!] )([a-z])", lambda match: match.group(1) + match.group(2).upper(), text)


def vocabulary(bank: Bank) -> list[str]:
    """The words of the training clauses."""
    return sorted(
        {
            word
            for operation in bank.operations.values()
            for templates in operation.clauses["wide"].values()
            for template in templates
            for word in re.findall(r"(?<![{\w])[a-z]+(?![\w}])", template)
        }
    )
