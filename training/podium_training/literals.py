"""Random inputs for questions: dates, clock times, numbers, words, lists. Training draws from other words than the test does."""

from __future__ import annotations

import datetime
import random

from podium_training.exact import MONTHS, show_date, spell

_TRAIN_WORDS = [
    "apple",
    "autumn",
    "basket",
    "beacon",
    "bottle",
    "branch",
    "bridge",
    "butter",
    "candle",
    "canyon",
    "carpet",
    "castle",
    "cellar",
    "circle",
    "cloud",
    "copper",
    "corner",
    "cotton",
    "cradle",
    "crystal",
    "dagger",
    "desert",
    "dinner",
    "dragon",
    "engine",
    "falcon",
    "feather",
    "fiddle",
    "finger",
    "flower",
    "forest",
    "fossil",
    "garden",
    "ginger",
    "glacier",
    "granite",
    "guitar",
    "hammer",
    "harbour",
    "hazel",
    "helmet",
    "hollow",
    "island",
    "jacket",
    "jungle",
    "kettle",
    "kitchen",
    "ladder",
    "lantern",
    "lemon",
    "letter",
    "lizard",
    "lobster",
    "magnet",
    "mango",
    "maple",
    "marble",
    "market",
    "meadow",
    "mirror",
    "monkey",
    "morning",
    "mountain",
    "museum",
    "needle",
    "ocean",
    "office",
    "olive",
    "orange",
    "orchard",
    "oyster",
    "paper",
    "pebble",
    "pencil",
    "pepper",
    "pigeon",
    "pillow",
    "planet",
    "pocket",
    "potato",
    "prairie",
    "puzzle",
    "rabbit",
    "ribbon",
    "river",
    "rocket",
    "saddle",
    "salmon",
    "school",
    "shadow",
    "shelter",
    "silver",
    "singer",
    "sister",
    "socket",
    "spider",
    "spring",
    "square",
    "stable",
    "summer",
    "sunset",
    "table",
    "tailor",
    "temple",
    "thunder",
    "ticket",
    "timber",
    "tomato",
    "tower",
    "traffic",
    "tunnel",
    "turtle",
    "valley",
    "velvet",
    "village",
    "violet",
    "walnut",
    "water",
    "weather",
    "window",
    "winter",
    "wizard",
    "yellow",
    "zebra",
]
_TEST_WORDS = [
    "anchor",
    "badger",
    "barrel",
    "blanket",
    "button",
    "cabbage",
    "camera",
    "cavern",
    "cherry",
    "chimney",
    "clover",
    "comet",
    "compass",
    "cousin",
    "cricket",
    "diamond",
    "doctor",
    "dolphin",
    "eagle",
    "ember",
    "farmer",
    "fountain",
    "hamster",
    "hedge",
    "heron",
    "jewel",
    "journey",
    "kitten",
    "lagoon",
    "library",
    "lily",
    "meteor",
    "mustard",
    "napkin",
    "nectar",
    "otter",
    "panther",
    "parrot",
    "pirate",
    "pumpkin",
    "quarry",
    "radish",
    "raven",
    "sailor",
    "sandal",
    "scarf",
    "signal",
    "spoon",
    "statue",
    "sugar",
    "teacher",
    "tiger",
    "trumpet",
    "umbrella",
    "vessel",
    "whistle",
]
_ONSETS = [
    "b",
    "c",
    "d",
    "f",
    "g",
    "h",
    "j",
    "k",
    "l",
    "m",
    "n",
    "p",
    "r",
    "s",
    "t",
    "v",
    "w",
    "z",
    "br",
    "ch",
    "cl",
    "cr",
    "dr",
    "fl",
    "gl",
    "gr",
    "pl",
    "pr",
    "sh",
    "sl",
    "sn",
    "sp",
    "st",
    "str",
    "th",
    "tr",
]
_VOWELS = ["a", "e", "i", "o", "u", "ai", "ea", "ee", "ie", "oa", "ou"]
_CODAS = [
    "b",
    "d",
    "g",
    "k",
    "l",
    "m",
    "n",
    "p",
    "r",
    "s",
    "t",
    "ck",
    "ft",
    "ld",
    "ll",
    "mp",
    "nd",
    "ng",
    "nt",
    "rd",
    "rk",
    "rn",
    "rt",
    "ss",
    "st",
]


def invented_word(rng: random.Random) -> str:
    """A pronounceable word that means nothing, so that only copying helps."""
    syllables = rng.choice((1, 2, 2, 2, 3))
    word = "".join(rng.choice(_ONSETS) + rng.choice(_VOWELS) for _ in range(syllables))
    return word + (rng.choice(_CODAS) if rng.random() < 0.6 else "")


def word(rng: random.Random, split: str) -> str:
    """One word."""
    if split == "test":
        return rng.choice(_TEST_WORDS)
    return rng.choice(_TRAIN_WORDS) if rng.random() < 0.4 else invented_word(rng)


def phrase(rng: random.Random, split: str) -> str:
    """Two to six words."""
    return " ".join(word(rng, split) for _ in range(rng.randint(2, 6)))


def day(rng: random.Random) -> datetime.date:
    """A day of the years 1950 to 2049."""
    return datetime.date(1950, 1, 1) + datetime.timedelta(rng.randrange(36500))


def date_text(rng: random.Random, value: datetime.date) -> str:
    """A date in one of the three accepted forms, mostly the first."""
    form = rng.random()
    if form < 0.8:
        return show_date(value)
    if form < 0.9:
        return f"{MONTHS[value.month - 1]} {value.day}, {value.year}"
    return value.isoformat()


def date_pair(rng: random.Random) -> tuple[str, str]:
    """Two dates, mostly in order and within three years."""
    first = day(rng)
    second = first + datetime.timedelta(rng.randint(1, 1100) if rng.random() < 0.85 else rng.randint(-9000, 9000))
    return date_text(rng, first), date_text(rng, second)


def clock_pair(rng: random.Random) -> tuple[str, str]:
    """Two different clock times of one day, in order."""
    first, second = sorted(rng.sample(range(24 * 60), 2))
    return f"{first // 60:02}:{first % 60:02}", f"{second // 60:02}:{second % 60:02}"


def integer(rng: random.Random) -> str:
    """A natural number of one to five digits, small ones more often."""
    return str(rng.randint(2, 10 ** rng.choice((1, 2, 2, 2, 3, 3, 4, 5))))


def operand(rng: random.Random) -> str:
    """A second operand: mostly a small natural number."""
    if rng.random() < 0.08:
        return f"{rng.randint(0, 20)}.{rng.choice('125')}{rng.choice(('', '5'))}"
    return str(rng.randint(2, rng.choice((9, 12, 20, 50, 100, 999))))


def expression(rng: random.Random) -> str:
    """A plain expression, with spaces around its operators or without."""
    a, b, c, d = (str(rng.randint(1, rng.choice((9, 20, 99)))) for _ in range(4))
    o, p, q = (rng.choice("+-*") for _ in range(3))
    pattern = rng.choice(
        (
            f"{a} {o} {b} {p} {c}",
            f"{a} {o} ({b} {p} {c})",
            f"({a} {o} {b}) {p} {c}",
            f"({a} {o} {b}) {p} ({c} {q} {d})",
            f"{a} / {b} {p} {c}",
        )
    )
    return pattern if rng.random() < 0.8 else pattern.replace(" ", "")


def number_name(rng: random.Random) -> str:
    """A number in words."""
    return spell(int(integer(rng)) * rng.choice((1, 1, 1, 10, 100)))


def number_list(rng: random.Random) -> str:
    """Three to seven natural numbers, some of them repeated."""
    numbers = [str(rng.randint(1, rng.choice((9, 50, 100, 500)))) for _ in range(rng.randint(3, 7))]
    if rng.random() < 0.3:
        numbers.insert(rng.randrange(len(numbers)), rng.choice(numbers))
    return ", ".join(numbers)


def word_list(rng: random.Random, split: str) -> str:
    """Three to six words, some of them repeated."""
    words = [word(rng, split) for _ in range(rng.randint(3, 6))]
    if rng.random() < 0.3:
        words.insert(rng.randrange(len(words)), rng.choice(words))
    return ", ".join(words)
