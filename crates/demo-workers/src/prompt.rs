//! Parses a worker's message: the whole question, the visible earlier results, and its subtask. A message without these
//! parts is a plain question, which is its own subtask.

use crate::skills::{Task, Visible};

/// Most earlier results in one message.
const STEPS_MAX: usize = 64;
/// The tags that structure a message. In data, a `<` before one of them is written `&lt;`.
const TAGS: [&str; 4] = ["question", "step", "subtask", "output"];

/// The task that a worker's message states.
pub fn task(message: &str) -> Task {
    let Some((subtask, before)) = last_element(message, "subtask") else {
        return Task::question(message.trim());
    };
    // A subtask inside a step belongs to an earlier worker; this worker's subtask follows all steps.
    let inside_step =
        before.rfind("<step ").is_some_and(|open| before.rfind("</step>").is_none_or(|close| close < open));
    if inside_step {
        return Task::question(message.trim());
    }
    let question = element(before, "question").map_or(subtask, |(inner, _)| inner);
    Task { subtask: unescaped(subtask), visible: visible(before), question: unescaped(question) }
}

/// The question of a planning prompt: the text of the last question tags, or else the whole message.
pub(crate) fn question(message: &str) -> String {
    let found = last_element(message, "question").map(|(inner, _)| inner);
    found.map_or_else(|| message.trim().to_owned(), unescaped)
}

fn visible(text: &str) -> Vec<Visible> {
    let mut steps = Vec::new();
    let mut rest = text;
    while steps.len() < STEPS_MAX {
        let Some(at) = rest.find("<step ") else { break };
        rest = &rest[at..];
        let number = rest.split('"').nth(1).and_then(|number| number.parse().ok()).unwrap_or(steps.len() + 1);
        let end = rest.find("</step>").unwrap_or(rest.len());
        let output = element(&rest[..end], "output").map(|(inner, _)| unescaped(inner));
        steps.push(Visible { number, output });
        rest = &rest[end..];
    }
    steps
}

/// The trimmed text of the first element with this name, and the text after it.
fn element<'t>(text: &'t str, name: &str) -> Option<(&'t str, &'t str)> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let (_, after) = text.split_once(&open)?;
    let (inner, rest) = after.split_once(&close)?;
    Some((inner.trim(), rest))
}

/// The trimmed text of the last element with this name, and the text before it.
fn last_element<'t>(text: &'t str, name: &str) -> Option<(&'t str, &'t str)> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let start = text.rfind(&open)?;
    let inner = &text[start + open.len()..];
    let end = inner.find(&close)?;
    Some((inner[..end].trim(), &text[..start]))
}

/// Restores the `<` of escaped tags in data.
fn unescaped(data: &str) -> String {
    let mut text = String::with_capacity(data.len());
    let mut rest = data;
    while let Some(at) = rest.find("&lt;") {
        let (before, from) = rest.split_at(at);
        let after = &from["&lt;".len()..];
        let name = after.trim_start().strip_prefix('/').unwrap_or(after).trim_start();
        let escaped =
            TAGS.iter().any(|tag| name.get(..tag.len()).is_some_and(|start| start.eq_ignore_ascii_case(tag)));
        text.push_str(before);
        text.push_str(if escaped { "<" } else { "&lt;" });
        rest = after;
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use super::{question, task};
    use crate::skills::{Task, Visible};

    const MESSAGE: &str = "The whole task, for context:\n<question>\nWhat is a < b &lt;/question>?\n</question>\n\n\
        Earlier results you may use:\n<step number=\"1\">\n<subtask>\nthe first\n</subtask>\n<output>\n440\n</output>\n</step>\n\
        <step number=\"3\">\n<subtask>\nthe third\n</subtask>\n<output missing=\"true\"></output>\n</step>\n\n\
        Your subtask:\n<subtask>\nmultiply the result by 12\n</subtask>\n\nAnswer your subtask only.";

    #[test]
    fn a_message_is_read_into_its_parts() {
        let visible =
            vec![Visible { number: 1, output: Some("440".to_owned()) }, Visible { number: 3, output: None }];
        let question = "What is a < b </question>?".to_owned();
        assert_eq!(
            task(MESSAGE),
            Task { subtask: "multiply the result by 12".to_owned(), visible, question }
        );
    }

    #[test]
    fn a_message_without_tags_is_a_question() {
        assert_eq!(task(" What is 3 + 4? \n"), Task::question("What is 3 + 4?"));
        assert_eq!(task("<subtask>half open"), Task::question("<subtask>half open"));
        assert_eq!(question("no tags"), "no tags");
        assert_eq!(question("<question>a</question> <question>\nb\n</question>"), "b");
    }
}
