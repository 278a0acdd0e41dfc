//! The engine's loop: receive commands, assign free sequences, compute one batch, advance each sequence by its logits.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Instant;

use llama_cpp_2::DecodeError;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TryRecvError;
use tokio_util::sync::CancellationToken;

use super::advance::{Turn, advance};
use super::batch::{BatchLimits, Lacking, Purpose, compose};
use super::decoder::Decoder;
use super::metrics::{Metrics, Standing};
use super::prefixes::{Beginning, Prefixes};
use super::prepare::{Order, Prepared};
use super::reader::Reader;
use super::slot::Slot;
use super::waiting::Waiting;
use super::{Command, Ended, EngineError, Job};
use crate::vocabulary::Vocabulary;

/// Most prompt tokens of one batch, for which all writing sequences and a shutdown wait. More are not faster on a CPU, but
/// they are on a GPU.
const PROMPT_TOKENS_ON_CPU: usize = 64;
const PROMPT_TOKENS_ON_GPU: usize = 512;

/// A sequence of the context and its user.
enum Sequence {
    Free,
    /// Assigned to a request that is being prepared.
    Given,
    Taken(Box<Slot>),
}

impl Sequence {
    fn slot(&self) -> Option<&Slot> {
        match self {
            Self::Taken(slot) => Some(slot),
            Self::Free | Self::Given => None,
        }
    }

    fn slot_mut(&mut self) -> Option<&mut Slot> {
        match self {
            Self::Taken(slot) => Some(slot),
            Self::Free | Self::Given => None,
        }
    }
}

/// Everything that the thread owns except the model.
pub(super) struct EngineThread<'model> {
    decoder: Decoder<'model>,
    vocabulary: &'model Vocabulary,
    limits: BatchLimits,
    /// Threads for choosing tokens.
    threads: usize,
    queue: mpsc::UnboundedReceiver<Command>,
    orders: Sender<Order>,
    stop: CancellationToken,
    waiting: Waiting,
    /// Indexed by sequence.
    sequences: Vec<Sequence>,
    /// The occupied sequences, in the order of their assignment.
    order: Vec<u16>,
    prefixes: Prefixes,
    /// Present if hidden states are enabled.
    reader: Option<Reader<'model>>,
    metrics: Metrics,
}

/// Sizes of the engine.
pub(super) struct Size {
    /// Sequences for requests.
    pub(super) sequences: u16,
    /// Tokens per sequence.
    pub(super) context_tokens: usize,
    /// Compute threads.
    pub(super) threads: usize,
    pub(super) has_gpu: bool,
}

/// The thread's channels.
pub(super) struct Channels {
    pub(super) queue: mpsc::UnboundedReceiver<Command>,
    pub(super) orders: Sender<Order>,
    pub(super) stop: CancellationToken,
    pub(super) metrics: Metrics,
}

impl<'model> EngineThread<'model> {
    /// Creates an idle engine.
    pub(super) fn new(
        decoder: Decoder<'model>,
        reader: Option<Reader<'model>>,
        vocabulary: &'model Vocabulary,
        size: &Size,
        lines: Channels,
    ) -> Self {
        let Channels { queue, orders, stop, metrics } = lines;
        let prompt_tokens_max = if size.has_gpu { PROMPT_TOKENS_ON_GPU } else { PROMPT_TOKENS_ON_CPU };
        let limits = BatchLimits { tokens_max: decoder.batch_tokens_max(), prompt_tokens_max };
        Self {
            decoder,
            vocabulary,
            limits,
            threads: size.threads,
            queue,
            orders,
            stop,
            waiting: Waiting::default(),
            sequences: (0..size.sequences).map(|_| Sequence::Free).collect(),
            order: Vec::with_capacity(size.sequences.into()),
            prefixes: Prefixes::new(size.sequences, size.context_tokens),
            reader,
            metrics,
        }
    }

    /// Runs until it is stopped.
    pub(super) fn run(mut self) {
        while self.gather() {
            self.end_interrupted();
            self.assign_sequences();
            self.measure();
            self.step();
            if let Some(reader) = &mut self.reader {
                self.metrics.computed(reader.step(), 0);
            }
        }
        self.end_all(|| Ok(Ended::Stopped));
        self.metrics.stand(Standing::default());
    }

    /// Receives commands; waits for one if there is nothing to compute. Returns false when it is stopped.
    fn gather(&mut self) -> bool {
        loop {
            if self.stop.is_cancelled() {
                return false;
            }
            let is_idle = self.order.is_empty()
                && (self.waiting.is_empty() || !self.has_free_sequence())
                && self.reader.as_ref().is_none_or(Reader::is_idle);
            let command = match self.queue.try_recv() {
                Err(TryRecvError::Empty) if is_idle => {
                    self.measure();
                    self.queue.blocking_recv()
                }
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => None,
                Ok(command) => Some(command),
            };
            match command {
                Some(Command::Generate(job)) => self.waiting.push(job),
                Some(Command::Ready { sequence, job, prepared }) => self.begin(sequence, job, prepared),
                // If the preparer has ended, the engine is about to stop and the job is dropped.
                Some(Command::Read(job)) => drop(self.orders.send(Order::Read(job))),
                Some(Command::ReadReady { job, tokens }) => {
                    if let Some(reader) = &mut self.reader {
                        reader.push(job, tokens);
                    }
                }
                Some(Command::Stop) | None => return false,
            }
        }
    }

    fn measure(&mut self) {
        self.metrics.stand(Standing {
            waiting: self.waiting.len(),
            writing: self.sequences.iter().filter(|seat| !matches!(seat, Sequence::Free)).count(),
            reading: self.reader.as_ref().map_or(0, Reader::len),
        });
    }

    fn has_free_sequence(&self) -> bool {
        self.sequences.iter().any(|seat| matches!(seat, Sequence::Free))
    }

    fn end_interrupted(&mut self) {
        let now = Instant::now();
        self.waiting.end_interrupted(now);
        for sequence in self.order.clone() {
            let slot = self.sequences[usize::from(sequence)].slot();
            if let Some(ended) = slot.and_then(|slot| slot.job().interrupted(now)) {
                self.end(sequence, Ok(ended));
            }
        }
    }

    /// Assigns free sequences to waiting requests.
    fn assign_sequences(&mut self) {
        for (sequence, seat) in (0u16..).zip(&mut self.sequences) {
            if !matches!(seat, Sequence::Free) {
                continue;
            }
            let Some(job) = self.waiting.next() else { return };
            // If the preparer has ended, the engine is about to stop and the job is dropped.
            if self.orders.send(Order::Plan { sequence, job }).is_ok() {
                *seat = Sequence::Given;
            }
        }
    }

    /// Starts a prepared request, or answers with the error.
    fn begin(&mut self, sequence: u16, job: Box<Job>, prepared: Result<Box<Prepared>, EngineError>) {
        let seat = usize::from(sequence);
        self.sequences[seat] = Sequence::Free;
        let prepared = match (job.interrupted(Instant::now()), prepared) {
            (Some(ended), _) => return job.refuse(Ok(ended)),
            (None, Err(error)) => return job.refuse(Err(error)),
            (None, Ok(prepared)) => prepared,
        };
        let beginning = self.find_beginning(&prepared.tokens[..prepared.shared]);
        let (mut slot, ended) = Slot::begin(job, *prepared, self.vocabulary);
        if let Some(ended) = ended.transpose() {
            return slot.finish(ended);
        }
        if let Some(beginning) = beginning {
            slot.await_beginning(beginning);
        }
        self.sequences[seat] = Sequence::Taken(Box::new(slot));
        self.order.push(sequence);
    }

    fn find_beginning(&mut self, shared: &[u32]) -> Option<Beginning> {
        let Self { sequences, prefixes, decoder, .. } = self;
        let awaited = |sequence| {
            let mut beginnings = sequences.iter().filter_map(|seat| seat.slot()?.awaited());
            beginnings.any(|beginning| beginning.sequence == sequence)
        };
        let forget = |sequence| {
            if let Err(error) = decoder.forget(sequence, 0) {
                tracing::error!(%error, "an evicted prefix could not be removed from the context");
            }
        };
        prefixes.find(shared, awaited, forget)
    }

    /// Computes the next batch and advances the sequences that have logits.
    fn step(&mut self) {
        self.share_beginnings();
        self.forget_stale();
        let lacking = lacking(&self.order, &self.sequences, &self.prefixes);
        let parts = compose(&lacking, self.limits);
        if parts.is_empty() {
            return;
        }
        let logits = match self.decoder.decode(&parts) {
            Ok(logits) => logits,
            Err(error) => return self.fail(error),
        };
        let mut wanted: Vec<Option<&[f32]>> = self.sequences.iter().map(|_| None).collect();
        let decoded: Vec<_> = parts.iter().map(|part| (part.sequence, part.tokens.len())).collect();
        let (mut prompt, mut text) = (0, 0);
        for ((sequence, tokens), logits) in decoded.into_iter().zip(logits) {
            self.prefixes.add_decoded(sequence, tokens);
            let slot = self.sequences.get_mut(usize::from(sequence)).and_then(Sequence::slot_mut);
            let is_text = slot.as_ref().is_some_and(|slot| slot.is_writing());
            *(if is_text { &mut text } else { &mut prompt }) += tokens;
            if let Some(slot) = slot {
                slot.add_decoded(tokens);
                wanted[usize::from(sequence)] = logits;
            }
        }
        self.metrics.computed(prompt, text);
        let turns = (0u16..).zip(&mut self.sequences).zip(wanted);
        let turns = turns.filter_map(|((sequence, seat), logits)| {
            Some(Turn { sequence, slot: seat.slot_mut()?, logits: logits? })
        });
        for (sequence, ended) in advance(turns.collect(), self.vocabulary, self.threads) {
            self.end(sequence, ended);
        }
    }

    /// Continues requests whose awaited prefix is now complete.
    fn share_beginnings(&mut self) {
        for sequence in self.order.clone() {
            let Some(slot) = self.sequences[usize::from(sequence)].slot_mut() else { continue };
            let Some(beginning) = slot.awaited().filter(|beginning| self.prefixes.is_decoded(*beginning))
            else {
                continue;
            };
            match self.decoder.share(beginning.sequence, sequence, beginning.tokens) {
                Ok(()) => slot.take_beginning(),
                Err(error) => self.end(sequence, Err(error)),
            }
        }
    }

    fn forget_stale(&mut self) {
        for sequence in self.order.clone() {
            let Some(slot) = self.sequences[usize::from(sequence)].slot_mut() else { continue };
            if slot.take_stale()
                && let Err(error) = self.decoder.forget(sequence, slot.decoded())
            {
                self.end(sequence, Err(error));
            }
        }
    }

    /// Fails all requests: after a failed batch neither the cause nor the context's content is known.
    fn fail(&mut self, error: DecodeError) {
        tracing::warn!(%error, "llama.cpp rejected a batch");
        let error = Arc::new(error);
        self.end_all(|| Err(EngineError::Decode(Arc::clone(&error))));
        self.prefixes.clear();
        self.decoder.forget_all();
    }

    fn end_all(&mut self, ended: impl Fn() -> Result<Ended, EngineError>) {
        for sequence in self.order.clone() {
            self.end(sequence, ended());
        }
    }

    /// Frees a sequence and its part of the context.
    fn end(&mut self, sequence: u16, ended: Result<Ended, EngineError>) {
        self.order.retain(|taken| *taken != sequence);
        let seat = std::mem::replace(&mut self.sequences[usize::from(sequence)], Sequence::Free);
        if let Sequence::Taken(slot) = seat {
            if let Err(error) = self.decoder.forget(sequence, 0) {
                tracing::error!(%error, "a finished sequence could not be removed from the context");
            }
            slot.finish(ended);
        }
    }
}

/// The missing tokens of the occupied sequences, in order. Sequences that wait for a prefix are replaced by that prefix, once.
fn lacking<'a>(order: &[u16], sequences: &'a [Sequence], prefixes: &'a Prefixes) -> Vec<Lacking<'a>> {
    let mut lacking: Vec<Lacking<'a>> = Vec::with_capacity(order.len());
    for &sequence in order {
        let Some(slot) = sequences[usize::from(sequence)].slot() else { continue };
        let Some(beginning) = slot.awaited() else {
            let purpose = if slot.is_writing() { Purpose::Text } else { Purpose::Prompt };
            lacking.push(Lacking { sequence, position: slot.decoded(), tokens: slot.undecoded(), purpose });
            continue;
        };
        let sequence = beginning.sequence;
        if lacking.iter().all(|earlier| earlier.sequence != sequence) {
            let (position, tokens) = prefixes.undecoded(sequence);
            lacking.push(Lacking { sequence, position, tokens, purpose: Purpose::Prefix });
        }
    }
    lacking
}
