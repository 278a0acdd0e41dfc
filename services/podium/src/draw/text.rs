//! Fitting text into columns.

use std::time::Duration;

use unicode_width::UnicodeWidthChar as _;

use crate::terminal::visible;

/// The inputs of a step, for people: the previous round under the name `earlier`, if it sees that, then steps by their numbers.
pub(crate) fn sees(access: &[u32], earlier: Option<&str>) -> Vec<String> {
    earlier.map(str::to_owned).into_iter().chain(access.iter().map(|seen| (seen + 1).to_string())).collect()
}

/// The text in one line of at most `columns` columns, with an ellipsis where it was cut. Control characters are shown.
pub(super) fn fit(text: &str, columns: usize) -> String {
    cut(&visible(&text.split_whitespace().collect::<Vec<_>>().join(" ")), columns)
}

/// The columns that a text takes.
pub(super) fn width(text: &str) -> usize {
    text.chars().map(|c| c.width().unwrap_or(0)).sum()
}

/// At most `columns` columns of the text, with an ellipsis where it was cut.
pub(super) fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut fitted = String::new();
    let mut used = 1;
    for c in text.chars() {
        used += c.width().unwrap_or(0);
        if used > columns {
            break;
        }
        fitted.push(c);
    }
    if columns > 0 {
        fitted.push('…');
    }
    fitted
}

/// The text, padded or cut to `columns`.
pub(super) fn column(text: &str, columns: usize) -> String {
    let mut fitted = fit(text, columns);
    let used = width(&fitted);
    fitted.extend(std::iter::repeat_n(' ', columns.saturating_sub(used)));
    fitted
}

/// A span in seconds, with a decimal only if it is short.
pub(super) fn seconds(span: Duration) -> String {
    if span < Duration::from_secs(100) {
        format!("{:.1} s", span.as_secs_f64())
    } else {
        format!("{} s", span.as_secs())
    }
}

/// A cost in dollars.
pub(super) fn dollars(nano_usd: u64) -> String {
    podium_domain::money::Cost::from_nano_usd(nano_usd).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_by_columns_and_made_harmless() {
        assert_eq!(fit("short", 10), "short");
        assert_eq!(fit("much too long", 6), "much …");
        assert_eq!(fit("日本語です", 5), "日本…");
        assert_eq!(fit("a\u{1b}[2J\nb\u{202e}", 20), "a^[[2J b<U+202E>");
        assert_eq!(fit("abc", 0), "");
        assert_eq!(column("ab", 4), "ab  ");
    }
}
