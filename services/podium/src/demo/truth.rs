//! The answer to the demo's question, computed from the calendar and the names of numbers, without any worker.

/// A day of the Gregorian calendar.
#[derive(Clone, Copy)]
struct Date {
    year: u64,
    month: u64,
    day: u64,
}

const FROM: Date = Date { year: 2024, month: 3, day: 3 };
const TO: Date = Date { year: 2025, month: 5, day: 17 };
const FACTOR: u64 = 12;

/// The answer to the demo's question.
pub(super) fn answer() -> String {
    in_words((days_before(TO) - days_before(FROM)) * FACTOR)
}

/// Whether two texts are the same number in words, apart from case, hyphens, a period and the word `and`.
pub(super) fn says_the_same(one: &str, other: &str) -> bool {
    let words = |text: &str| -> Vec<String> {
        let text = text.to_lowercase().replace(['-', ',', '.'], " ");
        text.split_whitespace().filter(|word| *word != "and").map(ToOwned::to_owned).collect()
    };
    words(one) == words(other)
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn days_in(month: u64, year: u64) -> u64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1 January of the year 1, counted one month at a time: slow, and easy to verify.
fn days_before(date: Date) -> u64 {
    let years: u64 = (1..date.year).map(|year| if is_leap(year) { 366 } else { 365 }).sum();
    let months: u64 = (1..date.month).map(|month| days_in(month, date.year)).sum();
    years + months + date.day - 1
}

const SMALL: [&str; 20] = [
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
];
const TENS: [&str; 10] =
    ["", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"];

/// A number below a million in British English.
fn in_words(number: u64) -> String {
    let index = |n: u64| usize::try_from(n).unwrap_or(0);
    match number {
        0..20 => SMALL[index(number)].to_owned(),
        20..100 if number.is_multiple_of(10) => TENS[index(number / 10)].to_owned(),
        20..100 => format!("{}-{}", TENS[index(number / 10)], SMALL[index(number % 10)]),
        100..1000 => joined(&format!("{} hundred", in_words(number / 100)), number % 100),
        _ => joined(&format!("{} thousand", in_words(number / 1000)), number % 1000),
    }
}

fn joined(head: &str, rest: u64) -> String {
    match rest {
        0 => head.to_owned(),
        1..100 => format!("{head} and {}", in_words(rest)),
        _ => format!("{head} {}", in_words(rest)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_days_agree_with_the_calendar() {
        let at = |year, month, day| days_before(Date { year, month, day });
        assert_eq!(at(1970, 1, 1), 719_162);
        assert_eq!(at(2024, 3, 1) - at(2024, 2, 28), 2);
        assert_eq!(at(1900, 3, 1) - at(1900, 2, 28), 1);
        assert_eq!(days_before(TO) - days_before(FROM), 440);
    }

    #[test]
    fn numbers_are_spelled_as_people_do() {
        for (number, words) in [
            (0, "zero"),
            (13, "thirteen"),
            (40, "forty"),
            (42, "forty-two"),
            (105, "one hundred and five"),
            (1_000, "one thousand"),
            (5_280, "five thousand two hundred and eighty"),
            (90_007, "ninety thousand and seven"),
        ] {
            assert_eq!(in_words(number), words);
        }
    }

    #[test]
    fn wording_that_makes_no_difference_makes_none() {
        assert!(says_the_same("Five thousand, two hundred eighty.", &answer()));
        assert!(!says_the_same("five thousand two hundred and eighteen", &answer()));
    }
}
