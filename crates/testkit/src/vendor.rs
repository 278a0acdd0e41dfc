//! Vendors that answer from a test's script.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use podium_domain::content::{Seal, ToolCall};
use podium_domain::ids::WorkerId;
use podium_domain::pool::Worker;
use podium_domain::usage::Usage;
use podium_ports::vendor::{ChatEvent, ChatRequest, ChatStream, FinishReason, VendorError, Vendors, Wait};
use tokio::sync::watch;

use crate::gate::Gate;

/// How a scripted call fails: each kind of [`VendorError`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// [`VendorError::Throttled`].
    Throttled {
        /// The requested delay.
        retry_after: Option<Duration>,
    },
    /// [`VendorError::Unpaid`], status 400.
    Unpaid,
    /// [`VendorError::Rejected`], status 400.
    Rejected,
    /// [`VendorError::Rejected`], status 400, with this message.
    Refused {
        /// The vendor's message.
        message: String,
    },
    /// [`VendorError::Failed`], status 500.
    Failed,
    /// [`VendorError::Timeout`], after a limit of a second.
    Timeout,
    /// [`VendorError::Unreachable`].
    Unreachable,
    /// [`VendorError::Garbled`].
    Garbled,
    /// [`VendorError::Misconfigured`].
    Misconfigured,
}

impl Fault {
    fn into_error(self, worker: &Worker) -> VendorError {
        let vendor = worker.vendor.to_string();
        let message = "scripted".to_owned();
        match self {
            Self::Throttled { retry_after } => VendorError::Throttled { vendor, retry_after },
            Self::Unpaid => VendorError::Unpaid { vendor, status: 400, message },
            Self::Rejected => VendorError::Rejected { vendor, status: 400, message },
            Self::Refused { message } => VendorError::Rejected { vendor, status: 400, message },
            Self::Failed => VendorError::Failed { vendor, status: 500, message },
            Self::Timeout => {
                VendorError::Timeout { vendor, wait: Wait::FirstByte, limit: Duration::from_secs(1) }
            }
            Self::Unreachable => VendorError::Unreachable { vendor, source: message.into() },
            Self::Garbled => VendorError::Garbled { vendor, message },
            Self::Misconfigured => VendorError::Misconfigured { vendor, message },
        }
    }
}

#[derive(Clone, Debug)]
enum Move {
    Say(String),
    Think(String),
    Unread(usize),
    Send(Box<ChatEvent>),
    Wait(Gate),
    Break(Fault),
    Finish(FinishReason),
}

/// The script of one call. Ends with [`FinishReason::Stop`] unless set otherwise.
#[derive(Clone, Debug)]
pub struct Answer {
    refusal: Option<Fault>,
    moves: VecDeque<Move>,
    usage: Option<Usage>,
}

impl Answer {
    /// The tokens of a call unless [`Self::usage`] sets others.
    pub const USAGE: Usage = Usage { prompt_tokens: 100, completion_tokens: 10, ..Usage::NONE };

    /// An answer without content.
    pub fn blank() -> Self {
        Self { refusal: None, moves: VecDeque::new(), usage: Some(Self::USAGE) }
    }

    /// An answer in one part.
    pub fn text(text: impl Into<String>) -> Self {
        Self::blank().say(text)
    }

    /// An answer in several parts.
    pub fn parts<T: Into<String>>(parts: impl IntoIterator<Item = T>) -> Self {
        parts.into_iter().fold(Self::blank(), Self::say)
    }

    /// A call that is refused before any output.
    pub fn refuse(fault: Fault) -> Self {
        Self { refusal: Some(fault), ..Self::blank() }
    }

    /// A call that is accepted and never answered.
    pub fn hang() -> Self {
        Self::blank().wait(&Gate::closed())
    }

    /// Adds a piece of text.
    #[must_use]
    pub fn say(self, text: impl Into<String>) -> Self {
        self.then(Move::Say(text.into()))
    }

    /// Adds a piece of reasoning.
    #[must_use]
    pub fn think(self, text: impl Into<String>) -> Self {
        self.then(Move::Think(text.into()))
    }

    /// Adds the vendor's statement that this stop sequence ends the answer.
    #[must_use]
    pub fn stopped_by(self, stop: &str) -> Self {
        self.then(Move::Send(Box::new(ChatEvent::StopSequence(stop.to_owned()))))
    }

    /// Adds an unstreamed answer of `bytes` bytes that cannot be parsed.
    #[must_use]
    pub fn unread(self, bytes: usize) -> Self {
        self.then(Move::Unread(bytes))
    }

    /// Begins the tool call at position `index` and writes these pieces of its arguments.
    #[must_use]
    pub fn writes_call(self, index: usize, name: &str, arguments: &[&str]) -> Self {
        let begun = self.sends(ChatEvent::ToolCallBegun { index, name: name.to_owned() });
        arguments.iter().fold(begun, |answer, text| {
            answer.sends(ChatEvent::ToolArguments { index, text: (*text).to_owned() })
        })
    }

    /// Adds a complete tool call.
    #[must_use]
    pub fn call(self, call: ToolCall) -> Self {
        self.sends(ChatEvent::ToolCall(call))
    }

    /// Seals the reasoning before.
    #[must_use]
    pub fn seal(self, seal: Seal) -> Self {
        self.sends(ChatEvent::ReasoningSealed(seal))
    }

    fn sends(self, event: ChatEvent) -> Self {
        self.then(Move::Send(Box::new(event)))
    }

    /// Waits until the gate opens.
    #[must_use]
    pub fn wait(self, gate: &Gate) -> Self {
        self.then(Move::Wait(gate.clone()))
    }

    /// Ends with an error, after any output.
    #[must_use]
    pub fn fail(self, fault: Fault) -> Self {
        self.then(Move::Break(fault))
    }

    /// Ends with a finish reason other than [`FinishReason::Stop`].
    #[must_use]
    pub fn finish(self, reason: FinishReason) -> Self {
        self.then(Move::Finish(reason))
    }

    /// The tokens of the call; `None` if the vendor sends none.
    #[must_use]
    pub fn usage(self, usage: Option<Usage>) -> Self {
        Self { usage, ..self }
    }

    fn then(mut self, next: Move) -> Self {
        self.moves.push_back(next);
        self
    }
}

/// Counts of events that tests wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    calls: usize,
    ended: usize,
    aborted: usize,
}

#[derive(Debug, Default)]
struct Script {
    answers: HashMap<WorkerId, VecDeque<Answer>>,
    otherwise: Option<Answer>,
    calls: Vec<(WorkerId, ChatRequest)>,
}

/// Vendors with a script: each call of a worker gets its next scripted answer, then the default answer. A call with neither is
/// refused with [`Fault::Misconfigured`]. Clones share everything.
#[derive(Clone, Debug)]
pub struct ScriptedVendor {
    script: Arc<Mutex<Script>>,
    counts: watch::Sender<Counts>,
}

impl ScriptedVendor {
    /// Vendors without answers.
    pub fn new() -> Self {
        Self { script: Arc::default(), counts: watch::Sender::new(Counts::default()) }
    }

    /// Adds answers for a worker's next calls.
    pub fn script(&self, worker: &str, answers: impl IntoIterator<Item = Answer>) -> &Self {
        let worker = WorkerId::new(worker).expect("a script names a worker");
        self.lock().answers.entry(worker).or_default().extend(answers);
        self
    }

    /// Sets the answer to calls without a scripted one.
    pub fn otherwise(&self, answer: Answer) -> &Self {
        self.lock().otherwise = Some(answer);
        self
    }

    /// All calls so far, including refused ones, in order.
    pub fn calls(&self) -> Vec<(WorkerId, ChatRequest)> {
        self.lock().calls.clone()
    }

    /// The calls of one worker so far.
    pub fn calls_of(&self, worker: &str) -> Vec<ChatRequest> {
        let calls = self.calls().into_iter().filter(|(called, _)| called.as_str() == worker);
        calls.map(|(_, request)| request).collect()
    }

    /// How many answers were dropped before their end.
    pub fn aborted(&self) -> usize {
        self.counts.borrow().aborted
    }

    /// The number of calls in flight.
    pub fn in_flight(&self) -> usize {
        let counts = *self.counts.borrow();
        counts.calls - counts.ended - counts.aborted
    }

    /// Waits until there were `count` calls.
    pub async fn until_called(&self, count: usize) {
        self.until(|counts| counts.calls >= count).await;
    }

    /// Waits until `count` answers were dropped before their end.
    pub async fn until_aborted(&self, count: usize) {
        self.until(|counts| counts.aborted >= count).await;
    }

    async fn until(&self, reached: impl FnMut(&Counts) -> bool) {
        // It cannot fail: `self` holds the sender.
        let _ = self.counts.subscribe().wait_for(reached).await;
    }

    fn lock(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_answer(&self, worker: &Worker, request: &ChatRequest) -> Answer {
        let mut script = self.lock();
        script.calls.push((worker.id.clone(), request.clone()));
        let scripted = script.answers.get_mut(&worker.id).and_then(VecDeque::pop_front);
        scripted.or_else(|| script.otherwise.clone()).unwrap_or_else(|| Answer::refuse(Fault::Misconfigured))
    }
}

impl Default for ScriptedVendor {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Vendors for ScriptedVendor {
    async fn chat(&self, worker: &Worker, request: &ChatRequest) -> Result<ChatStream, VendorError> {
        let answer = self.next_answer(worker, request);
        self.counts.send_modify(|counts| counts.calls += 1);
        if let Some(fault) = answer.refusal {
            self.counts.send_modify(|counts| counts.ended += 1);
            return Err(fault.into_error(worker));
        }
        let started =
            ChatEvent::Started { vendor_request_id: Some(format!("call-{}", self.lock().calls.len())) };
        let course = Course {
            worker: worker.clone(),
            moves: answer.moves,
            usage: answer.usage,
            counts: self.counts.clone(),
            is_over: false,
        };
        let rest = futures::stream::unfold(course, |mut course| async {
            let event = course.next().await?;
            Some((event, course))
        });
        Ok(futures::stream::iter([Ok(started)]).chain(rest).boxed())
    }
}

/// A call in flight.
struct Course {
    worker: Worker,
    moves: VecDeque<Move>,
    usage: Option<Usage>,
    counts: watch::Sender<Counts>,
    is_over: bool,
}

impl Course {
    async fn next(&mut self) -> Option<Result<ChatEvent, VendorError>> {
        while !self.is_over {
            match self.moves.pop_front() {
                Some(Move::Say(text)) => return Some(Ok(ChatEvent::Delta(text))),
                Some(Move::Think(text)) => return Some(Ok(ChatEvent::Reasoning(text))),
                Some(Move::Unread(bytes)) => return Some(Ok(ChatEvent::Unread(bytes))),
                Some(Move::Send(event)) => return Some(Ok(*event)),
                Some(Move::Wait(gate)) => gate.pass().await,
                Some(Move::Break(fault)) => {
                    self.end();
                    return Some(Err(fault.into_error(&self.worker)));
                }
                Some(Move::Finish(reason)) => return Some(Ok(self.finish(reason))),
                None => return Some(Ok(self.finish(FinishReason::Stop))),
            }
        }
        None
    }

    fn finish(&mut self, reason: FinishReason) -> ChatEvent {
        self.end();
        ChatEvent::Finished { reason, usage: self.usage }
    }

    fn end(&mut self) {
        self.is_over = true;
        self.counts.send_modify(|counts| counts.ended += 1);
    }
}

impl Drop for Course {
    fn drop(&mut self) {
        if !self.is_over {
            self.counts.send_modify(|counts| counts.aborted += 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::TryStreamExt;

    use super::*;
    use crate::builders::a_pool;

    fn a_request() -> ChatRequest {
        ChatRequest::new(Vec::new(), 100)
    }

    async fn text_of(vendor: &ScriptedVendor, worker: &Worker) -> Result<String, VendorError> {
        let events: Vec<_> = vendor.chat(worker, &a_request()).await?.try_collect().await?;
        assert!(matches!(events.first(), Some(ChatEvent::Started { .. })), "{events:?}");
        assert!(matches!(events.last(), Some(ChatEvent::Finished { .. })), "{events:?}");
        let texts = events.into_iter().filter_map(|event| match event {
            ChatEvent::Delta(text) => Some(text),
            _ => None,
        });
        Ok(texts.collect())
    }

    #[tokio::test]
    async fn a_worker_gives_its_scripted_answers_then_the_default() {
        let (vendor, pool) = (ScriptedVendor::new(), a_pool());
        let worker = &pool.workers()[0];
        vendor.script(worker.id.as_str(), [Answer::parts(["o", "ne"]), Answer::refuse(Fault::Failed)]);
        vendor.otherwise(Answer::text("else"));
        assert_eq!(text_of(&vendor, worker).await.unwrap(), "one");
        assert!(matches!(text_of(&vendor, worker).await, Err(VendorError::Failed { status: 500, .. })));
        assert_eq!(text_of(&vendor, worker).await.unwrap(), "else");
        assert_eq!((vendor.calls().len(), vendor.in_flight(), vendor.aborted()), (3, 0, 0));
    }

    #[tokio::test]
    async fn a_held_call_is_in_flight_until_released_or_dropped() {
        let (vendor, pool, gate) = (ScriptedVendor::new(), a_pool(), Gate::closed());
        let worker = &pool.workers()[0];
        vendor.script(worker.id.as_str(), [Answer::blank().wait(&gate).say("late"), Answer::hang()]);
        let held = text_of(&vendor, worker);
        let opener = async {
            vendor.until_called(1).await;
            assert_eq!(vendor.in_flight(), 1);
            gate.open();
        };
        assert_eq!(futures::join!(held, opener).0.unwrap(), "late");
        let mut hanging = vendor.chat(worker, &a_request()).await.unwrap();
        hanging.next().await;
        assert!(futures::poll!(hanging.next()).is_pending());
        drop(hanging);
        vendor.until_aborted(1).await;
        assert_eq!(vendor.in_flight(), 0);
    }

    #[tokio::test]
    async fn a_call_without_an_answer_is_refused() {
        let (vendor, pool) = (ScriptedVendor::new(), a_pool());
        let refused = text_of(&vendor, &pool.workers()[0]).await.unwrap_err();
        assert!(!refused.is_retryable());
    }
}
