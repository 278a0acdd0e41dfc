//! Numbers that describe the form of a question: its length, its lines, its share of digits. An encoder keeps the subject of
//! a text and loses much of its form, which says a lot about the task.

/// Numbers that [`form`] returns. A head that was trained with other numbers cannot be used.
pub const FORM_VALUES: usize = 21;
/// Names the numbers of [`form`]. It changes when they change.
pub const FORM: &str = "form-1";

/// The form of a question. All numbers are finite.
pub fn form(question: &str) -> [f32; FORM_VALUES] {
    let chars = question.chars().count();
    let words = question.split_whitespace().count();
    let count = |is: fn(char) -> bool| question.chars().filter(|c| is(*c)).count();
    let share = |is: fn(char) -> bool| ratio(count(is), chars);
    let number = |of: char| ratio(question.matches(of).count(), 1);
    let text = question.trim_end();
    let flag = |is: bool| if is { 1.0 } else { 0.0 };
    let word_chars: usize = question.split_whitespace().map(|word| word.chars().count()).sum();
    [
        log(chars),
        log(words),
        log(question.lines().count()),
        share(|c| c.is_ascii_digit()),
        share(char::is_uppercase),
        share(char::is_alphabetic),
        share(char::is_whitespace),
        share(|c| !c.is_ascii()),
        share(|c| c == '$'),
        share(|c| c == '\\'),
        share(|c| c == '('),
        number('?'),
        number('='),
        number(':'),
        number(','),
        number('.'),
        ratio(count(|c| c == '"' || c == '\''), 1),
        ratio(word_chars, words),
        flag(question.chars().next().is_some_and(char::is_lowercase)),
        flag(text.ends_with('?')),
        flag(text.ends_with('.')),
    ]
}

fn log(count: usize) -> f32 {
    as_f32(count).ln_1p()
}

fn ratio(part: usize, whole: usize) -> f32 {
    as_f32(part) / as_f32(whole.max(1))
}

#[expect(clippy::cast_precision_loss, reason = "an approximate size is enough")]
fn as_f32(count: usize) -> f32 {
    count as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_of_any_text_is_finite() {
        for text in ["", " ", "?", "x = 2 \\cdot \u{3c0}\n", "¿Cuánto es 17 + 4?"] {
            assert!(form(text).iter().all(|value| value.is_finite()), "{text:?}: {:?}", form(text));
        }
    }

    #[test]
    fn the_form_tells_a_sum_from_a_sentence() {
        let (sum, sentence) = (form("17 + 4 = ?"), form("Name a river in France."));
        // Three of ten characters are digits.
        assert!((sum[3] - 0.3).abs() < 1e-6 && sum[12] > sentence[12], "{sum:?} {sentence:?}");
        assert_eq!((sum[19], sentence[19], sentence[20]), (1.0, 0.0, 1.0));
    }
}
