"""The inputs and outputs of each operation: which kinds of earlier output it accepts, which literals it takes, when it makes sense."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass

from podium_training import literals
from podium_training.exact import RUN, date, items, number
from podium_training.facts import VALUES
from podium_training.wordings import Bank

# Kinds of output. An integer is also accepted where a number is.
INTEGER, NUMBER, DATE, WORD, TEXT, NUMBERS, NAMES = "integer", "number", "date", "word", "text", "numbers", "names"
_MAGNITUDE_MAX = 10**9


@dataclass(frozen=True)
class Value:
    """An output as printed, with its kind."""

    text: str
    kind: str


@dataclass(frozen=True)
class Rule:
    """How one operation is used.

    `accepts` are the kinds of an earlier output it can work on; `literal` makes a literal main input (None: it has none);
    `arguments` makes the other slots for a given main input, or None where the operation makes no sense on it.
    """

    accepts: tuple[str, ...]
    literal: Callable[[random.Random, str], Value] | None
    arguments: Callable[[random.Random, Bank, Value | None], dict[str, str] | None]


def _number_literal(rng: random.Random, _split: str) -> Value:
    return Value(literals.integer(rng), INTEGER)


def _date_literal(rng: random.Random, _split: str) -> Value:
    return Value(literals.date_text(rng, literals.day(rng)), DATE)


def _word_literal(rng: random.Random, split: str) -> Value:
    return Value(literals.word(rng, split), WORD)


def _phrase_literal(rng: random.Random, split: str) -> Value:
    return Value(literals.phrase(rng, split), TEXT)


def _name_literal(rng: random.Random, _split: str) -> Value:
    return Value(literals.number_name(rng), TEXT)


def _numbers_literal(rng: random.Random, _split: str) -> Value:
    return Value(literals.number_list(rng), NUMBERS)


def _names_literal(rng: random.Random, split: str) -> Value:
    return Value(literals.word_list(rng, split), NAMES)


def _list_literal(rng: random.Random, split: str) -> Value:
    return _numbers_literal(rng, split) if rng.random() < 0.5 else _names_literal(rng, split)


def _none(_rng: random.Random, _bank: Bank, _value: Value | None) -> dict[str, str]:
    return {}


def _operand(rng: random.Random, _bank: Bank, _value: Value | None) -> dict[str, str]:
    return {"n": literals.operand(rng)}


def _divisor(rng: random.Random, _bank: Bank, value: Value | None) -> dict[str, str] | None:
    assert value is not None
    if value.kind == INTEGER and rng.random() < 0.6:
        exact = [n for n in range(2, 26) if int(value.text) % n == 0]
        if exact:
            return {"n": str(rng.choice(exact))}
    return {"n": str(rng.randint(2, 20))}


def _modulus(rng: random.Random, _bank: Bank, value: Value | None) -> dict[str, str] | None:
    assert value is not None
    return None if value.text.startswith("-") else {"n": str(rng.randint(2, 60))}


def _small(_rng: random.Random, _bank: Bank, value: Value | None) -> dict[str, str] | None:
    assert value is not None
    return {} if abs(number(value.text)) <= 20000 else None


def _percentage(rng: random.Random, _bank: Bank, _value: Value | None) -> dict[str, str]:
    return {"n": str(rng.choice((5, 10, 20, 25, 40, 50, 60, 75, 80, rng.randint(1, 99))))}


def _period(rng: random.Random, _bank: Bank, value: Value | None) -> dict[str, str] | None:
    assert value is not None
    if not 1920 <= date(value.text).year <= 2080:
        return None
    count, unit = (rng.randint(1, 400), "day") if rng.random() < 0.6 else (rng.randint(1, 52), "week")
    return {"n": str(count), "p": unit if count == 1 else unit + "s"}


def _dates(rng: random.Random, _bank: Bank, _value: Value | None) -> dict[str, str]:
    first, second = literals.date_pair(rng)
    return {"a": first, "b": second}


def _clocks(rng: random.Random, _bank: Bank, _value: Value | None) -> dict[str, str]:
    first, second = literals.clock_pair(rng)
    return {"a": first, "b": second}


def _expression(rng: random.Random, _bank: Bank, _value: Value | None) -> dict[str, str]:
    return {"e": literals.expression(rng)}


def _units(rng: random.Random, bank: Bank, value: Value | None) -> dict[str, str] | None:
    assert value is not None
    source, target = rng.sample(rng.choice(bank.units), 2)
    degrees = source.startswith("degrees")
    return None if not degrees and number(value.text) <= 0 else {"u": source, "v": target}


def _ordinal(rng: random.Random, _bank: Bank, value: Value | None) -> dict[str, str] | None:
    assert value is not None
    count = min(len(items(value.text)), 6)
    return {"k": ("first", "second", "third", "fourth", "fifth", "sixth")[rng.randrange(count)]}


def _subject(operation: str) -> Callable[[random.Random, Bank, Value | None], dict[str, str]]:
    return lambda rng, bank, _value: {"s": rng.choice(bank.subjects[operation])}


_NUMERIC = (INTEGER, NUMBER)
_LISTS = (NUMBERS, NAMES)
_TEXTS = (WORD, TEXT)

RULES: dict[str, Rule] = {
    "days_between": Rule((), None, _dates),
    "weekday": Rule((DATE,), _date_literal, _none),
    "add_days": Rule((DATE,), _date_literal, _period),
    "subtract_days": Rule((DATE,), _date_literal, _period),
    "year_of": Rule((DATE,), _date_literal, _none),
    "day_of_year": Rule((DATE,), _date_literal, _none),
    "minutes_between": Rule((), None, _clocks),
    "add": Rule(_NUMERIC, _number_literal, _operand),
    "subtract": Rule(_NUMERIC, _number_literal, _operand),
    "multiply": Rule(_NUMERIC, _number_literal, _operand),
    "divide": Rule(_NUMERIC, _number_literal, _divisor),
    "square": Rule(_NUMERIC, _number_literal, _small),
    "remainder": Rule((INTEGER,), _number_literal, _modulus),
    "percent": Rule(_NUMERIC, _number_literal, _percentage),
    "expression": Rule((), None, _expression),
    "spell": Rule((INTEGER,), _number_literal, _none),
    "unspell": Rule((), _name_literal, _none),
    "reverse": Rule((WORD,), _word_literal, _none),
    "upper": Rule(_TEXTS, _word_literal, _none),
    "lower": Rule(_TEXTS, lambda rng, split: Value(literals.word(rng, split).upper(), WORD), _none),
    "letters": Rule(_TEXTS, _word_literal, _none),
    "vowels": Rule(_TEXTS, _word_literal, _none),
    "first_letter": Rule((WORD,), _word_literal, _none),
    "last_letter": Rule(_TEXTS, _word_literal, _none),
    "word_count": Rule((TEXT,), _phrase_literal, _none),
    "sort_letters": Rule((WORD,), _word_literal, _none),
    "convert": Rule(_NUMERIC, _number_literal, _units),
    "sort_ascending": Rule((NUMBERS,), _numbers_literal, _none),
    "sort_descending": Rule((NUMBERS,), _numbers_literal, _none),
    "sort_words": Rule((NAMES,), _names_literal, _none),
    "list_sum": Rule((NUMBERS,), _numbers_literal, _none),
    "largest": Rule((NUMBERS,), _numbers_literal, _none),
    "smallest": Rule((NUMBERS,), _numbers_literal, _none),
    "list_count": Rule(_LISTS, _list_literal, _none),
    "nth": Rule(_LISTS, _list_literal, _ordinal),
    "reverse_list": Rule(_LISTS, _list_literal, _none),
    "unique": Rule(_LISTS, _list_literal, _none),
    "average": Rule((NUMBERS,), _numbers_literal, _none),
} | {operation: Rule((), None, _subject(operation)) for operation in VALUES}

JOINS = ("join_add", "join_subtract", "join_minus", "join_multiply", "join_divide")

_SAME_KIND = {"upper", "lower", "reverse_list", "unique"}
_TO_LIST = {"sort_ascending": NUMBERS, "sort_descending": NUMBERS, "sort_words": NAMES}
_TO_DATE = {"add_days", "subtract_days"}


def _kind(operation: str, text: str, source: Value | None) -> str:
    if operation in _SAME_KIND and source is not None:
        return source.kind
    if operation in _TO_LIST:
        return _TO_LIST[operation]
    if operation in _TO_DATE:
        return DATE
    if re.fullmatch(r"-?\d+", text):
        return INTEGER
    if re.fullmatch(r"-?\d+\.\d+", text):
        return NUMBER
    return TEXT if " " in text else WORD


def run(operation: str, arguments: dict[str, str], source: Value | None) -> Value | None:
    """The output of an operation, or None where it is undefined or too large to be a good question."""
    try:
        text = RUN[operation](arguments)
    except ZeroDivisionError:
        return None
    value = Value(text, _kind(operation, text, source))
    if value.kind in _NUMERIC and abs(number(text)) >= _MAGNITUDE_MAX:
        return None
    return value
