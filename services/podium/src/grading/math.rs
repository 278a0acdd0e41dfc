//! Compares short formulas in `LaTeX` by rewriting both in one form. It does no algebra: `x + 1` and `1 + x` differ.

use super::text::{is_same_number, last_boxed};

/// Parts without an effect on the value.
const DROPPED: [&str; 18] = [
    "\\left",
    "\\right",
    "\\!",
    "\\,",
    "\\;",
    "\\:",
    "\\ ",
    "\\quad",
    "\\displaystyle",
    "\\$",
    "$",
    "\\%",
    "%",
    "^\\circ",
    "^{\\circ}",
    "\\degree",
    "\\mathrm",
    "\\mbox",
];
const REPLACED: [(&str, &str); 8] = [
    ("\\dfrac", "\\frac"),
    ("\\tfrac", "\\frac"),
    ("\\cdot", "*"),
    ("\\times", "*"),
    ("\\leq", "\\le"),
    ("\\geq", "\\ge"),
    ("\\neq", "\\ne"),
    ("−", "-"),
];

/// Whether an answer is the expected formula: what is boxed, else what follows its last equals sign, else all of it.
pub(super) fn is_same(answer: &str, expected: &str) -> bool {
    let given = last_boxed(answer).unwrap_or(answer);
    let right = last_boxed(expected).unwrap_or(expected);
    let (given, right) = (normal_form(given), normal_form(right));
    let last_side = |text: &str| text.rsplit('=').next().unwrap_or_default().to_owned();
    given == right
        || (!right.contains('=') && last_side(&given) == right)
        || (is_number(&right)
            && is_number(&last_side(&given))
            && is_same_number(&last_side(&given), &right, 1e-6))
}

fn is_number(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_digit() || matches!(c, '.' | ',' | '-' | '+' | '/');
    !text.is_empty() && text.chars().all(is_part)
}

fn normal_form(formula: &str) -> String {
    let mut text = formula.trim().trim_end_matches('.').to_owned();
    for (from, to) in REPLACED {
        text = text.replace(from, to);
    }
    text = without_words(&text);
    for dropped in DROPPED {
        text = text.replace(dropped, "");
    }
    text.retain(|c| !c.is_whitespace());
    with_plain_fractions(&with_full_fractions(&text)).to_lowercase()
}

/// `\text{ units}` and the like are removed, unless they are all that there is.
fn without_words(text: &str) -> String {
    let mut kept = text.to_owned();
    for name in ["\\text{", "\\textbf{", "\\mathrm{", "\\mbox{"] {
        while let Some(begin) = kept.find(name) {
            let Some(length) = kept[begin..].find('}') else { break };
            let words = kept[begin + name.len()..begin + length].to_owned();
            let rest = format!("{}{}", &kept[..begin], &kept[begin + length + 1..]);
            kept = if rest.trim().is_empty() { words } else { rest };
        }
    }
    kept
}

/// `\frac12` and `\frac1{2}` as `\frac{1}{2}`.
fn with_full_fractions(text: &str) -> String {
    let mut full = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("\\frac") {
        let after = at + "\\frac".len();
        full.push_str(&rest[..after]);
        rest = &rest[after..];
        for _ in 0..2 {
            match rest.chars().next() {
                Some(digit) if digit.is_ascii_alphanumeric() => {
                    full.extend(['{', digit, '}']);
                    rest = &rest[1..];
                }
                _ => {
                    let end = rest.find('}').map_or(0, |end| end + 1);
                    let is_flat = rest.starts_with('{') && !rest[1..end.max(1)].contains('{');
                    if !is_flat {
                        break;
                    }
                    full.push_str(&rest[..end]);
                    rest = &rest[end..];
                }
            }
        }
    }
    full.push_str(rest);
    full
}

/// `\frac{1}{2}` of two numbers as `1/2`.
fn with_plain_fractions(text: &str) -> String {
    let mut plain = text.to_owned();
    let mut from = 0;
    while let Some(at) = plain[from..].find("\\frac{").map(|at| from + at) {
        let parts = plain[at + "\\frac{".len()..].split_once("}{").and_then(|(above, rest)| {
            let below = rest.split_once('}')?.0;
            let are_plain = [above, below].iter().all(|part| part.chars().all(|c| c.is_ascii_digit()));
            are_plain.then(|| (above.to_owned(), below.to_owned()))
        });
        match parts {
            Some((above, below)) => {
                plain =
                    plain.replacen(&format!("\\frac{{{above}}}{{{below}}}"), &format!("{above}/{below}"), 1);
            }
            None => from = at + 1,
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_one_formula_are_the_same() {
        for (answer, expected) in [
            (r"So the answer is $\boxed{\dfrac{3}{4}}$.", r"\frac34"),
            (r"\boxed{0.75}", r"\frac{3}{4}"),
            (r"x = 5", "5"),
            (r"\boxed{\left( 3, \frac{\pi}{2} \right)}", r"\left(3,\frac{\pi}{2}\right)"),
            (r"\boxed{12\text{ cm}}", "12"),
            (r"\boxed{\text{Evelyn}}", r"\text{evelyn}"),
            (r"90^\circ", "90"),
            (r"\boxed{1,000}", "1000"),
            (r"\boxed{p - q}", "p-q"),
        ] {
            assert!(
                is_same(answer, expected),
                "{answer}: {} and {}",
                normal_form(answer),
                normal_form(expected)
            );
        }
        for (answer, expected) in
            [(r"\boxed{\frac{3}{5}}", r"\frac34"), ("5 or 6", "6"), (r"\boxed{x+1}", "1"), ("", "0")]
        {
            assert!(!is_same(answer, expected), "{answer}");
        }
    }

    #[test]
    fn broken_formulas_are_compared_as_they_are() {
        for text in
            [r"\frac", r"\frac{", r"\frac{1", r"\frac{1}{", r"\text{", r"\boxed{\frac}", "}{", r"\fracé"]
        {
            assert!(is_same(text, text), "{text}");
        }
    }
}
