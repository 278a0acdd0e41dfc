//! The engine's loop: gather, give free sequences away, compute one batch over all of them, let each go on by its logits.

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

/// Most prompt tokens of one batch. Everybody who writes waits for such a batch, and so does stopping. A CPU computes no
/// faster with more of them; a GPU does.
const PROMPT_TOKENS_ON_CPU: usize = 64;
const PROMPT_TOKENS_ON_GPU: usize = 512;

/// A sequence of the context, and who has it.
enum Seat {
    Free,
    /// Given to a request that is being made ready.
    Given,
    Taken(Box<Slot>),
}

impl Seat {
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

/// All that the thread owns, but the model.
pub(super) struct EngineThread<'model> {
    decoder: Decoder<'model>,
    vocabulary: &'model Vocabulary,
    limits: BatchLimits,
    /// That choose tokens.
    threads: usize,
    queue: mpsc::UnboundedReceiver<Command>,
    orders: Sender<Order>,
    stop: CancellationToken,
    waiting: Waiting,
    /// By sequence.
    seats: Vec<Seat>,
    /// The taken ones, in the order of their taking.
    order: Vec<u16>,
    prefixes: Prefixes,
    /// Where hidden states are wanted.
    reader: Option<Reader<'model>>,
    metrics: Metrics,
}

/// How large the thread's world is.
pub(super) struct Size {
    /// Sequences of requests.
    pub(super) sequences: u16,
    /// Tokens of each.
    pub(super) context_tokens: usize,
    /// Threads that compute.
    pub(super) threads: usize,
    pub(super) has_gpu: bool,
}

/// What the thread is told, and whom it tells.
pub(super) struct Lines {
    pub(super) queue: mpsc::UnboundedReceiver<Command>,
    pub(super) orders: Sender<Order>,
    pub(super) stop: CancellationToken,
    pub(super) metrics: Metrics,
}

impl<'model> EngineThread<'model> {
    /// Nothing to do yet.
    pub(super) fn new(
        (decoder, reader): (Decoder<'model>, Option<Reader<'model>>),
        vocabulary: &'model Vocabulary,
        size: &Size,
        lines: Lines,
    ) -> Self {
        let Lines { queue, orders, stop, metrics } = lines;
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
            seats: (0..size.sequences).map(|_| Seat::Free).collect(),
            order: Vec::with_capacity(size.sequences.into()),
            prefixes: Prefixes::new(size.sequences, size.context_tokens),
            reader,
            metrics,
        }
    }

    /// Works until it is told to stop.
    pub(super) fn run(mut self) {
        while self.gather() {
            self.end_interrupted();
            self.give_seats();
            self.measure();
            self.step();
            if let Some(reader) = &mut self.reader {
                self.metrics.computed(reader.step(), 0);
            }
        }
        self.end_all(|| Ok(Ended::Stopped));
        self.metrics.stand(Standing::default());
    }

    /// Takes in what has come; waits for something if there is nothing to compute. False if it is time to stop.
    fn gather(&mut self) -> bool {
        loop {
            if self.stop.is_cancelled() {
                return false;
            }
            let is_idle = self.order.is_empty()
                && (self.waiting.is_empty() || !self.has_free_seat())
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
                // Without a preparer the engine is about to stop, and the job is dropped.
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
            writing: self.seats.iter().filter(|seat| !matches!(seat, Seat::Free)).count(),
            reading: self.reader.as_ref().map_or(0, Reader::len),
        });
    }

    fn has_free_seat(&self) -> bool {
        self.seats.iter().any(|seat| matches!(seat, Seat::Free))
    }

    fn end_interrupted(&mut self) {
        let now = Instant::now();
        self.waiting.end_interrupted(now);
        for sequence in self.order.clone() {
            let slot = self.seats[usize::from(sequence)].slot();
            if let Some(ended) = slot.and_then(|slot| slot.job().interrupted(now)) {
                self.end(sequence, Ok(ended));
            }
        }
    }

    /// Gives free sequences to those who wait.
    fn give_seats(&mut self) {
        for (sequence, seat) in (0u16..).zip(&mut self.seats) {
            if !matches!(seat, Seat::Free) {
                continue;
            }
            let Some(job) = self.waiting.next() else { return };
            // Without a preparer the engine is about to stop, and the job is dropped.
            if self.orders.send(Order::Plan { sequence, job }).is_ok() {
                *seat = Seat::Given;
            }
        }
    }

    /// A request that was given a sequence is ready, or is refused.
    fn begin(&mut self, sequence: u16, job: Box<Job>, prepared: Result<Box<Prepared>, EngineError>) {
        let seat = usize::from(sequence);
        self.seats[seat] = Seat::Free;
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
        self.seats[seat] = Seat::Taken(Box::new(slot));
        self.order.push(sequence);
    }

    fn find_beginning(&mut self, shared: &[u32]) -> Option<Beginning> {
        let Self { seats, prefixes, decoder, .. } = self;
        let awaited = |sequence| {
            let mut beginnings = seats.iter().filter_map(|seat| seat.slot()?.awaited());
            beginnings.any(|beginning| beginning.sequence == sequence)
        };
        let forget = |sequence| {
            if let Err(error) = decoder.forget(sequence, 0) {
                tracing::error!(%error, "a prefix stays in the context");
            }
        };
        prefixes.find(shared, awaited, forget)
    }

    /// Computes the next batch, and lets those go on who have their logits.
    fn step(&mut self) {
        self.share_beginnings();
        self.forget_stale();
        let lacking = lacking(&self.order, &self.seats, &self.prefixes);
        let parts = compose(&lacking, self.limits);
        if parts.is_empty() {
            return;
        }
        let logits = match self.decoder.decode(&parts) {
            Ok(logits) => logits,
            Err(error) => return self.fail(error),
        };
        let mut wanted: Vec<Option<&[f32]>> = self.seats.iter().map(|_| None).collect();
        let decoded: Vec<_> = parts.iter().map(|part| (part.sequence, part.tokens.len())).collect();
        let (mut prompt, mut text) = (0, 0);
        for ((sequence, tokens), logits) in decoded.into_iter().zip(logits) {
            self.prefixes.add_decoded(sequence, tokens);
            let slot = self.seats.get_mut(usize::from(sequence)).and_then(Seat::slot_mut);
            let is_text = slot.as_ref().is_some_and(|slot| slot.is_writing());
            *(if is_text { &mut text } else { &mut prompt }) += tokens;
            if let Some(slot) = slot {
                slot.add_decoded(tokens);
                wanted[usize::from(sequence)] = logits;
            }
        }
        self.metrics.computed(prompt, text);
        let turns = (0u16..).zip(&mut self.seats).zip(wanted);
        let turns = turns.filter_map(|((sequence, seat), logits)| {
            Some(Turn { sequence, slot: seat.slot_mut()?, logits: logits? })
        });
        for (sequence, ended) in advance(turns.collect(), self.vocabulary, self.threads) {
            self.end(sequence, ended);
        }
    }

    /// Who waits for a beginning that is there now begins after it.
    fn share_beginnings(&mut self) {
        for sequence in self.order.clone() {
            let Some(slot) = self.seats[usize::from(sequence)].slot_mut() else { continue };
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
            let Some(slot) = self.seats[usize::from(sequence)].slot_mut() else { continue };
            if slot.take_stale()
                && let Err(error) = self.decoder.forget(sequence, slot.decoded())
            {
                self.end(sequence, Err(error));
            }
        }
    }

    /// A batch failed. It cannot be told whose fault that is, nor what the context still holds, so all end.
    fn fail(&mut self, error: DecodeError) {
        tracing::warn!(%error, "llama.cpp refused a batch");
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
        let seat = std::mem::replace(&mut self.seats[usize::from(sequence)], Seat::Free);
        if let Seat::Taken(slot) = seat {
            if let Err(error) = self.decoder.forget(sequence, 0) {
                tracing::error!(%error, "a finished sequence stays in the context");
            }
            slot.finish(ended);
        }
    }
}

/// What the taken sequences lack, in their order. In place of those that wait for a prefix stands the prefix, once.
fn lacking<'a>(order: &[u16], seats: &'a [Seat], prefixes: &'a Prefixes) -> Vec<Lacking<'a>> {
    let mut lacking: Vec<Lacking<'a>> = Vec::with_capacity(order.len());
    for &sequence in order {
        let Some(slot) = seats[usize::from(sequence)].slot() else { continue };
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
