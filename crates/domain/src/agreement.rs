//! Whether answers agree: the exact meaning of `unless_agree`.
//!
//! The final answer of a text is what its last `\boxed{...}` holds; without one, what follows `answer is` or `answer:` in its last line
//! that is not blank; without these words, that line. Two final answers are the same if they differ only in case, in blanks, and in
//! punctuation around them. There is no judgement of meaning: `0.5` and `1/2` differ, and so do two wordings of one sentence. A
//! wrong "differ" costs a call, a wrong "agree" would cost the answer.

/// The words before a final answer. The last of them in a line counts.
const ANNOUNCED: [&str; 2] = ["answer is", "answer:"];
/// The beginning of a box in LaTeX.
const BOX: &str = "\\boxed{";

/// The final answer of a text in the form in which it is compared. Empty if the text has none.
pub fn final_answer(text: &str) -> String {
    let answer = last_box(text).unwrap_or_else(|| last_statement(text));
    let words: Vec<_> = answer.split_whitespace().collect();
    bare(&words.join(" ").to_lowercase()).to_owned()
}

/// Whether two or more texts have the same final answer. Texts without a final answer agree with nothing.
pub fn agree<'t>(texts: impl IntoIterator<Item = &'t str>) -> bool {
    let mut answers = texts.into_iter().map(final_answer);
    let Some(first) = answers.next().filter(|first| !first.is_empty()) else { return false };
    let mut others = answers.peekable();
    others.peek().is_some() && others.all(|other| other == first)
}

/// An answer without the punctuation around it. A decimal point before digits and an exclamation mark behind them are parts of the
/// answer, as are the brackets of a list: `.5` is not 5, `5!` is not 5, and `(1, 2]` is not `[1, 2)`.
fn bare(answer: &str) -> &str {
    let is_list = answer.contains(',');
    let is_outside = |c: char| is_around(c) && !(is_list && matches!(c, '(' | ')' | '[' | ']' | '{' | '}'));
    let inner = answer.trim_start_matches(is_outside);
    let begin = answer.len() - inner.len();
    let has_point = answer[..begin].ends_with('.') && inner.starts_with(|c: char| c.is_ascii_digit());
    answer[begin - usize::from(has_point)..].trim_end_matches(|c| is_outside(c) && c != '!')
}

/// Punctuation around an answer. A sign or a percent sign is a part of the answer.
fn is_around(c: char) -> bool {
    c.is_whitespace()
        || (c.is_ascii_punctuation() && !matches!(c, '-' | '+' | '%' | '\\' | '/' | '=' | '<' | '>'))
}

/// The content of the last box, with balanced braces.
fn last_box(text: &str) -> Option<&str> {
    let inside = &text[text.rfind(BOX)? + BOX.len()..];
    let mut depth = 1usize;
    for (at, c) in inside.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(&inside[..at]);
        }
    }
    None
}

/// The last line that is not blank, or what it calls the answer.
fn last_statement(text: &str) -> &str {
    let Some(line) = text.lines().rfind(|line| !line.trim().is_empty()) else { return "" };
    // ASCII only, so that positions are those of the line.
    let lower = line.to_ascii_lowercase();
    let ends = ANNOUNCED.iter().filter_map(|words| Some(lower.rfind(words)? + words.len()));
    let said = ends.max().map_or("", |end| &line[end..]);
    if said.trim_matches(is_around).is_empty() { line } else { said }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_in_other_dress_agree() {
        for texts in [
            ["B", "b\n"],
            ["(B)", "B."],
            ["A)", "A"],
            ["So 17 + 4 is 21.\n\nThe answer is 21.", "21"],
            ["**Answer:** Paris", "paris"],
            ["Thus $\\boxed{\\frac{1}{2}}$, as shown.", "\\boxed{\\frac{1}{2}}"],
            ["Five   thousand", "five thousand."],
            ["I first thought that the answer is A, but the answer is B", "B"],
            ["The answer is:\n42", "42"],
            ["**.5**", ".5"],
            ["(1, 2].", "**(1, 2]**"],
        ] {
            assert!(agree(texts), "{texts:?}: {:?}", texts.map(final_answer));
        }
        assert!(agree(["7", "7.", "\\boxed{7}"]));
    }

    #[test]
    fn other_answers_differ() {
        for texts in [
            ["A", "B"],
            ["5", "-5"],
            ["5", "5%"],
            ["0.5", "1/2"],
            ["3.5", "35"],
            ["The answer is 4", "The answer is 14"],
            ["\\boxed{1}", "\\boxed{\\frac{1}{2}}"],
            ["A) because of B", "A) because of C"],
            ["x < 5", "x > 5"],
            [".5", "5"],
            ["The answer is .5.", "The answer is 5."],
            ["5!", "5"],
            ["(1, 2]", "[1, 2)"],
        ] {
            assert!(!agree(texts), "{texts:?}: {:?}", texts.map(final_answer));
        }
        assert!(!agree(["7", "7", "8"]));
    }

    #[test]
    fn no_answer_agrees_with_nothing() {
        assert!(!agree(["", ""]) && !agree([" \n", "..."]) && !agree(["7"]) && !agree([]));
        assert_eq!(final_answer("\\boxed{never closed"), "\\boxed{never closed");
    }
}
