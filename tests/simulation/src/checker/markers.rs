//! Finds the marked parts of prompts and of vendors' texts.

/// The markers in vendors' texts, such as `17.2` for the third piece of call 17.
pub(super) fn markers(text: &str) -> Vec<&str> {
    text.split("[c").skip(1).filter_map(|rest| rest.split_once(']')).map(|(marker, _)| marker).collect()
}

/// The part of a text between two others; `None` if one of them is missing.
pub(super) fn between<'t>(text: &'t str, before: &str, after: &str) -> Option<&'t str> {
    Some(text.split_once(before)?.1.split_once(after)?.0)
}
