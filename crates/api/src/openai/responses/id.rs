//! The ids of responses and of their items, which all contain the run's id.

use podium_domain::ids::RunId;

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

/// The id of a run's response.
pub fn response_id(run: RunId) -> String {
    format!("{RESPONSE}{}", run.as_uuid().simple())
}

/// The run of a response; none if the id is not one of ours.
pub fn run_of_response(id: &str) -> Option<RunId> {
    run_of(id.strip_prefix(RESPONSE)?)
}

/// The run that an item belongs to; none if the id is not one of ours.
pub(super) fn run_of_item(id: &str) -> Option<RunId> {
    let rest = after_prefix(&ITEMS, id)?;
    run_of(rest.split('_').next()?)
}

/// The id of the message that a run answers with.
pub(super) fn output_message_id(run: RunId) -> String {
    format!("{MESSAGE}{}", run.as_uuid().simple())
}

/// The id of a message with text that a worker wrote after its calls. It occurs in streams only.
pub(super) fn late_message_id(run: RunId) -> String {
    format!("{MESSAGE}{}_late", run.as_uuid().simple())
}

/// The id of the reasoning item of a run.
pub(super) fn reasoning_id(run: RunId) -> String {
    format!("{REASONING}{}", run.as_uuid().simple())
}

/// The id of the call at position `call` of the answer.
pub(super) fn output_call_id(run: RunId, kind: &ToolKind, call: usize) -> String {
    format!("{}{}_{call}", call_prefix(kind), run.as_uuid().simple())
}

/// The position of a call in the answer.
pub(super) fn output_call_index(id: &str) -> Option<usize> {
    after_prefix(&[CALL, CUSTOM_CALL, SEARCH_CALL], id)?.split_once('_')?.1.parse().ok()
}

/// The id of a call in a run's input: part `part` of the message at `index` among all messages of the run.
pub(super) fn input_call_id(run: RunId, kind: &ToolKind, index: usize, part: usize) -> String {
    format!("{}{}_{index}_{part}", call_prefix(kind), run.as_uuid().simple())
}

/// The id of the output of a tool in a run's input, as [`input_call_id`].
pub(super) fn input_output_id(run: RunId, kind: &ToolKind, index: usize, part: usize) -> String {
    format!("{}{}_{index}_{part}", output_prefix(kind), run.as_uuid().simple())
}

/// The message and the part that the id of a call or an output in an input names.
pub(super) fn input_part(id: &str) -> Option<(usize, usize)> {
    let prefixes = [CALL, OUTPUT, CUSTOM_CALL, CUSTOM_OUTPUT, SEARCH_CALL, SEARCH_OUTPUT];
    let (index, part) = after_prefix(&prefixes, id)?.split_once('_')?.1.split_once('_')?;
    Some((index.parse().ok()?, part.parse().ok()?))
}

fn after_prefix<'i>(prefixes: &[&str], id: &'i str) -> Option<&'i str> {
    prefixes.iter().find_map(|prefix| id.strip_prefix(prefix))
}

/// The id of a message of a run's input. `index` is its position among all messages of the run.
pub(super) fn input_message_id(run: RunId, index: usize) -> String {
    format!("{MESSAGE}{}_{index}", run.as_uuid().simple())
}

/// The position of a message of a run's input among all messages of the run.
pub(super) fn input_message_index(id: &str) -> Option<usize> {
    id.strip_prefix(MESSAGE)?.split_once('_')?.1.parse().ok()
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
    fn ids_of_responses_and_items_contain_the_run() {
        let run: RunId = "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap();
        assert_eq!(response_id(run), "resp_01890a5dac96774bbcceb302099a8057");
        assert_eq!(run_of_response(&response_id(run)), Some(run));
        assert_eq!(run_of_item(&output_message_id(run)), Some(run));
        assert_eq!(input_message_index(&output_message_id(run)), None);
        let input = input_message_id(run, 12);
        assert_eq!((run_of_item(&input), input_message_index(&input)), (Some(run), Some(12)));
        for kind in [ToolKind::Function, ToolKind::Custom { format: None }, ToolKind::Search] {
            let call = output_call_id(run, &kind, 3);
            assert_eq!(
                (run_of_item(&call), output_call_index(&call), input_part(&call)),
                (Some(run), Some(3), None)
            );
            for id in [input_call_id(run, &kind, 12, 1), input_output_id(run, &kind, 12, 1)] {
                assert_eq!((run_of_item(&id), output_call_index(&id)), (Some(run), None), "{id}");
                assert_eq!(input_part(&id), Some((12, 1)), "{id}");
            }
        }
    }

    #[test]
    fn other_ids_belong_to_no_run() {
        for id in [
            "",
            "resp_",
            "resp_abc",
            "resp_01890A5DAC96774BBCCEB302099A8057",
            "01890a5dac96774bbcceb302099a8057",
        ] {
            assert_eq!(run_of_response(id), None, "{id}");
        }
        for id in ["msg_", "msg_abc", "mcp_01890a5dac96774bbcceb302099a8057"] {
            assert_eq!(run_of_item(id), None, "{id}");
        }
    }
}
