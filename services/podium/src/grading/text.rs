//! Graders that compare texts: words, numbers, options, regular expressions.

use std::sync::LazyLock;

use regex::{Regex, RegexBuilder};

/// Largest compiled size of a regular expression, in bytes.
const EXPRESSION_BYTES_MAX: usize = 1 << 20;
/// A difference below this counts as none, so that an expected 0 can be met.
const DIFFERENCE_MIN: f64 = 1e-9;

pub(super) const fn default_tolerance() -> f64 {
    1e-6
}

fn fixed(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the pattern is a constant, and a test compiles it")
}

/// A number with thousands separators, a fraction, an exponent, a divisor or a percent sign.
static NUMBER: LazyLock<Regex> = LazyLock::new(|| {
    fixed(
        r"(?P<value>[-−+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?|[-−+]?\.\d+)(?:\s*/\s*(?P<divisor>\d+(?:\.\d+)?))?\s*(?P<percent>\\?%)?",
    )
});
static BOXED: LazyLock<Regex> = LazyLock::new(|| fixed(r"\\boxed\s*\{"));
/// A letter that a text calls its answer.
static NAMED_OPTION: LazyLock<Regex> = LazyLock::new(|| {
    fixed(
        r"(?i:answer|option|choice)\W{0,5}(?:(?i:is|would be)\W{0,8})?(?:(?i:option|choice)\W{0,3})?(?P<letter>[A-J])(?:\W|$)",
    )
});
/// A line that is a letter, perhaps in brackets.
static LONE_OPTION: LazyLock<Regex> = LazyLock::new(|| fixed(r"^\W*(?P<letter>[A-Ja-j])\W*$"));
/// A line that begins with a letter and a bracket, period or colon.
static FIRST_OPTION: LazyLock<Regex> = LazyLock::new(|| fixed(r"^\W*(?P<letter>[A-J])\s*[).:]"));

/// The words without case, outer blanks, doubled blanks and a final period.
pub(super) fn normalised(answer: &str) -> String {
    let words: Vec<_> = answer.split_whitespace().collect();
    let text = words.join(" ").to_lowercase();
    text.strip_suffix('.').unwrap_or(&text).trim_end().to_owned()
}

/// A regular expression of bounded size.
pub(super) fn expression(pattern: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(pattern).size_limit(EXPRESSION_BYTES_MAX).build()
}

/// The content of the last `\boxed{...}`, with balanced braces.
pub(super) fn last_boxed(text: &str) -> Option<&str> {
    let begin = BOXED.find_iter(text).last()?.end();
    let mut depth = 1usize;
    for (at, c) in text[begin..].char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(&text[begin..begin + at]);
        }
    }
    None
}

/// The last number of a text, or of what it has in a box.
pub(super) fn last_number(text: &str) -> Option<f64> {
    let text = last_boxed(text).unwrap_or(text);
    let found = NUMBER.captures_iter(text).last()?;
    let parse = |text: &str| text.replace(',', "").replace('−', "-").parse::<f64>().ok();
    let value = parse(found.name("value")?.as_str())?;
    let divisor = found.name("divisor").map_or(Some(1.0), |divisor| parse(divisor.as_str()))?;
    let hundredth = if found.name("percent").is_some() { 0.01 } else { 1.0 };
    Some(value / divisor * hundredth).filter(|number| number.is_finite())
}

/// Whether two texts end with the same number, within a share of the expected one. `12 %` is 0.12; if only one of them has the sign,
/// it does not count.
pub(super) fn is_same_number(answer: &str, expected: &str, tolerance: f64) -> bool {
    let (Some(given), Some(right)) = (last_number(answer), last_number(expected)) else { return false };
    let is_near =
        |given: f64, right: f64| (given - right).abs() <= (right.abs() * tolerance).max(DIFFERENCE_MIN);
    is_near(given, right)
        || (answer.contains('%') != expected.contains('%') && is_near(given * 100.0, right))
        || (answer.contains('%') != expected.contains('%') && is_near(given, right * 100.0))
}

/// The option that a text consists of.
pub(super) fn option_of(text: &str) -> Option<char> {
    letter(LONE_OPTION.captures(text.trim()))
}

/// The option that an answer chooses: what is boxed, else the last one that it calls its answer, else its last or first line if that is
/// an option.
pub(super) fn chosen_option(answer: &str) -> Option<char> {
    let boxed = || option_of(last_boxed(answer)?.trim_start_matches("\\text").trim_start_matches("\\textbf"));
    let named = || letter(NAMED_OPTION.captures_iter(answer).last());
    let lines = || answer.lines().map(str::trim).filter(|line| !line.is_empty());
    let last = || option_of(lines().next_back()?);
    let first = || letter(FIRST_OPTION.captures(lines().next()?));
    boxed().or_else(named).or_else(last).or_else(first)
}

fn letter(found: Option<regex::Captures<'_>>) -> Option<char> {
    found?.name("letter")?.as_str().chars().next().map(|letter| letter.to_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_compared_without_their_dress() {
        assert_eq!(normalised("  Five  Thousand.\n"), "five thousand");
        assert_eq!(normalised("3.5"), "3.5");
        assert_ne!(normalised("3.5"), normalised("35"));
    }

    #[test]
    fn the_last_number_of_an_answer_counts() {
        for (answer, expected) in [
            ("12 apples, so 1,234.50 dollars.", "1234.5"),
            ("It is −3", "-3"),
            ("The answer is \\boxed{42}. That took 3 steps.", "42"),
            ("about 1.5e3", "1500"),
            ("3/4", "0.75"),
            ("\\boxed{\\frac{1}{2}} or 0.5", "2"),
            ("25%", "0.25"),
            ("25%", "25"),
            ("25", "25%"),
            ("0", "0"),
            ("#### 18", "18"),
            ("from 7 to 9.", "9"),
        ] {
            assert!(is_same_number(answer, expected, 1e-6), "{answer}");
        }
        for (answer, expected) in
            [("41.9", "42"), ("none", "1"), ("1/0", "1"), ("25", "0.25"), ("1,23", "123"), ("42 or 41", "42")]
        {
            assert!(!is_same_number(answer, expected, 1e-6), "{answer}");
        }
        assert!(is_same_number("41.9", "42", 0.01));
    }

    #[test]
    fn an_option_is_found_where_answers_name_it() {
        for answer in [
            "B",
            "(b)",
            "B.",
            "The answer is (B).",
            "**Answer:** B",
            "I first thought the answer is A. But the correct answer is B",
            "\\boxed{B}",
            "$\\boxed{\\text{B}}$",
            "B) because the others are wrong",
            "A long thought about A and C.\n\nB",
        ] {
            assert_eq!(chosen_option(answer), Some('B'), "{answer}");
        }
        for answer in ["A good question.", "the answer is a mystery", "Because", "", "Answer: Boron"] {
            assert_eq!(chosen_option(answer), None, "{answer}");
        }
    }

    #[test]
    fn a_box_ends_at_its_own_brace() {
        assert_eq!(last_boxed(r"\boxed{1} and \boxed{\frac{1}{2}}"), Some(r"\frac{1}{2}"));
        assert_eq!(last_boxed(r"\boxed{1"), None);
    }

    #[test]
    fn a_huge_expression_is_refused() {
        expression("^(yes|no)$").unwrap();
        expression("(a{1000}){60}").unwrap_err();
    }
}
