//! The ids of responses and of their items, which all contain the run's id.

use podium_domain::ids::RunId;

/// The digits of a run's id.
const DIGITS: usize = 32;
const RESPONSE: &str = "resp_";
/// The prefixes of items: messages and reasoning.
const ITEMS: [&str; 2] = [MESSAGE, REASONING];
const MESSAGE: &str = "msg_";
const REASONING: &str = "rs_";

/// The id of a run's response.
pub(super) fn response_id(run: RunId) -> String {
    format!("{RESPONSE}{}", run.as_uuid().simple())
}

/// The run of a response; none if the id is not one of ours.
pub fn run_of_response(id: &str) -> Option<RunId> {
    run_of(id.strip_prefix(RESPONSE)?)
}

/// The run that an item belongs to; none if the id is not one of ours.
pub(super) fn run_of_item(id: &str) -> Option<RunId> {
    let rest = ITEMS.iter().find_map(|prefix| id.strip_prefix(prefix))?;
    run_of(rest.split('_').next()?)
}

/// The id of the message that a run answers with.
pub(super) fn output_message_id(run: RunId) -> String {
    format!("{MESSAGE}{}", run.as_uuid().simple())
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
        for id in ["msg_", "msg_abc", "fc_01890a5dac96774bbcceb302099a8057"] {
            assert_eq!(run_of_item(id), None, "{id}");
        }
    }
}
