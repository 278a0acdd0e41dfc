//! An answer before it is encoded in a wire format: its tokens, tool calls and counts.

use serde_json::{Map, Value, json};

use super::ask::{Ask, Choice, Form, Reasoning};

/// Bytes of UTF-8 per token of this vendor, rounded up to whole characters.
pub(super) const TOKEN_BYTES: usize = 4;
/// How deep a schema is followed.
const SCHEMA_DEPTH_MAX: usize = 8;
/// Longest text in an argument.
const ARGUMENT_CHARS_MAX: usize = 64;

/// The text that is sent as reasoning.
const REASONING: [&str; 2] = ["This is a simulation: ", "nobody reasons here."];

/// An answer to send.
#[derive(Debug, Clone)]
pub(super) struct Completion {
    /// Identifies the answer; the same in every run with the same seed.
    pub(super) draw: u64,
    pub(super) model: &'static str,
    /// Seconds since 1970.
    pub(super) created: u64,
    pub(super) reasoning: Vec<&'static str>,
    pub(super) pieces: Vec<String>,
    pub(super) calls: Vec<Call>,
    pub(super) end: End,
    pub(super) prompt_tokens: usize,
    pub(super) cached_tokens: usize,
    /// The stop sequences of the request.
    pub(super) stops: Vec<String>,
    /// The recorded number of tokens of a recorded answer.
    pub(super) recorded_tokens: Option<usize>,
}

/// A tool call.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Call {
    pub(super) name: String,
    /// The text of the arguments, usually a JSON object.
    pub(super) arguments: String,
}

impl Call {
    /// The arguments for formats that send JSON; an empty object if the text is not one.
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.arguments)
            .ok()
            .filter(Value::is_object)
            .unwrap_or_else(|| Value::Object(Map::new()))
    }

    /// The arguments in pieces, for streams.
    pub(super) fn pieces(&self) -> Vec<&str> {
        let middle = self.arguments.floor_char_boundary(self.arguments.len() / 2);
        let (first, second) = self.arguments.split_at(middle);
        [first, second].into_iter().filter(|piece| !piece.is_empty()).collect()
    }
}

/// Why an answer ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Stop,
    /// A stop sequence of the request: its index.
    StopSequence(usize),
    Length,
    ToolCalls,
    /// The model refused.
    Declined,
}

impl Completion {
    pub(super) fn text(&self) -> String {
        self.pieces.concat()
    }

    /// The recorded tokens, or one token per text piece and per four bytes of arguments; includes reasoning.
    pub(super) fn completion_tokens(&self) -> usize {
        if let Some(recorded) = self.recorded_tokens {
            return recorded;
        }
        let arguments = self.calls.iter().map(|call| call.arguments.len().div_ceil(TOKEN_BYTES));
        self.pieces.len() + arguments.sum::<usize>() + self.reasoning_tokens()
    }

    /// The stop sequence that ended it.
    pub(super) fn stop_sequence(&self) -> Option<&str> {
        let End::StopSequence(index) = self.end else { return None };
        self.stops.get(index).map(String::as_str)
    }

    pub(super) fn reasoning_tokens(&self) -> usize {
        self.reasoning.iter().map(|text| text.len().div_ceil(TOKEN_BYTES)).sum()
    }
}

/// The reasoning of an answer.
pub(super) fn reasoning(ask: &Ask) -> Vec<&'static str> {
    match ask.reasoning {
        Reasoning::Hidden => Vec::new(),
        Reasoning::Shown => REASONING.to_vec(),
    }
}

/// The tools that an answer calls: those that the question names. If it names none but must call one, the first. After tool
/// results it calls none.
pub(super) fn calls(ask: &Ask) -> Vec<Call> {
    let tools = &ask.tools;
    let question = ask.last_user_text();
    let words = || question.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '-');
    let named = tools.offered.iter().filter(|tool| words().any(|word| word == tool.name));
    let called: Vec<_> = match &tools.choice {
        Choice::Never => Vec::new(),
        _ if !ask.last_results().is_empty() => Vec::new(),
        Choice::Named(name) => tools.offered.iter().filter(|tool| tool.name == *name).collect(),
        Choice::Auto => named.collect(),
        Choice::Required => {
            let named: Vec<_> = named.collect();
            if named.is_empty() { tools.offered.iter().take(1).collect() } else { named }
        }
    };
    let text: String = question.chars().take(ARGUMENT_CHARS_MAX).collect();
    let call = |tool: &super::ask::Tool| {
        let arguments = example(&tool.schema, &text, 0);
        let arguments = if arguments.is_object() { arguments } else { Value::Object(Map::new()) };
        Call { name: tool.name.clone(), arguments: arguments.to_string() }
    };
    called.into_iter().take(tools.calls_max).map(call).collect()
}

/// The answer in the requested response format.
pub(super) fn in_form(form: &Form, answer: String) -> String {
    match form {
        Form::Text => answer,
        Form::Object => json!({ "answer": answer }).to_string(),
        Form::Schema(schema) => example(schema, &answer, 0).to_string(),
    }
}

/// A value that follows the schema; strings are `text` where the schema allows any.
fn example(schema: &Value, text: &str, depth: usize) -> Value {
    if depth == SCHEMA_DEPTH_MAX {
        return Value::Null;
    }
    if let Some(first) = schema.get("enum").and_then(Value::as_array).and_then(|values| values.first()) {
        return first.clone();
    }
    let below = |schema: &Value| example(schema, text, depth + 1);
    let alternatives = schema.get("anyOf").and_then(Value::as_array);
    if let Some(first) = alternatives.and_then(|schemas| schemas.first()) {
        return below(first);
    }
    let kind = schema.get("type").and_then(Value::as_str).unwrap_or("object").to_ascii_lowercase();
    match kind.as_str() {
        "string" => Value::from(text),
        "integer" | "number" => Value::from(1),
        "boolean" => Value::from(true),
        "array" => Value::Array(schema.get("items").map(below).into_iter().collect()),
        "object" => {
            let properties = schema.get("properties").and_then(Value::as_object);
            let fields = properties.into_iter().flatten().map(|(name, schema)| (name.clone(), below(schema)));
            Value::Object(fields.collect())
        }
        _ => Value::Null,
    }
}

/// Splits a text into tokens.
pub(super) fn tokens(text: &str) -> Vec<String> {
    let mut tokens = Vec::with_capacity(text.len().div_ceil(TOKEN_BYTES));
    let mut rest = text;
    while !rest.is_empty() {
        let end = (TOKEN_BYTES.min(rest.len())..=rest.len())
            .find(|end| rest.is_char_boundary(*end))
            .unwrap_or(rest.len());
        let (token, after) = rest.split_at(end);
        tokens.push(token.to_owned());
        rest = after;
    }
    tokens
}

/// Cuts the text at the first stop sequence and the token limit. Returns its tokens and why it ends.
pub(super) fn limited(text: &str, stops: &[String], tokens_max: Option<usize>) -> (Vec<String>, End) {
    let found = |(index, stop): (usize, &String)| Some((text.find(stop.as_str())?, index));
    let first = stops.iter().enumerate().filter(|(_, stop)| !stop.is_empty()).filter_map(found).min();
    let mut pieces = tokens(&text[..first.map_or(text.len(), |(end, _)| end)]);
    let limit = tokens_max.unwrap_or(usize::MAX);
    let reason = match first {
        _ if pieces.len() > limit => End::Length,
        Some((_, index)) => End::StopSequence(index),
        None => End::Stop,
    };
    pieces.truncate(limit);
    (pieces, reason)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{End, example, limited, tokens};

    #[test]
    fn tokens_are_four_bytes_and_never_split_a_character() {
        assert_eq!(tokens("abcdefghi"), ["abcd", "efgh", "i"]);
        assert_eq!(tokens("abc\u{e9}xyz"), ["abc\u{e9}", "xyz"]);
        assert!(tokens("").is_empty());
    }

    #[test]
    fn limits_and_stop_sequences_end_the_text() {
        assert_eq!(limited("abcdefgh", &[], Some(1)), (vec!["abcd".to_owned()], End::Length));
        assert_eq!(limited("abcdefgh", &[], Some(2)).1, End::Stop);
        assert_eq!(
            limited("abcdefgh", &["zz".to_owned(), "f".to_owned()], None),
            (vec!["abcd".to_owned(), "e".to_owned()], End::StopSequence(1))
        );
    }

    #[test]
    fn an_example_follows_its_schema() {
        let schema = json!({ "type": "object", "properties": {
            "city": { "type": "string" },
            "unit": { "type": "STRING", "enum": ["celsius", "kelvin"] },
            "days": { "type": "array", "items": { "type": "integer" } },
            "country": { "anyOf": [{ "type": "string" }, { "type": "null" }] },
        } });
        let expected = json!({ "city": "Oslo", "unit": "celsius", "days": [1], "country": "Oslo" });
        assert_eq!(example(&schema, "Oslo", 0), expected);
        let mut deep = json!({ "type": "array" });
        for _ in 0..20 {
            deep = json!({ "type": "array", "items": deep });
        }
        assert_eq!(example(&deep, "", 0).to_string(), "[[[[[[[[null]]]]]]]]");
    }
}
