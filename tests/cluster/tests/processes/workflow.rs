//! The workflow of the runs in these tests.

use podium_vendor_sim::{Behaviour, Call, ScriptedCall, ScriptedReply, Speaker, When};
use tempfile::NamedTempFile;

/// A diamond: two steps on the question's number, one on both results.
const DIAMOND: &str = r#"
name: diamond
version: "1"
steps:
  - worker: sim-arithmetic
    subtask: "multiply {{ question }} by 3"
  - worker: sim-arithmetic
    subtask: "add 5 to {{ question }}"
  - worker: sim-generalist
    subtask: "add result 1 and result 2"
    sees: [1, 2]
"#;
/// Steps of the diamond.
pub(crate) const STEPS: usize = 3;
/// The worker of its branches.
pub(crate) const BRANCHES: &str = "sim-arithmetic";
/// The worker of the joining step. It is right only if the simulated generalist never errs.
pub(crate) const JOIN: &str = "sim-generalist";

/// The setting `conductor` for the diamond, and the file that it names.
pub(crate) fn diamond() -> (String, NamedTempFile) {
    let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    std::fs::write(file.path(), DIAMOND).unwrap();
    (format!("fixed:{}", file.path().display()), file)
}

/// The tool that some clients offer.
pub(crate) const TOOL: &str = "look";
/// The result of each of its calls.
pub(crate) const TOOL_RESULT: &str = "nothing to see";

/// A worker that calls the tool first if it is offered, and answers after the result.
pub(crate) fn calling() -> Behaviour {
    let call = ScriptedReply {
        when: When { last: Some(Speaker::User), ..When::default() },
        text: String::new(),
        calls: vec![ScriptedCall { name: TOOL.to_owned(), arguments: serde_json::Value::Null }],
    };
    Behaviour { replies: vec![call], answers_after_tools: true, ..Behaviour::default() }
}

/// The pool with the feature `tools` for each worker.
pub(crate) fn with_tools(pool: &str) -> String {
    let features = r#"features = ["temperature", "top_p", "stop", "seed", "tools"]"#;
    pool.replace("context_tokens", &format!("{features}\ncontext_tokens"))
}

/// The fault of the diamond's answer to `number`. It must be `4 * number + 5`, and the stamp that the simulated vendor appends
/// must belong to one call only.
pub(crate) fn wrong(number: u64, answer: &str) -> Option<String> {
    let mut words = answer.split(' ');
    let value = words.next().unwrap_or_default();
    let mut stamps = words.clone();
    let one_call =
        stamps.next().is_none_or(|first| first.starts_with("call-") && stamps.all(|stamp| stamp == first));
    let right = value == (4 * number + 5).to_string() && one_call;
    (!right).then(|| format!("{number}: {answer}"))
}

/// Calls of the joining step.
pub(crate) fn joins(calls: &[Call]) -> usize {
    calls.iter().filter(|call| call.model == JOIN).count()
}

#[test]
fn an_answer_mixed_of_two_calls_is_wrong() {
    assert_eq!(wrong(2, "13"), None);
    assert_eq!(wrong(2, "13 call-7 call-7"), None);
    for answer in ["14", "13 call-7 call-8", "", "13 call", "13 14"] {
        assert!(wrong(2, answer).is_some(), "{answer}");
    }
}
