//! Advances sequences by their logits. Large vocabularies are processed in several threads.

use super::slot::Slot;
use super::{Ended, EngineError};
use crate::vocabulary::Vocabulary;

/// A sequence whose logits are available.
pub(super) struct Turn<'a> {
    pub(super) sequence: u16,
    pub(super) slot: &'a mut Slot,
    pub(super) logits: &'a [f32],
}

/// Below this vocabulary size, choosing the tokens takes less time than starting threads.
const VOCABULARY_OF_ONE_THREAD: usize = 32_768;

/// Chooses the next token of each sequence. Returns the sequences that ended, with the reason.
pub(super) fn advance(
    mut turns: Vec<Turn<'_>>,
    vocabulary: &Vocabulary,
    threads: usize,
) -> Vec<(u16, Result<Ended, EngineError>)> {
    let threads = if vocabulary.speakable().len() < VOCABULARY_OF_ONE_THREAD { 1 } else { threads };
    let share = turns.len().div_ceil(threads.max(1));
    let (own, others) = turns.split_at_mut(share);
    std::thread::scope(|scope| {
        let others: Vec<_> = others
            .chunks_mut(share.max(1))
            .map(|turns| scope.spawn(|| one_after_another(turns, vocabulary)))
            .collect();
        let mut ended = one_after_another(own, vocabulary);
        for thread in others {
            match thread.join() {
                Ok(more) => ended.extend(more),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        ended
    })
}

fn one_after_another(
    turns: &mut [Turn<'_>],
    vocabulary: &Vocabulary,
) -> Vec<(u16, Result<Ended, EngineError>)> {
    let ended = turns.iter_mut().filter_map(|turn| {
        let ended = turn.slot.advance(turn.logits, vocabulary).transpose()?;
        Some((turn.sequence, ended))
    });
    ended.collect()
}
