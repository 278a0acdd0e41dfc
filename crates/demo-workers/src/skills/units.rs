//! Exact conversion between units of the same kind.

use super::rational::{NumberError, Rational};
use super::{Refusal, Wordings};
use crate::language::{
    reader::{Binding, Operands},
    token::{Kind, Token},
};

pub(crate) const FRAGMENTS: &[(&str, &str)] = &[
    ("convert", "(convert|change|turn|translate|restate|rewrite|transform)"),
    ("express", "(express|give|state|write|restate|rewrite|show)"),
    ("amount", "(number|count|amount|value|size|equivalent|conversion)"),
];

pub(crate) const WORDINGS: &[Wordings] = &[Wordings {
    nouns: &[
        "[the] (number|count|amount) of {v:u} (in|that make|that make up|equal to) {x:n} {u:u}",
        "[the] $amount of {x:n} {u:u} (in|to|as) {v:u}",
        "[the] $amount of {x:n} from {u:u} (to|into) {v:u}",
        "[the] (value|equivalent|size|amount) in {v:u} of {x:n} {u:u}",
        "[the] (value|equivalent|size|amount) in {v:u} of {x:n} (taken|counted|measured|given|read) (in|as) {u:u}",
        "{x:n} {u:u} [expressed|measured|given|written] (in|as) [a] [number of] {v:u}",
        "{x:n} {u:u} (converted|changed|turned) (to|into) {v:u}",
        "{x:n} (converted|changed) from {u:u} (to|into) {v:u}",
    ],
    verbs: &[
        "$convert {x:n} {u:u} (to|into|in|as) {v:u}",
        "$convert {x:n} from {u:u} (to|into|in) {v:u}",
        "$express {x:n} {u:u} (in|as) [a] [number of] {v:u}",
        "(treat|read|take|count) {x:n} as [a] [number of] {u:u} and ($convert|$express) (it|that|this) (to|into|in|as) {v:u}",
        "bring {x:n} from {u:u} (to|into) {v:u}",
        "how many {v:u} [are|are there|is|make|make up|does|do] [in] {x:n} {u:u} [make|have|contain|equal]",
        "{x:n} {u:u} (equal|equals|is|are|make|makes) how many {v:u}",
        "$convert from {u:u} (to|into) {v:u} {x:n?}",
    ],
    binding: Binding::Other,
    compute: convert,
}];

/// The kinds of units that can be converted into each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kinds {
    Time,
    Length,
    Mass,
    Volume,
    Count,
    Celsius,
    Fahrenheit,
}

/// A unit: its name, its synonyms, and its size as a fraction of the kind's smallest exact unit.
struct Unit {
    name: &'static str,
    others: &'static [&'static str],
    kind: Kinds,
    numerator: i128,
    denominator: i128,
}

const UNITS: &[Unit] = &[
    unit("weeks", &["week"], Kinds::Time, 604_800, 1),
    unit("days", &["day"], Kinds::Time, 86_400, 1),
    unit("hours", &["hour", "h", "hr", "hrs"], Kinds::Time, 3_600, 1),
    unit("minutes", &["minute", "min", "mins"], Kinds::Time, 60, 1),
    unit("seconds", &["second", "sec", "secs", "s"], Kinds::Time, 1, 1),
    // Lengths in tenths of a millimetre: an inch has 254.
    unit("kilometres", &["kilometre", "kilometers", "kilometer", "km", "kms"], Kinds::Length, 10_000_000, 1),
    unit("metres", &["metre", "meters", "meter", "m"], Kinds::Length, 10_000, 1),
    unit("centimetres", &["centimetre", "centimeters", "centimeter", "cm"], Kinds::Length, 100, 1),
    unit("millimetres", &["millimetre", "millimeters", "millimeter", "mm"], Kinds::Length, 10, 1),
    unit("miles", &["mile", "mi"], Kinds::Length, 16_093_440, 1),
    unit("yards", &["yard", "yd"], Kinds::Length, 9_144, 1),
    unit("feet", &["foot", "ft"], Kinds::Length, 3_048, 1),
    unit("inches", &["inch"], Kinds::Length, 254, 1),
    unit("kilograms", &["kilogram", "kilogrammes", "kilos", "kilo", "kg", "kgs"], Kinds::Mass, 1_000, 1),
    unit("grams", &["gram", "grammes", "g"], Kinds::Mass, 1, 1),
    unit("pounds", &["pound", "lb", "lbs"], Kinds::Mass, 45_359_237, 100_000),
    unit("ounces", &["ounce", "oz"], Kinds::Mass, 45_359_237, 1_600_000),
    unit("litres", &["litre", "liters", "liter", "l"], Kinds::Volume, 1_000, 1),
    unit("millilitres", &["millilitre", "milliliters", "milliliter", "ml"], Kinds::Volume, 1, 1),
    unit("dozens", &["dozen"], Kinds::Count, 12, 1),
    unit("units", &["unit", "pieces", "single units", "ones"], Kinds::Count, 1, 1),
    unit(
        "degrees Celsius",
        &["degree celsius", "celsius", "degrees c", "centigrade", "degrees centigrade", "c"],
        Kinds::Celsius,
        1,
        1,
    ),
    unit(
        "degrees Fahrenheit",
        &["degree fahrenheit", "fahrenheit", "degrees f", "f"],
        Kinds::Fahrenheit,
        1,
        1,
    ),
];

const fn unit(
    name: &'static str,
    others: &'static [&'static str],
    kind: Kinds,
    numerator: i128,
    denominator: i128,
) -> Unit {
    Unit { name, others, kind, numerator, denominator }
}

impl Unit {
    fn size(&self) -> Result<Rational, NumberError> {
        Rational::new(self.numerator, self.denominator)
    }
}

/// The unit that begins at `tokens[at]`: the index after it and its name.
pub(crate) fn unit_at(tokens: &[Token], at: usize) -> Option<(usize, String)> {
    let first = tokens.get(at)?.word()?;
    let two = tokens.get(at + 1).and_then(Token::word).map(|second| format!("{first} {second}"));
    let named = |text: &str| {
        UNITS.iter().find(|unit| unit.name.eq_ignore_ascii_case(text) || unit.others.contains(&text))
    };
    if let Some(unit) = two.as_deref().and_then(named) {
        return Some((at + 2, unit.name.to_owned()));
    }
    named(first).map(|unit| (at + 1, unit.name.to_owned()))
}

/// A period of days that begins at `tokens[at]`.
pub(crate) fn period_at(tokens: &[Token], at: usize) -> Option<(usize, String)> {
    match &tokens.get(at)?.kind {
        Kind::Word(word) if matches!(word.as_str(), "day" | "days") => Some((at + 1, "day".to_owned())),
        Kind::Word(word) if matches!(word.as_str(), "week" | "weeks") => Some((at + 1, "week".to_owned())),
        _ => None,
    }
}

fn convert(operands: &Operands) -> Result<String, Refusal> {
    let find = |name: char| UNITS.iter().find(|unit| unit.name == operands.text(name));
    let differ =
        || Refusal::UnitsDiffer { from: operands.text('u').to_owned(), to: operands.text('v').to_owned() };
    let (from, to) = find('u').zip(find('v')).ok_or_else(differ)?;
    let value = operands.number('x')?;
    let converted = match (from.kind, to.kind) {
        (Kinds::Celsius, Kinds::Fahrenheit) => {
            value.times(Rational::new(9, 5)?)?.plus(Rational::whole(32))?
        }
        (Kinds::Fahrenheit, Kinds::Celsius) => {
            value.minus(Rational::whole(32))?.times(Rational::new(5, 9)?)?
        }
        (kind, other) if kind == other => {
            let factor = from.size()?.divided_by(to.size()?)?;
            value.times(factor)?
        }
        _ => return Err(differ()),
    };
    Ok(converted.to_string())
}
