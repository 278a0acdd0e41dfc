"""Exact answers: each operation as a function from texts to a text, so that a chain passes on what a worker would print."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from fractions import Fraction

from podium_training.facts import VALUES

MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December",
)  # fmt: skip
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth")
_UNITS = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
_TENS = ["zero", "ten", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_SCALES = ((10**9, "billion"), (10**6, "million"), (10**3, "thousand"))

# Size of one unit in the base unit of its kind.
_SIZES = {
    "weeks": ("time", Fraction(604800)), "days": ("time", Fraction(86400)), "hours": ("time", Fraction(3600)),
    "minutes": ("time", Fraction(60)), "seconds": ("time", Fraction(1)),
    "kilometres": ("length", Fraction(1000)), "metres": ("length", Fraction(1)), "centimetres": ("length", Fraction(1, 100)),
    "millimetres": ("length", Fraction(1, 1000)), "miles": ("length", Fraction("1609.344")), "inches": ("length", Fraction("0.0254")),
    "feet": ("length", Fraction("0.3048")), "kilograms": ("mass", Fraction(1000)), "grams": ("mass", Fraction(1)),
    "pounds": ("mass", Fraction("453.59237")), "litres": ("volume", Fraction(1000)), "millilitres": ("volume", Fraction(1)),
    "dozens": ("count", Fraction(12)), "units": ("count", Fraction(1)),
}  # fmt: skip


def number(text: str) -> Fraction:
    """Reads a printed number."""
    return Fraction(text)


def show(value: Fraction | int) -> str:
    """An integer; a decimal if it terminates within 6 places; else rounded to 4 places, half away from zero."""
    value = Fraction(value)
    if value.denominator == 1:
        return str(value.numerator)
    places = 6 if (value * 10**6).denominator == 1 else 4
    scaled = abs(value) * 10**places
    digits = str(int(scaled + Fraction(1, 2))).rjust(places + 1, "0")
    text = f"{digits[:-places]}.{digits[-places:]}".rstrip("0").rstrip(".")
    return f"-{text}" if value < 0 and text != "0" else text


def date(text: str) -> datetime.date:
    """Reads "3 March 2024", "March 3, 2024" or "2024-03-03"."""
    if match := re.fullmatch(r"(\d+) ([A-Z][a-z]+) (\d{4})", text):
        day, month, year = match.groups()
    elif match := re.fullmatch(r"([A-Z][a-z]+) (\d+), (\d{4})", text):
        month, day, year = match.groups()
    else:
        return datetime.date.fromisoformat(text)
    return datetime.date(int(year), MONTHS.index(month) + 1, int(day))


def show_date(value: datetime.date) -> str:
    """Prints "17 May 2025"."""
    return f"{value.day} {MONTHS[value.month - 1]} {value.year}"


def clock(text: str) -> int:
    """Minutes since midnight of "09:40"."""
    hours, minutes = text.split(":")
    return int(hours) * 60 + int(minutes)


def spell(value: int) -> str:
    """British English number name: "five thousand two hundred and eighty"."""
    if value < 0:
        return "minus " + spell(-value)
    if value < 20:
        return _UNITS[value]
    if value < 100:
        tens, rest = divmod(value, 10)
        return _TENS[tens] + (f"-{_UNITS[rest]}" if rest else "")
    if value < 1000:
        hundreds, rest = divmod(value, 100)
        return f"{_UNITS[hundreds]} hundred" + (f" and {spell(rest)}" if rest else "")
    for size, name in _SCALES:
        if value >= size:
            count, rest = divmod(value, size)
            joint = " and " if rest < 100 else " "
            return f"{spell(count)} {name}" + (f"{joint}{spell(rest)}" if rest else "")
    raise AssertionError("every value from 1000 has a scale")


def unspell(text: str) -> int:
    """The inverse of `spell`."""
    total, group = 0, 0
    sign = -1 if text.startswith("minus ") else 1
    for word in re.split(r"[ -]", text.removeprefix("minus ")):
        if word in _UNITS:
            group += _UNITS.index(word)
        elif word in _TENS:
            group += 10 * _TENS.index(word)
        elif word == "hundred":
            group *= 100
        elif word != "and":
            total += group * {name: size for size, name in _SCALES}[word]
            group = 0
    return sign * (total + group)


def evaluate(expression: str) -> Fraction:
    """The exact value of an expression of digits, + - * / ( ) and spaces."""
    tokens = re.findall(r"\d+(?:\.\d+)?|[-+*/()]", expression)
    position = 0

    def take() -> str:
        nonlocal position
        position += 1
        return tokens[position - 1]

    def peek() -> str:
        return tokens[position] if position < len(tokens) else ""

    def atom() -> Fraction:
        token = take()
        if token == "(":
            value = terms()
            take()
            return value
        return -atom() if token == "-" else Fraction(token)

    def factors() -> Fraction:
        value = atom()
        while peek() in ("*", "/"):
            value = value * atom() if take() == "*" else value / atom()
        return value

    def terms() -> Fraction:
        value = factors()
        while peek() in ("+", "-"):
            value = value + factors() if take() == "+" else value - factors()
        return value

    return terms()


def convert(value: Fraction, source: str, target: str) -> Fraction:
    """Exact conversion between two units of one kind."""
    if source == "degrees Celsius":
        return value * 9 / 5 + 32
    if source == "degrees Fahrenheit":
        return (value - 32) * 5 / 9
    kind, size = _SIZES[source]
    other, unit = _SIZES[target]
    if kind != other:
        raise ValueError(f"no conversion from {source} to {target}")
    return value * size / unit


def items(text: str) -> list[str]:
    """The items of a printed list."""
    return [item.strip() for item in text.split(",")]


def _letters(text: str) -> str:
    return re.sub(r"[^A-Za-z]", "", text)


def _unique(texts: list[str]) -> list[str]:
    return list(dict.fromkeys(texts))


def _sort_numbers(text: str, *, descending: bool) -> str:
    return ", ".join(sorted(items(text), key=number, reverse=descending))


Arguments = dict[str, str]

RUN: dict[str, Callable[[Arguments], str]] = {
    "days_between": lambda a: str(abs((date(a["b"]) - date(a["a"])).days)),
    "weekday": lambda a: WEEKDAYS[date(a["x"]).weekday()],
    "add_days": lambda a: show_date(date(a["x"]) + datetime.timedelta(int(a["n"]) * (7 if "week" in a["p"] else 1))),
    "subtract_days": lambda a: show_date(date(a["x"]) - datetime.timedelta(int(a["n"]) * (7 if "week" in a["p"] else 1))),
    "year_of": lambda a: str(date(a["x"]).year),
    "day_of_year": lambda a: str(date(a["x"]).timetuple().tm_yday),
    "minutes_between": lambda a: str(abs(clock(a["b"]) - clock(a["a"]))),
    "add": lambda a: show(number(a["x"]) + number(a["n"])),
    "subtract": lambda a: show(number(a["x"]) - number(a["n"])),
    "multiply": lambda a: show(number(a["x"]) * number(a["n"])),
    "divide": lambda a: show(number(a["x"]) / number(a["n"])),
    "square": lambda a: show(number(a["x"]) ** 2),
    "remainder": lambda a: show(number(a["x"]) % number(a["n"])),
    "percent": lambda a: show(number(a["x"]) * number(a["n"]) / 100),
    "expression": lambda a: show(evaluate(a["e"])),
    "join_add": lambda a: show(number(a["x"]) + number(a["y"])),
    "join_subtract": lambda a: show(number(a["y"]) - number(a["x"])),
    "join_minus": lambda a: show(number(a["x"]) - number(a["y"])),
    "join_multiply": lambda a: show(number(a["x"]) * number(a["y"])),
    "join_divide": lambda a: show(number(a["x"]) / number(a["y"])),
    "spell": lambda a: spell(int(a["x"])),
    "unspell": lambda a: str(unspell(a["x"])),
    "reverse": lambda a: a["x"][::-1],
    "upper": lambda a: a["x"].upper(),
    "lower": lambda a: a["x"].lower(),
    "letters": lambda a: str(len(_letters(a["x"]))),
    "vowels": lambda a: str(sum(letter in "aeiou" for letter in a["x"].lower())),
    "first_letter": lambda a: _letters(a["x"])[0],
    "last_letter": lambda a: _letters(a["x"])[-1],
    "word_count": lambda a: str(len(a["x"].split())),
    "sort_letters": lambda a: "".join(sorted(_letters(a["x"]).lower())),
    "convert": lambda a: show(convert(number(a["x"]), a["u"], a["v"])),
    "sort_ascending": lambda a: _sort_numbers(a["x"], descending=False),
    "sort_descending": lambda a: _sort_numbers(a["x"], descending=True),
    "sort_words": lambda a: ", ".join(sorted(items(a["x"]), key=str.lower)),
    "list_sum": lambda a: show(sum(map(number, items(a["x"])), Fraction(0))),
    "largest": lambda a: show(max(map(number, items(a["x"])))),
    "smallest": lambda a: show(min(map(number, items(a["x"])))),
    "list_count": lambda a: str(len(items(a["x"]))),
    "nth": lambda a: items(a["x"])[ORDINALS.index(a["k"])],
    "reverse_list": lambda a: ", ".join(reversed(items(a["x"]))),
    "unique": lambda a: ", ".join(_unique(items(a["x"]))),
    "average": lambda a: show(sum(map(number, items(a["x"])), Fraction(0)) / len(items(a["x"]))),
} | {op: (lambda a, op=op: VALUES[op][a["s"]]) for op in VALUES}
"""The answer of each operation, from the texts of its slots (`{l}` and `{r}` are given as `x`)."""
