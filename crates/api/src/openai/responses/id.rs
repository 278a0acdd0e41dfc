//! The ids of responses and of their items, which all contain the run's id.

use std::fmt;

use podium_domain::ids::RunId;
use podium_domain::run::Run;

use crate::openai::tool_forms::ToolKind;

/// The digits of a run's id.
const DIGITS: usize = 32;
const RESPONSE: &str = "resp_";
/// The prefixes of items: messages, reasoning, calls and their outputs.
const ITEMS: [&str; 8] =
    [MESSAGE, REASONING, CALL, OUTPUT, CUSTOM_CALL, CUSTOM_OUTPUT, SEARCH_CALL, SEARCH_OUTPUT];
const MESSAGE: &str = "msg_";
const REASONING: &str = "rs_";
const CALL: &str = "fc_";
const OUTPUT: &str = "fco_";
const CUSTOM_CALL: &str = "ctc_";
const CUSTOM_OUTPUT: &str = "ctco_";
const SEARCH_CALL: &str = "tsc_";
const SEARCH_OUTPUT: &str = "tso_";

/// The prefix of the ids of calls of such a tool.
const fn call_prefix(kind: &ToolKind) -> &'static str {
    match kind {
        ToolKind::Function => CALL,
        ToolKind::Custom { .. } => CUSTOM_CALL,
        ToolKind::Search => SEARCH_CALL,
    }
}

/// The prefix of the ids of outputs of such a tool.
const fn output_prefix(kind: &ToolKind) -> &'static str {
    match kind {
        ToolKind::Function => OUTPUT,
        ToolKind::Custom { .. } => CUSTOM_OUTPUT,
        ToolKind::Search => SEARCH_OUTPUT,
    }
}

/// A response: a reply of a run. The first one has the run's digits only; further ones end with their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResponseId {
    run: RunId,
    reply: u16,
}

impl ResponseId {
    /// The response that is the current reply of a run.
    pub fn of(run: &Run) -> Self {
        Self::new(run.id(), run.reply())
    }

    /// A reply of a run.
    pub const fn new(run: RunId, reply: u16) -> Self {
        Self { run, reply }
    }

    /// Parses an id; none if it is not one of ours.
    pub fn parse(id: &str) -> Option<Self> {
        let parsed = Self::begin(id.strip_prefix(RESPONSE)?)?;
        (parsed.to_string() == id).then_some(parsed)
    }

    /// Its run.
    pub const fn run(self) -> RunId {
        self.run
    }

    /// The number of the reply.
    pub const fn reply(self) -> u16 {
        self.reply
    }

    /// The response before it in its run.
    pub(super) fn before(self) -> Option<Self> {
        self.reply.checked_sub(1).map(|reply| Self { reply, ..self })
    }

    /// The response whose digits and number `text` begins with.
    fn begin(text: &str) -> Option<Self> {
        let (digits, rest) = text.split_at_checked(DIGITS)?;
        let run = run_of(digits)?;
        let number = rest.strip_prefix("_r").map(|rest| rest.split('_').next().unwrap_or_default());
        Some(Self { run, reply: number.map_or(Some(0), |number| number.parse().ok())? })
    }

    /// The part that the ids of the response and of its items share.
    fn stem(self) -> String {
        let digits = self.run.as_uuid().simple();
        match self.reply {
            0 => digits.to_string(),
            reply => format!("{digits}_r{reply}"),
        }
    }
}

impl fmt::Display for ResponseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{RESPONSE}{}", self.stem())
    }
}

/// The run that an item belongs to; none if the id is not one of ours.
pub(super) fn run_of_item(id: &str) -> Option<RunId> {
    let rest = ITEMS.iter().find_map(|prefix| id.strip_prefix(prefix))?;
    ResponseId::begin(rest).map(ResponseId::run)
}

/// The id of the message of an answer.
pub(super) fn output_message_id(response: ResponseId) -> String {
    format!("{MESSAGE}{}", response.stem())
}

/// The id of a message with text that a worker wrote after its calls. It occurs in streams only.
pub(super) fn late_message_id(response: ResponseId) -> String {
    format!("{MESSAGE}{}_late", response.stem())
}

/// The id of the reasoning item of a response.
pub(super) fn reasoning_id(response: ResponseId) -> String {
    format!("{REASONING}{}", response.stem())
}

/// The id of the reasoning item with the summary, which stands before the answer.
pub(super) fn summary_id(response: ResponseId) -> String {
    format!("{REASONING}{}_summary", response.stem())
}

/// The id of the call at position `call` of the answer.
pub(super) fn output_call_id(response: ResponseId, kind: &ToolKind, call: usize) -> String {
    format!("{}{}_{call}", call_prefix(kind), response.stem())
}

/// The id of a message of an input. `index` is its position among all messages that the run got with the request.
pub(super) fn input_message_id(response: ResponseId, index: usize) -> String {
    format!("{MESSAGE}{}_{index}", response.stem())
}

/// The id of a call in an input: part `part` of the message at `index`, as in [`input_message_id`].
pub(super) fn input_call_id(response: ResponseId, kind: &ToolKind, index: usize, part: usize) -> String {
    format!("{}{}_{index}_{part}", call_prefix(kind), response.stem())
}

/// The id of the output of a tool in an input, as [`input_call_id`].
pub(super) fn input_output_id(response: ResponseId, kind: &ToolKind, index: usize, part: usize) -> String {
    format!("{}{}_{index}_{part}", output_prefix(kind), response.stem())
}

/// The id of the item that carries the summary of a run.
pub(super) fn compaction_id(run: RunId) -> String {
    format!("cmp_{}", run.as_uuid().simple())
}

fn run_of(digits: &str) -> Option<RunId> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'a'..=b'f');
    (digits.len() == DIGITS && digits.bytes().all(is_digit)).then(|| digits.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_responses_and_items_contain_the_run_and_the_reply() {
        let run: RunId = "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap();
        for (reply, text) in
            [(0, "resp_01890a5dac96774bbcceb302099a8057"), (12, "resp_01890a5dac96774bbcceb302099a8057_r12")]
        {
            let id = ResponseId::new(run, reply);
            assert_eq!(id.to_string(), text);
            assert_eq!(ResponseId::parse(text), Some(id));
            let mut items = vec![output_message_id(id), late_message_id(id), input_message_id(id, 3)];
            items.extend([reasoning_id(id), summary_id(id)]);
            for kind in [ToolKind::Function, ToolKind::Custom { format: None }, ToolKind::Search] {
                items.push(output_call_id(id, &kind, 3));
                items.extend([input_call_id(id, &kind, 3, 1), input_output_id(id, &kind, 3, 1)]);
            }
            for item in items {
                assert_eq!(run_of_item(&item), Some(run), "{item}");
            }
        }
        assert_eq!(ResponseId::new(run, 2).before(), Some(ResponseId::new(run, 1)));
        assert_eq!(ResponseId::new(run, 0).before(), None);
    }

    #[test]
    fn other_ids_belong_to_no_run() {
        for id in [
            "",
            "resp_",
            "resp_abc",
            "resp_01890A5DAC96774BBCCEB302099A8057",
            "01890a5dac96774bbcceb302099a8057",
            "resp_01890a5dac96774bbcceb302099a8057_1",
            "resp_01890a5dac96774bbcceb302099a8057_r0",
            "resp_01890a5dac96774bbcceb302099a8057_r01",
            "resp_01890a5dac96774bbcceb302099a8057_r70000",
            "resp_01890a5dac96774bbcceb302099a8057_r1_2",
        ] {
            assert_eq!(ResponseId::parse(id), None, "{id}");
        }
        for id in ["msg_", "msg_abc", "mcp_01890a5dac96774bbcceb302099a8057"] {
            assert_eq!(run_of_item(id), None, "{id}");
        }
    }
}
