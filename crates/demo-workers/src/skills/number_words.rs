//! Converts whole numbers to English words and back, in the British form with "and".

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
/// Names of the powers of a thousand; enough for every `i128`.
const SCALES: [&str; 13] = [
    "",
    "thousand",
    "million",
    "billion",
    "trillion",
    "quadrillion",
    "quintillion",
    "sextillion",
    "septillion",
    "octillion",
    "nonillion",
    "decillion",
    "undecillion",
];

/// `5280` as "five thousand two hundred and eighty", `-42` as "minus forty-two".
pub fn to_words(number: i128) -> String {
    let mut groups = Vec::new();
    let mut rest = number.unsigned_abs();
    while rest > 0 {
        groups.push(usize::try_from(rest % 1_000).unwrap_or_default());
        rest /= 1_000;
    }
    if groups.is_empty() {
        return SMALL[0].to_owned();
    }
    let mut words = Vec::new();
    if number < 0 {
        words.push("minus".to_owned());
    }
    let highest = groups.len() - 1;
    for (scale, group) in groups.into_iter().enumerate().rev().filter(|(_, group)| *group > 0) {
        // "one thousand and five": the last group takes "and" if it has no hundreds.
        if scale == 0 && highest > 0 && group < 100 {
            words.push("and".to_owned());
        }
        words.push(below_thousand(group));
        if scale > 0 {
            words.push(SCALES[scale].to_owned());
        }
    }
    words.join(" ")
}

fn below_thousand(number: usize) -> String {
    let (hundreds, rest) = (number / 100, number % 100);
    let rest_words = match rest {
        0 => String::new(),
        1..20 => SMALL[rest].to_owned(),
        _ if rest % 10 == 0 => TENS[rest / 10].to_owned(),
        _ => format!("{}-{}", TENS[rest / 10], SMALL[rest % 10]),
    };
    match (hundreds, rest) {
        (0, _) => rest_words,
        (_, 0) => format!("{} hundred", SMALL[hundreds]),
        _ => format!("{} hundred and {rest_words}", SMALL[hundreds]),
    }
}

/// Parses the longest number at the beginning of `words` (lower case, hyphens split). Returns it with the number of words.
/// "and" is accepted only between two parts of a number.
pub fn from_words<S: AsRef<str>>(words: &[S]) -> Option<(i128, usize)> {
    let negative = words.first().is_some_and(|word| matches!(word.as_ref(), "minus" | "negative"));
    let mut reader = Reader { total: 0, group: 0, last_scale: i128::MAX, floor: 1_000 };
    let mut taken = 0;
    let mut index = usize::from(negative);
    while let Some(word) = words.get(index).map(AsRef::as_ref) {
        if word == "and" && taken > 0 {
            // "and" joins only after a hundred or a scale word: "two and three" is two numbers.
            if reader.floor < 100
                || words.get(index + 1).is_none_or(|next| below_hundred(next.as_ref()).is_none())
            {
                break;
            }
            index += 1;
            continue;
        }
        if !reader.take(word, taken > 0)? {
            break;
        }
        index += 1;
        taken = index;
    }
    if taken == 0 {
        return None;
    }
    let number = reader.total.checked_add(reader.group)?;
    Some((if negative { -number } else { number }, taken))
}

/// The part of a number parsed so far: `total` of the finished groups and the `group` in progress.
struct Reader {
    total: i128,
    group: i128,
    last_scale: i128,
    /// The next plain number must be below this: 1 after a unit, 10 after a ten, 100 after a hundred.
    floor: i128,
}

impl Reader {
    /// Takes one word. `Some(false)` if it cannot continue this number, `None` on overflow.
    fn take(&mut self, word: &str, begun: bool) -> Option<bool> {
        if let Some(value) = below_hundred(word) {
            if value >= self.floor || (value == 0 && begun) {
                return Some(false);
            }
            self.group += value;
            self.floor = if value >= 20 { 10 } else { 1 };
            return Some(true);
        }
        if !begun && word == "a" {
            return Some(false);
        }
        if word == "hundred" {
            if !(1..100).contains(&self.group) {
                return Some(false);
            }
            self.group *= 100;
            self.floor = 100;
            return Some(true);
        }
        let Some(power) = SCALES.iter().skip(1).position(|scale| *scale == word) else { return Some(false) };
        let scale = 1_000_i128.checked_pow(u32::try_from(power + 1).ok()?)?;
        if self.group == 0 || scale >= self.last_scale {
            return Some(false);
        }
        self.total = self.total.checked_add(self.group.checked_mul(scale)?)?;
        (self.group, self.last_scale, self.floor) = (0, scale, 1_000);
        Some(true)
    }
}

fn below_hundred(word: &str) -> Option<i128> {
    let small = SMALL.iter().position(|name| *name == word);
    let tens = || TENS.iter().skip(2).position(|name| *name == word).map(|index| (index + 2) * 10);
    small.or_else(tens).and_then(|value| i128::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{from_words, to_words};

    fn split(text: &str) -> Vec<String> {
        text.replace('-', " ").split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn numbers_are_written_the_british_way() {
        for (number, words) in [
            (0, "zero"),
            (-42, "minus forty-two"),
            (100, "one hundred"),
            (5_280, "five thousand two hundred and eighty"),
            (1_005, "one thousand and five"),
            (1_000_100, "one million one hundred"),
            (280_005, "two hundred and eighty thousand and five"),
        ] {
            assert_eq!(to_words(number), words);
        }
    }

    #[test]
    fn two_numbers_joined_by_and_stay_two() {
        assert_eq!(from_words(&split("two and three")), Some((2, 1)));
        assert_eq!(from_words(&split("twenty five three")), Some((25, 2)));
        assert_eq!(from_words(&split("two hundred and of")), Some((200, 2)));
        assert_eq!(from_words(&split("banana")), None);
        assert_eq!(from_words(&split("and five")), None);
    }

    proptest! {
        #[test]
        fn every_number_comes_back_from_its_words(number in -(i128::MAX)..=i128::MAX, shift in 0_u32..126) {
            let number = number >> shift;
            let words = split(&to_words(number));
            prop_assert_eq!(from_words(&words), Some((number, words.len())));
        }
    }
}
