//! Vendors. They answer slowly, in pieces, wrongly, or not at all. Every piece has the number of its call.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use podium_domain::content::{Part, ToolCall};
use podium_domain::ids::WorkerId;
use podium_domain::pool::Worker;
use podium_domain::run::FinishReason;
use podium_domain::tools::ToolUse;
use podium_domain::usage::Usage;
use podium_ports::vendor::{ChatEvent, ChatRequest, ChatStream, VendorError, Vendors, Wait};

use crate::mutation::Mutation;
use crate::trace::note;
use crate::world::{Core, Ended, Link};

/// The tool that some clients offer.
pub(crate) const TOOL: &str = "look";

/// Begins the statement of an answer that may agree with another one.
pub(crate) const AGREED: &str = "\nThe answer is ";

/// The next event of a call.
enum Move {
    Say(String),
    /// Calls a tool, by the worker's own id of the call.
    Call(String),
    Finish(FinishReason, Option<Usage>),
    Fail(VendorError),
    /// The stream ends without a final event.
    Break,
}

/// The course of a call. Each move has the milliseconds since the previous one.
struct Script {
    begins_ms: u64,
    refusal: Option<VendorError>,
    moves: VecDeque<(u64, Move)>,
}

/// A node's connection to the vendors.
pub(crate) struct SimVendors(pub(crate) Link);

#[async_trait]
impl Vendors for SimVendors {
    async fn chat(&self, worker: &Worker, request: &ChatRequest) -> Result<ChatStream, VendorError> {
        let (course, begins_ms, refusal) = {
            let mut core = self.0.world.lock();
            let number = if core.is_mutated(Mutation::MuddlePrompt) {
                core.checker.called(worker, &muddled(request))
            } else if core.is_mutated(Mutation::MuddleResult) {
                core.checker.called(worker, &with_other_results(request))
            } else {
                core.checker.called(worker, request)
            };
            note!(core, "node {}: call {number} of {}", self.0.node, worker.id);
            core.call_began(&worker.id);
            let may_call = request.tools.as_ref().is_some_and(ToolUse::may_call);
            let Script { begins_ms, refusal, moves } = script(&mut core, worker, number, may_call);
            let (link, worker) = (self.0.clone(), worker.id.clone());
            (Course { link, worker, number, moves, is_over: false }, begins_ms, refusal)
        };
        self.0.pause(begins_ms).await;
        if let Some(refusal) = refusal {
            if let VendorError::Throttled { retry_after: Some(pause), .. } = &refusal {
                self.0.world.lock().requested_pause(&worker.id, *pause);
            }
            return Err(refusal);
        }
        let started = ChatEvent::Started { vendor_request_id: None };
        let rest = futures::stream::unfold(course, |mut course| async {
            let event = course.next().await?;
            Some((event, course))
        });
        Ok(futures::stream::iter([Ok(started)]).chain(rest).boxed())
    }
}

fn muddled(request: &ChatRequest) -> ChatRequest {
    let mut request = request.clone();
    for message in &mut request.messages {
        message.text = message.text.replacen("[c", "[", 1);
    }
    request
}

fn script(core: &mut Core, worker: &Worker, number: usize, may_call: bool) -> Script {
    if core.is_mutated(Mutation::Panic) && core.dice.chance(50) {
        unreachable!("this world panics on purpose");
    }
    let written_as = if core.is_mutated(Mutation::SwapAnswer) { number.saturating_sub(1) } else { number };
    let mut moves = VecDeque::new();
    let mut whole = String::new();
    if core.dice.chance(300) {
        moves.push_back((core.dice.mostly_small(1, 1_000), Move::Say("The answer: ".to_owned())));
        whole.push_str("The answer: ");
    }
    for piece in 0..core.dice.between(1, 4) {
        let _ = write!(whole, "[c{number}.{piece}] né ");
        moves
            .push_back((core.dice.mostly_small(1, 2_500), Move::Say(format!("[c{written_as}.{piece}] né "))));
    }
    // Some answers agree.
    if core.dice.chance(500) {
        let said = format!("{AGREED}{}.", core.dice.below(2));
        moves.push_back((core.dice.below(50), Move::Say(said.clone())));
        whole.push_str(&said);
    }
    core.checker.will_say(number, whole);
    let mut finish = FinishReason::Stop;
    if may_call && core.dice.chance(500) {
        finish = FinishReason::ToolCalls;
        for call in 0..core.dice.between(1, 2) {
            moves.push_back((core.dice.below(50), Move::Call(format!("v{number}.{call}"))));
        }
    }
    let usage = Usage { prompt_tokens: 10 + number as u64, completion_tokens: 5, ..Usage::default() };
    let usage = (!core.dice.chance(100)).then_some(usage);
    moves.push_back((core.dice.below(5), Move::Finish(finish, usage)));
    let mut script = Script { begins_ms: core.dice.mostly_small(1, 1_500), refusal: None, moves };
    let fault = core.rates.vendor_fault;
    if core.dice.chance(fault) {
        core.count("vendor fault");
        spoil(core, worker, &mut script);
    }
    script
}

fn with_other_results(request: &ChatRequest) -> ChatRequest {
    let mut request = request.clone();
    for part in request.messages.iter_mut().flat_map(|message| &mut message.parts) {
        if let Part::ToolResult(result) = part {
            result.output.push('!');
        }
    }
    request
}

/// Part of the error of a call that broke off after some text.
pub(crate) const IN_THE_MIDDLE: &str = " in the middle";

/// Adds a fault to a call.
fn spoil(core: &mut Core, worker: &Worker, script: &mut Script) {
    let vendor = worker.vendor.to_string();
    let message = "out of order".to_owned();
    let limit = Duration::from_secs(8);
    let kept = core.dice.index(script.moves.len());
    let had_text = kept > 0 || core.is_mutated(Mutation::DenyText);
    let breaking = if had_text { format!("{vendor}{IN_THE_MIDDLE}") } else { vendor.clone() };
    let fail = |script: &mut Script, after_ms, failing| {
        script.moves.truncate(kept);
        script.moves.push_back((after_ms, failing));
    };
    match core.dice.below(11) {
        0 | 1 => {
            let wait = core.dice.between(0, 4_000);
            let retry_after = core.dice.chance(500).then(|| Duration::from_millis(wait));
            script.refusal = Some(VendorError::Throttled { vendor, retry_after });
        }
        2 | 3 => script.refusal = Some(VendorError::Failed { vendor, status: 500, message }),
        4 if core.dice.chance(300) => {
            script.refusal = Some(VendorError::Rejected { vendor, status: 400, message });
        }
        4 | 5 => script.refusal = Some(VendorError::Unreachable { vendor, source: message.into() }),
        6 => {
            fail(
                script,
                1,
                Move::Fail(VendorError::Unreachable { vendor: breaking, source: message.into() }),
            );
        }
        7 => fail(script, 1, Move::Fail(VendorError::Garbled { vendor: breaking, message })),
        // It hangs until the caller's timeout.
        8 => {
            let hangs = VendorError::Timeout { vendor: breaking, wait: Wait::Idle, limit };
            fail(script, 8_000, Move::Fail(hangs));
        }
        9 => fail(script, 1, Move::Break),
        _ => script.moves.retain(|(_, next)| !matches!(next, Move::Say(_) | Move::Call(_))),
    }
}

/// A call under way.
struct Course {
    link: Link,
    worker: WorkerId,
    number: usize,
    moves: VecDeque<(u64, Move)>,
    is_over: bool,
}

impl Course {
    async fn next(&mut self) -> Option<Result<ChatEvent, VendorError>> {
        if self.is_over {
            return None;
        }
        let (after_ms, next) = self.moves.pop_front()?;
        self.link.pause(after_ms).await;
        match next {
            Move::Say(text) => Some(Ok(ChatEvent::Delta(text))),
            Move::Call(id) => Some(Ok(ChatEvent::ToolCall(ToolCall::new(id, TOOL, "{}")))),
            Move::Finish(reason, usage) => {
                self.is_over = true;
                let mut core = self.link.world.lock();
                note!(core, "node {}: call {} is finished", self.link.node, self.number);
                core.checker.finished(self.number, usage);
                Some(Ok(ChatEvent::Finished { reason, usage }))
            }
            Move::Fail(error) => {
                self.is_over = true;
                Some(Err(error))
            }
            Move::Break => None,
        }
    }
}

impl Drop for Course {
    fn drop(&mut self) {
        let mut core = self.link.world.lock();
        core.call_ended(&self.worker);
        if !self.is_over {
            core.broken_off.push(Ended::Call(self.number));
        }
    }
}
