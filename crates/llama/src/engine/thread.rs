//! The engine's loop: admit, compute one batch over all slots, advance each slot by its logits.

use std::sync::Arc;

use llama_cpp_2::DecodeError;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TryRecvError;
use tokio_util::sync::CancellationToken;

use super::decoder::{Decoder, Logits, Part};
use super::slot::{Shared, Slot};
use super::{Command, Ended, EngineError};
use crate::grammar::Grammars;
use crate::vocabulary::Vocabulary;

/// Requests that are worked on at the same time, each a sequence of the context.
pub(super) const SLOTS: u16 = 1;

/// All that the thread owns, but the model.
pub(super) struct EngineThread<'model> {
    pub(super) decoder: Decoder<'model>,
    pub(super) vocabulary: &'model Vocabulary,
    pub(super) grammars: Grammars,
    pub(super) context_tokens: usize,
    pub(super) queue: mpsc::Receiver<Command>,
    pub(super) stop: CancellationToken,
    pub(super) slots: Vec<Option<Slot>>,
}

impl EngineThread<'_> {
    /// Works until it is told to stop, or until nobody can ask any more and all is answered.
    pub(super) fn run(mut self) {
        while self.admit() {
            self.end_interrupted();
            self.step();
        }
        for sequence in 0..SLOTS {
            self.end(sequence, Ok(Ended::Stopped));
        }
    }

    /// Fills free slots from the queue; waits for a request if all are free. False if it is time to stop.
    fn admit(&mut self) -> bool {
        loop {
            if self.stop.is_cancelled() {
                return false;
            }
            let Some(free) = self.slots.iter().position(Option::is_none) else { return true };
            let is_idle = self.slots.iter().all(Option::is_none);
            let command = match self.queue.try_recv() {
                Ok(command) => Some(command),
                Err(TryRecvError::Empty) if is_idle => self.queue.blocking_recv(),
                Err(TryRecvError::Disconnected) if is_idle => None,
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => return true,
            };
            match command {
                Some(Command::Generate(job)) => {
                    let mut shared = Shared {
                        vocabulary: self.vocabulary,
                        grammars: &mut self.grammars,
                        context_tokens: self.context_tokens,
                    };
                    match Slot::begin(job, &mut shared) {
                        Ok(slot) => self.slots[free] = Some(slot),
                        Err((job, error)) => drop(job.reply.send(Err(error))),
                    }
                }
                Some(Command::Stop) | None => return false,
            }
        }
    }

    fn end_interrupted(&mut self) {
        for sequence in 0..SLOTS {
            let slot = self.slots[usize::from(sequence)].as_ref();
            if let Some(ended) = slot.and_then(Slot::interrupted) {
                self.end(sequence, Ok(ended));
            }
        }
    }

    /// Computes the next tokens of every slot, as many as a batch holds: first one for each, then the rest of prompts.
    fn step(&mut self) {
        self.forget_stale();
        let mut room = self.decoder.batch_tokens_max();
        let mut parts = Vec::with_capacity(self.slots.len());
        let active =
            (0u16..).zip(&self.slots).filter_map(|(sequence, slot)| Some((sequence, slot.as_ref()?)));
        for (sequence, slot) in active {
            let undecoded = slot.undecoded();
            let tokens = &undecoded[..undecoded.len().min(room)];
            room -= tokens.len();
            let logits = if tokens.len() == undecoded.len() { Logits::AfterLast } else { Logits::Unwanted };
            parts.push(Part { sequence, position: slot.decoded(), tokens, logits });
        }
        if parts.is_empty() {
            return;
        }
        let counts: Vec<(u16, usize)> = parts.iter().map(|part| (part.sequence, part.tokens.len())).collect();
        let logits = match self.decoder.decode(&parts) {
            Ok(logits) => logits,
            Err(error) => return self.fail(error),
        };
        let mut shared = Shared {
            vocabulary: self.vocabulary,
            grammars: &mut self.grammars,
            context_tokens: self.context_tokens,
        };
        let mut ended = Vec::new();
        for ((sequence, tokens), logits) in counts.into_iter().zip(logits) {
            let Some(slot) = &mut self.slots[usize::from(sequence)] else { continue };
            slot.add_decoded(tokens);
            let Some(logits) = logits else { continue };
            if let Some(end) = slot.advance(logits, &mut shared).transpose() {
                ended.push((sequence, end));
            }
        }
        for (sequence, end) in ended {
            self.end(sequence, end);
        }
    }

    fn forget_stale(&mut self) {
        for sequence in 0..SLOTS {
            let Some(slot) = &mut self.slots[usize::from(sequence)] else { continue };
            if slot.take_stale()
                && let Err(error) = self.decoder.forget(sequence, slot.decoded())
            {
                self.end(sequence, Err(error));
            }
        }
    }

    /// A batch failed. It cannot be told whose fault that is, so all end.
    fn fail(&mut self, error: DecodeError) {
        tracing::warn!(%error, "llama.cpp refused a batch");
        let error = Arc::new(error);
        for sequence in 0..SLOTS {
            self.end(sequence, Err(EngineError::Decode(Arc::clone(&error))));
        }
    }

    /// Frees a slot and its part of the context.
    fn end(&mut self, sequence: u16, ended: Result<Ended, EngineError>) {
        if let Some(slot) = self.slots[usize::from(sequence)].take() {
            if let Err(error) = self.decoder.forget(sequence, 0) {
                tracing::error!(error = %error, "a finished sequence stays in the context");
            }
            slot.finish(ended);
        }
    }
}
