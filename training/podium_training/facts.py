"""The values behind the operations of the skill "facts". The subjects are listed in `wordings.toml`; a test holds both together."""

CAPITAL = {
    "France": "Paris", "Germany": "Berlin", "Italy": "Rome", "Spain": "Madrid", "Portugal": "Lisbon", "Norway": "Oslo",
    "Sweden": "Stockholm", "Finland": "Helsinki", "Denmark": "Copenhagen", "Poland": "Warsaw", "Austria": "Vienna",
    "Greece": "Athens", "Hungary": "Budapest", "Ireland": "Dublin", "Japan": "Tokyo", "China": "Beijing", "Egypt": "Cairo",
    "Kenya": "Nairobi", "Canada": "Ottawa", "Peru": "Lima", "Cuba": "Havana", "Thailand": "Bangkok", "Turkey": "Ankara",
    "Russia": "Moscow", "Belgium": "Brussels", "Iceland": "Reykjavik", "Croatia": "Zagreb", "Vietnam": "Hanoi",
    "Bulgaria": "Sofia", "Romania": "Bucharest",
}  # fmt: skip
CURRENCY = {
    "Japan": "yen", "Poland": "zloty", "India": "rupee", "China": "yuan", "Mexico": "peso", "Sweden": "krona",
    "Switzerland": "franc", "Thailand": "baht", "Vietnam": "dong", "Hungary": "forint", "France": "euro", "Germany": "euro",
    "Denmark": "krone", "Norway": "krone", "South Africa": "rand",
}  # fmt: skip
_ELEMENT = {
    "hydrogen": ("1", "H"), "helium": ("2", "He"), "lithium": ("3", "Li"), "carbon": ("6", "C"), "nitrogen": ("7", "N"),
    "oxygen": ("8", "O"), "neon": ("10", "Ne"), "sodium": ("11", "Na"), "magnesium": ("12", "Mg"), "silicon": ("14", "Si"),
    "chlorine": ("17", "Cl"), "potassium": ("19", "K"), "calcium": ("20", "Ca"), "titanium": ("22", "Ti"), "iron": ("26", "Fe"),
    "nickel": ("28", "Ni"), "copper": ("29", "Cu"), "zinc": ("30", "Zn"), "silver": ("47", "Ag"), "tin": ("50", "Sn"),
    "iodine": ("53", "I"), "platinum": ("78", "Pt"), "gold": ("79", "Au"), "mercury": ("80", "Hg"), "lead": ("82", "Pb"),
    "uranium": ("92", "U"),
}  # fmt: skip

VALUES: dict[str, dict[str, str]] = {
    "capital": CAPITAL,
    "currency": CURRENCY,
    "atomic_number": {name: number for name, (number, _) in _ELEMENT.items()},
    "symbol": {name: symbol for name, (_, symbol) in _ELEMENT.items()},
    "legs": {
        "a spider": "8", "an ant": "6", "a dog": "4", "a beetle": "6", "a scorpion": "8", "a horse": "4", "a bee": "6",
        "an ostrich": "2", "a cat": "4", "a butterfly": "6",
    },
    "sides": {
        "a triangle": "3", "a square": "4", "a pentagon": "5", "a hexagon": "6", "a heptagon": "7", "an octagon": "8",
        "a nonagon": "9", "a decagon": "10", "a dodecagon": "12", "a rectangle": "4",
    },
    "strings": {"a violin": "4", "a standard guitar": "6", "a cello": "4", "a ukulele": "4", "a viola": "4", "a mandolin": "8"},
    "players": {
        "a football team": "11", "a basketball team": "5", "a volleyball team": "6", "a baseball team": "9", "a cricket team": "11",
    },
    "quantity": {
        "planets in the solar system": "8", "cards in a standard deck": "52", "keys on a standard piano": "88",
        "squares on a chessboard": "64", "months in a year": "12", "letters in the English alphabet": "26",
        "colours of the rainbow": "7", "black keys on a standard piano": "36", "suits in a standard deck": "4", "hours in a day": "24",
    },
    "event_year": {
        "the first moon landing": "1969", "the fall of the Berlin Wall": "1989", "the Battle of Hastings": "1066",
        "the start of the French Revolution": "1789", "the sinking of the Titanic": "1912", "the Great Fire of London": "1666",
        "the sealing of Magna Carta": "1215", "the Battle of Waterloo": "1815", "the start of the First World War": "1914",
        "the end of the Second World War": "1945", "the Battle of Trafalgar": "1805", "the opening of the Suez Canal": "1869",
    },
}  # fmt: skip
