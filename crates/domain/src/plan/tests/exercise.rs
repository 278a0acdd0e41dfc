//! Properties of any bytes. A property test runs them, and so does the fuzz target, which includes this file.

use super::{PlanDraft, PlanPiece, PlanStream, Policy, Pool};

/// Parses the bytes after the first as a plan, as a whole and in parts whose sizes the first byte chooses, and checks it.
///
/// # Panics
/// If the two results differ, or the pieces and the final draft, or the plan and its stored form.
pub(crate) fn exercise(bytes: &[u8], pool: &Pool, policy: &Policy) {
    let Some((seed, text)) = bytes.split_first() else {
        return;
    };
    let text = String::from_utf8_lossy(text);
    let whole = PlanDraft::parse(&text);

    let mut stream = PlanStream::new();
    let mut folded = PlanDraft::default();
    let mut restarts = 0;
    for part in parts(&text, *seed) {
        for piece in stream.push(part) {
            restarts += usize::from(piece == PlanPiece::Restarted);
            folded.apply(piece);
        }
    }
    let is_complete = stream.is_complete();
    let located = stream.finish_located();
    assert!(restarts <= text.len(), "{restarts} restarts");
    assert_eq!(located.clone().map(|(draft, _)| draft), whole);
    assert!(!is_complete || whole.is_ok());

    let Ok((draft, at)) = located else { return };
    assert_eq!(folded, draft);
    assert!(text[at..].to_ascii_lowercase().starts_with("model_id"));
    if let Ok(plan) = draft.check(pool, policy) {
        assert_eq!(plan.len(), draft.subtasks.len());
        for (index, step) in plan.indexed() {
            let access = step.access.as_slice();
            assert!(access.is_sorted_by(|a, b| a < b), "{access:?}");
            assert!(access.iter().all(|seen| *seen < index), "{access:?} of {index:?}");
        }
        assert!(!draft.keeps_answer());
    }
}

/// Cuts a text at character boundaries into parts of about 1 to 16 bytes.
fn parts(text: &str, seed: u8) -> impl Iterator<Item = &str> {
    let mut rest = text;
    let mut state = u32::from(seed);
    std::iter::from_fn(move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let wanted = if seed == 0 { 1 } else { 1 + (state >> 28) as usize };
        let end = (wanted.min(rest.len())..=rest.len()).find(|end| rest.is_char_boundary(*end))?;
        let (part, after) = rest.split_at(end);
        rest = after;
        (!part.is_empty()).then_some(part)
    })
}
