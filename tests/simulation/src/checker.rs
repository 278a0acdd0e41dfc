//! Checks the invariants of every world. The checker records the writes to the store, the intended plans, and the calls and answers
//! of the vendors, and compares everything with these records.

mod markers;
mod payment;
mod skips;
mod turns;

use std::collections::BTreeMap;
use std::fmt;

use podium_domain::budget::{BudgetRef, Charge};
use podium_domain::conversation::{Message, Role};
use podium_domain::ids::{ClaimId, RunId, StepIndex, TenantId, WorkerId};
use podium_domain::money::Cost;
use podium_domain::policy::{BrokenAnswer, FailedStep, StepCaching};
use podium_domain::pool::Worker;
use podium_domain::prompt;
use podium_domain::run::{Booking, Run, RunEvent, SequencedEvent, StepRef, Task, TaskRef, TaskState};
use podium_domain::usage::Usage;
use podium_ports::conductor::PlanRequest;
use podium_ports::store::RunSums;
use podium_ports::vendor::ChatRequest;

use self::markers::{between, markers};
use self::payment::{is_taken, payment};
use self::skips::{is_agreed, lacks_a_step};
use self::turns::may_be_plain;
use crate::budgets::{BudgetState, Sum};
use crate::simulation::Progress;
use crate::vendor::IN_THE_MIDDLE;

/// A property that must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Invariant {
    /// An accepted run is stored, and ends.
    Ends,
    /// The log of a run only grows at its end, without gaps, and folds to the stored run: no output changes.
    Log,
    /// No step runs before the steps that it sees have ended. Its prompt holds exactly the outputs that it sees.
    Sight,
    /// A call has all earlier turns of its step and none of another step. Each tool call in them has its one result.
    Turns,
    /// No vendor and no conductor is called without a claim that was committed before. A claim permits one call.
    Claim,
    /// An output comes from one finished call and has its cost. Or it comes from the cache, costs nothing, and its call was equal to
    /// the one that was saved.
    Output,
    /// A worker whose answer broke off is not called again for it, unless the policy says so.
    Once,
    /// A watcher sees every event once, and the text of one attempt at a time.
    Stream,
    /// The cost of a run is the sum over its attempts, each counted once. Its waste is the sum over those without an accepted result.
    Cost,
    /// The spending that a commit permits fits every budget of its run. In the end, each budget's sum is the sum of its runs.
    Budget,
    /// No worker has more concurrent calls, from all nodes, than permitted, and none is called during a pause that its vendor requested.
    Limit,
    /// A node whose wall clock is far off does not work. No run fails before its deadline.
    Clock,
    /// A tenant's request id names one run.
    RequestId,
    /// The world comes to rest once its faults end, and nothing is left over.
    Rest,
    /// Nothing panics.
    NoPanic,
}

/// A violated invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The invariant.
    pub invariant: Invariant,
    /// The details.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.invariant, self.what)
    }
}

/// A run, by the writes that took effect.
struct Known {
    run: Run,
    events: Vec<SequencedEvent>,
}

/// A step as the conductor intended it.
pub(crate) struct Intended {
    pub(crate) worker: WorkerId,
    pub(crate) sees: Vec<StepIndex>,
    /// Whether it also sees the previous round.
    pub(crate) sees_earlier_round: bool,
}

struct ClaimUse {
    run: RunId,
    task: TaskRef,
    is_planned_with: bool,
}

/// A call of a vendor.
struct Call {
    question: String,
    subtask: String,
    worker: Worker,
    messages: Vec<Message>,
    /// Its whole text if it does not fail.
    text: String,
    usage: Option<Usage>,
    is_finished: bool,
    tokens_max: u32,
}

/// A step, by the question and its subtask. Plans that pass the whole question on, and runs with the same question and plan, share
/// one: a call does not show which of them it belongs to.
type StepKey = (String, String);

#[derive(Default)]
pub(crate) struct Checker {
    runs: BTreeMap<RunId, Known>,
    by_question: BTreeMap<String, Vec<RunId>>,
    by_request: BTreeMap<(TenantId, String), RunId>,
    intended: BTreeMap<String, Intended>,
    claims: BTreeMap<ClaimId, ClaimUse>,
    claims_by_seed: BTreeMap<u64, ClaimId>,
    calls_allowed: BTreeMap<StepKey, usize>,
    calls: Vec<Call>,
    calls_by_step: BTreeMap<StepKey, Vec<usize>>,
    plans: u64,
    writes: u64,
    violation: Option<Violation>,
}

impl Checker {
    pub(crate) fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    /// Records the first violation; later ones may only follow from it.
    pub(crate) fn violated(&mut self, invariant: Invariant, what: impl Into<String>) {
        self.violation.get_or_insert_with(|| Violation { invariant, what: what.into() });
    }

    fn require(&mut self, holds: bool, invariant: Invariant, what: impl FnOnce() -> String) {
        if !holds {
            self.violated(invariant, what());
        }
    }

    /// Runs that have not ended.
    pub(crate) fn unfinished(&self) -> impl Iterator<Item = RunId> {
        self.runs.iter().filter(|(_, known)| !known.run.is_ended()).map(|(id, _)| *id)
    }

    /// All known runs.
    pub(crate) fn runs(&self) -> impl Iterator<Item = &Run> {
        self.runs.values().map(|known| &known.run)
    }

    /// How much has happened so far.
    pub(crate) fn progress(&self) -> Progress {
        Progress { writes: self.writes, calls: self.calls.len(), plans: self.plans }
    }

    /// A run was created, or exists and is what the creator intended.
    pub(crate) fn created(&mut self, run: &Run, events: &[SequencedEvent]) {
        if self.runs.contains_key(&run.id()) {
            return;
        }
        let spec = run.spec();
        self.by_question.entry(spec.request.conversation.question()).or_default().push(run.id());
        let request = spec.request_id.as_ref().map(|id| (spec.tenant.clone(), id.as_str().to_owned()));
        if let Some(other) = request.and_then(|request| self.by_request.insert(request, run.id())) {
            self.violated(Invariant::RequestId, format!("runs {other} and {} have one request id", run.id()));
        }
        if Run::replay(run.id(), events).as_ref() != Ok(run) {
            self.violated(Invariant::Log, format!("run {} differs from its first events", run.id()));
        }
        self.runs.insert(run.id(), Known { run: run.clone(), events: events.to_vec() });
        for event in events {
            self.happened(run.id(), &event.event);
        }
    }

    /// A write to a run took effect; `stored` is the log now.
    pub(crate) fn written(&mut self, id: RunId, stored: &[SequencedEvent], after: &Run) {
        self.writes += 1;
        let Some(known) = self.runs.get_mut(&id) else {
            return self.violated(Invariant::Log, format!("run {id} was written to and never created"));
        };
        let Some(fresh) = stored.get(known.events.len()..) else {
            return self.violated(Invariant::Log, format!("the log of run {id} became shorter"));
        };
        for event in fresh {
            if let Err(error) = known.run.apply(event) {
                return self.violated(Invariant::Log, format!("run {id}: {error}"));
            }
            known.events.push(event.clone());
        }
        if known.run != *after {
            return self.violated(Invariant::Log, format!("run {id} differs from the fold of its events"));
        }
        for event in fresh {
            self.happened(id, &event.event);
            self.check_once(id, &event.event);
        }
    }

    /// Checks that a step whose worker's answer broke off falls back to another worker or is repeated, as the policy says.
    fn check_once(&mut self, id: RunId, event: &RunEvent) {
        let RunEvent::AttemptFailed { task: TaskRef::Step { .. }, message, fallback, .. } = event else {
            return;
        };
        let Some(run) = self.runs.get(&id).map(|known| &known.run) else { return };
        let had_text = message.contains(IN_THE_MIDDLE);
        let says_so = message.contains("its answer had begun");
        let goes_on = fallback.is_some();
        let holds = match run.spec().request.policy.broken_answer {
            BrokenAnswer::Elsewhere => (!had_text || says_so) && (!says_so || goes_on),
            BrokenAnswer::Again => !says_so,
        };
        self.require(holds, Invariant::Once, || format!("run {id}: `{message}` is followed by {fallback:?}"));
    }

    fn happened(&mut self, run: RunId, event: &RunEvent) {
        match event {
            RunEvent::Claimed { task, claim, .. } => {
                if self.claims.insert(*claim, ClaimUse { run, task: *task, is_planned_with: false }).is_some()
                {
                    self.violated(Invariant::Claim, format!("claim {claim} was made twice"));
                }
                match task {
                    TaskRef::Plan { .. } => {
                        self.claims_by_seed.insert(claim.as_uuid().as_u64_pair().1, *claim);
                    }
                    TaskRef::Step { .. } => {
                        for step_key in self.step_keys_of(run, *task) {
                            *self.calls_allowed.entry(step_key).or_default() += 1;
                        }
                    }
                }
            }
            RunEvent::StepDone { round, step, output, usage, cost, saved, .. } => {
                let task = TaskRef::Step { round: *round, step: *step };
                let sound = match saved {
                    None => self.check_output(run, task, output, *usage, *cost).map(|_| ()),
                    Some(saved) if *usage == Usage::NONE && cost.is_zero() => self
                        .check_output(run, task, output, saved.usage, saved.cost)
                        .and_then(|call| self.check_equal(run, *round, *step, call)),
                    Some(_) => Err("a cached output has a cost"),
                };
                if let Err(what) = sound {
                    self.violated(Invariant::Output, format!("run {run}, step {step}: {what}: `{output}`"));
                }
            }
            RunEvent::StepSkipped { round, step, same_as } => {
                let Some(known) = self.runs.get(&run) else { return };
                let is_agreed = is_agreed(&known.run, StepRef { round: *round, step: *step }, *same_as);
                self.require(is_agreed, Invariant::Output, || {
                    format!("run {run}: step {step} took over {same_as}, but the answers differ")
                });
            }
            RunEvent::StepCalled { round, step, text, usage, cost, .. } => {
                let task = TaskRef::Step { round: *round, step: *step };
                if let Err(what) = self.check_output(run, task, text, *usage, *cost) {
                    self.violated(Invariant::Output, format!("run {run}, step {step}: {what}: `{text}`"));
                }
            }
            RunEvent::Succeeded { .. } => {
                let Some(known) = self.runs.get(&run) else { return };
                let answer = known.run.answer().unwrap_or_default();
                let call = self.calls.iter().find(|call| call.text == answer);
                let limit = known.run.spec().request.answer_tokens_max;
                let is_limited = call.is_none_or(|call| limit.is_none_or(|limit| call.tokens_max <= limit));
                let (is_degraded, lacks) = (known.run.is_degraded(), lacks_a_step(&known.run));
                let may_lack = known.run.spec().request.policy.failed_step == FailedStep::Continue;
                self.require(is_limited, Invariant::Output, || {
                    format!("run {run}: the answer exceeds its token limit")
                });
                let is_said = is_degraded == lacks && (may_lack || !lacks);
                self.require(is_said, Invariant::Output, || {
                    format!("run {run}: its answer lacks a step: {lacks}, but it is degraded: {is_degraded}")
                });
            }
            _ => {}
        }
    }

    /// The call that wrote a step's output. Fails if the call belongs to another step or has another usage or cost.
    fn check_output(
        &self,
        run: RunId,
        task: TaskRef,
        output: &str,
        usage: Usage,
        cost: Cost,
    ) -> Result<&Call, &'static str> {
        let number = markers(output).first().and_then(|marker| marker.split_once('.')?.0.parse().ok());
        let call =
            number.and_then(|number: usize| self.calls.get(number)).ok_or("no call wrote the output")?;
        let is_of_step = self.step_keys_of(run, task).contains(&call.step_key());
        if !call.is_finished || call.text != output || !is_of_step {
            return Err("the output belongs to another call");
        }
        let is_paid =
            call.usage.is_none_or(|paid| paid == usage) && call.worker.prices.latest().cost(&usage) == cost;
        if is_paid { Ok(call) } else { Err("the cost of the output is wrong") }
    }

    /// Checks that a cached output may be used: the step would have made an equal call, and its policy permits the cache.
    fn check_equal(&self, run: RunId, round: u16, step: StepIndex, call: &Call) -> Result<(), &'static str> {
        let Some(known) = self.runs.get(&run).map(|known| &known.run) else { return Ok(()) };
        let (spec, worker) = (known.spec(), known.worker_of(TaskRef::Step { round, step }));
        if spec.request.policy.step_cache != StepCaching::Exact
            || spec.request.sampling.temperature != Some(0.0)
        {
            return Err("the output must not be from the cache");
        }
        let asks = prompt::for_worker(known, round, step);
        let is_equal = worker == Some(&call.worker.id) && asks.as_ref() == Some(&call.messages);
        if is_equal { Ok(()) } else { Err("the output belongs to a call that is not equal") }
    }

    /// The keys that calls of a step may have: its own, and that of the question if its worker may get the plain conversation.
    fn step_keys_of(&self, run: RunId, task: TaskRef) -> Vec<StepKey> {
        let TaskRef::Step { round, step } = task else { return Vec::new() };
        let Some(run) = self.runs.get(&run).map(|known| &known.run) else { return Vec::new() };
        let Some(subtask) = run.step(round, step).map(|step| step.subtask.clone()) else { return Vec::new() };
        let question = run.spec().request.conversation.question();
        let own = (question.clone(), subtask);
        if may_be_plain(run, round, step) { vec![own, (question.clone(), question)] } else { vec![own] }
    }

    /// Records that the conductor writes a plan, and checks its request. Returns the plan's number.
    pub(crate) fn planned(&mut self, request: &PlanRequest) -> u64 {
        self.plans += 1;
        let claim = self.claims_by_seed.get(&request.seed).and_then(|claim| self.claims.get_mut(claim));
        let Some(claim) = claim else {
            self.violated(Invariant::Claim, format!("a plan for `{}` without a claim", request.question));
            return self.plans;
        };
        let (run, round, is_repeated) = (claim.run, claim.task.round(), claim.is_planned_with);
        claim.is_planned_with = true;
        self.require(!is_repeated, Invariant::Claim, || format!("run {run}: two plans under one claim"));
        if !self.by_question.get(&request.question).is_some_and(|runs| runs.contains(&run)) {
            self.violated(Invariant::Claim, format!("run {run}: the plan is for another question"));
        }
        let earlier =
            round.checked_sub(1).and_then(|round| self.runs.get(&run)?.run.rounds().get(usize::from(round)));
        let outputs = earlier.map(|round| {
            let steps = round.steps.iter().skip(round.superseded.into());
            steps.filter_map(|step| step.output.as_deref())
        });
        let expected: Vec<_> = outputs.into_iter().flatten().flat_map(markers).collect();
        let is_seen = markers(request.earlier.as_ref().map_or("", |earlier| &earlier.text)) == expected;
        self.require(is_seen, Invariant::Sight, || {
            format!("run {run}: round {round} is planned from other outputs")
        });
        self.plans
    }

    /// Records a plan for a run that is not stored yet. Returns the plan's number.
    pub(crate) fn planned_at_once(&mut self) -> u64 {
        self.plans += 1;
        self.plans
    }

    /// Records a step as the conductor intends it.
    pub(crate) fn intend(&mut self, subtask: &str, step: Intended) {
        self.intended.insert(subtask.to_owned(), step);
    }

    /// Records a call, and checks its claim and its prompt. Returns the call's number.
    pub(crate) fn called(&mut self, worker: &Worker, request: &ChatRequest) -> usize {
        // The earlier turns of the step follow its prompt.
        let opening = request.messages.iter().take_while(|message| message.role != Role::Assistant);
        let prompt = opening.last().map(|message| message.text.as_str()).unwrap_or_default();
        let question = between(prompt, "<question>\n", "\n</question>").unwrap_or(prompt);
        let own = prompt.rsplit_once("Your subtask:\n").map(|(_, own)| own);
        let subtask = own.and_then(|own| between(own, "<subtask>\n", "\n</subtask>")).unwrap_or(prompt);
        let number = self.calls.len();
        let Some(runs) = self.by_question.get(question) else {
            self.violated(Invariant::Claim, format!("a call without a run: `{prompt}`"));
            return number;
        };
        let faults = runs.iter().map(|run| self.sight(*run, subtask, worker, prompt));
        // The call belongs to one of these runs.
        let faults: Option<Vec<_>> = faults.map(Result::err).collect();
        let of_run = faults.and_then(|faults| faults.into_iter().next());
        let fault = of_run.or_else(|| self.turns(question, subtask, request).err());
        let step_key = (question.to_owned(), subtask.to_owned());
        let allowed = self.calls_allowed.get(&step_key).copied().unwrap_or_default();
        let calls = self.calls_by_step.entry(step_key.clone()).or_default();
        calls.push(number);
        let calls = calls.len();
        self.violation = self.violation.take().or(fault);
        let what = || format!("call {calls} for `{subtask}` of `{question}`, which has {allowed} claims");
        self.require(calls <= allowed, Invariant::Claim, what);
        let (question, subtask) = step_key;
        let (worker, messages) = (worker.clone(), request.messages.clone());
        let (text, tokens_max) = (String::new(), request.output_tokens_max);
        let (usage, is_finished) = (None, false);
        self.calls.push(Call { question, subtask, worker, messages, text, usage, is_finished, tokens_max });
        number
    }

    /// Whether a call with this prompt can belong to a step of the run.
    fn sight(&self, run: RunId, subtask: &str, worker: &Worker, prompt: &str) -> Result<(), Violation> {
        let Some(known) = self.runs.get(&run) else { return Ok(()) };
        let violated = |invariant, what| Err(Violation { invariant, what });
        let place = known.run.rounds().iter().enumerate().rev().find_map(|(number, round)| {
            let number = u16::try_from(number).ok()?;
            let steps = round.known_steps().iter().enumerate();
            let mut steps = steps.filter_map(|(index, step)| {
                Some((StepIndex::new(u16::try_from(index).ok()?), step.subtask.as_str()))
            });
            let own = steps.clone().rfind(|(_, own)| *own == subtask);
            let is_plain = subtask == prompt;
            let plain = || steps.find(|(index, _)| is_plain && may_be_plain(&known.run, number, *index));
            own.or_else(plain).map(|(index, own)| (number, index, own))
        });
        let Some((round, step, own)) = place else {
            return violated(Invariant::Claim, format!("run {run} has no step `{subtask}`"));
        };
        let intended = self.intended.get(own);
        let Some(planned) = known.run.rounds().get(usize::from(round)) else { return Ok(()) };
        // The conductor's indices count the plan's own steps. A substitute for a plan sees the steps that began before it.
        let before = if planned.is_superseded(step) { 0 } else { planned.superseded };
        let moved = |seen: &StepIndex| StepIndex::new(seen.get() + before);
        let sees: Vec<_> = match intended {
            Some(intended) => intended.sees.iter().map(moved).collect(),
            None => planned
                .head
                .iter()
                .flat_map(|head| 0..head.len())
                .skip(before.into())
                .filter_map(|seen| u16::try_from(seen).ok())
                .map(StepIndex::new)
                .collect(),
        };
        let state = |step| known.run.task(TaskRef::Step { round, step }).map(|task: &Task| &task.state);
        let early = sees.iter().find(|seen| !state(**seen).is_some_and(TaskState::is_final)).copied();
        let outputs = sees.iter().filter_map(|seen| known.run.output(round, *seen));
        let earlier = intended.filter(|intended| intended.sees_earlier_round).and_then(|_| {
            let earlier = known.run.rounds().get(usize::from(round.checked_sub(1)?))?;
            Some(earlier.steps.iter().skip(earlier.superseded.into()).collect::<Vec<_>>())
        });
        let earlier = earlier.unwrap_or_default();
        let of_earlier = earlier.iter().filter_map(|step| step.output.as_deref());
        let expected: Vec<_> = of_earlier.chain(outputs).flat_map(markers).collect();
        let is_whole = markers(prompt) == expected
            && prompt.matches("<step number=").count() == sees.len()
            && prompt.matches("<earlier step=").count() == earlier.len();
        let task = known.run.task(TaskRef::Step { round, step });
        let is_claimed = task.is_some_and(|task| task.has_tried(&worker.id));
        let fell_back = known.run.rounds()[usize::from(round)].steps[step.as_usize()].worker.is_some();
        let is_intended = intended.is_none_or(|intended| intended.worker == worker.id);
        let is_right = is_claimed && (is_intended || fell_back);
        if let Some(seen) = early {
            violated(Invariant::Sight, format!("run {run}: step {step} runs before step {seen} has ended"))
        } else if !is_whole {
            violated(Invariant::Sight, format!("run {run}: step {step} sees other outputs: `{prompt}`"))
        } else if !is_right {
            violated(Invariant::Sight, format!("run {run}: step {step} went to `{}`", worker.id))
        } else {
            Ok(())
        }
    }

    /// Records the whole text of a call.
    pub(crate) fn will_say(&mut self, call: usize, text: String) {
        if let Some(call) = self.calls.get_mut(call) {
            call.text = text;
        }
    }

    /// Records the end of a call.
    pub(crate) fn finished(&mut self, call: usize, usage: Option<Usage>) {
        if let Some(call) = self.calls.get_mut(call) {
            (call.is_finished, call.usage) = (true, usage);
        }
    }

    /// Checks a run whose id a client got.
    pub(crate) fn accepted(&mut self, run: RunId) {
        self.require(self.runs.contains_key(&run), Invariant::Ends, || {
            format!("accepted run {run} is unknown")
        });
    }

    /// Checks an event that a client saw.
    pub(crate) fn shown_event(&mut self, run: RunId, event: &SequencedEvent) {
        let place = usize::try_from(event.sequence).ok().and_then(|sequence| sequence.checked_sub(1));
        let known = self.runs.get(&run).and_then(|known| known.events.get(place?));
        let is_same = known == Some(event);
        self.require(is_same, Invariant::Log, || format!("run {run}: event {} has changed", event.sequence));
    }

    /// Checks the text of an attempt that a client has seen so far.
    pub(crate) fn shown_text(&mut self, run: RunId, task: TaskRef, claim: ClaimId, text: &str) {
        let is_its = self.claims.get(&claim).is_some_and(|claim| (claim.run, claim.task) == (run, task));
        let step_keys = self.step_keys_of(run, task);
        let calls = step_keys.iter().filter_map(|step_key| self.calls_by_step.get(step_key)).flatten();
        let is_one = calls.into_iter().any(|call| self.calls[*call].text.starts_with(text));
        self.require(is_its && is_one, Invariant::Stream, || {
            format!("run {run}, {task}: `{text}` belongs to no attempt")
        });
    }

    /// Checks the run that a client got at its end.
    pub(crate) fn shown_end(&mut self, run: &Run) {
        let known = self.runs.get(&run.id()).map(|known| (known.run.state(), known.run.answer()));
        let is_true = run.is_ended() && known == Some((run.state(), run.answer()));
        self.require(is_true, Invariant::Stream, || format!("run {}: a client got another end", run.id()));
    }

    /// Checks the answer that a client has seen so far: it must belong to one attempt.
    pub(crate) fn shown_answer(&mut self, run: RunId, text: &str) {
        let question = self.runs.get(&run).map(|known| known.run.spec().request.conversation.question());
        let mut calls = self.calls.iter().filter(|call| Some(&call.question) == question.as_ref());
        let is_one = calls.any(|call| call.text.starts_with(text));
        self.require(is_one, Invariant::Stream, || {
            format!("run {run}: the answer `{text}` belongs to no attempt")
        });
    }

    /// Checks a booked commit that permits spending: no budget of its run may exceed its cap.
    pub(crate) fn permitted(&mut self, booking: &Booking, budgets: &BudgetState) {
        for budget in &booking.budgets {
            let Some(cap) = budgets.caps.get(&budget.payer) else { continue };
            let weight = self.weight(budget).total();
            self.require(weight <= *cap, Invariant::Budget, || {
                format!("budget `{}` of {cap} has {weight} spent and reserved", budget.payer)
            });
        }
    }

    /// The sum of the runs that are charged to a budget.
    fn weight(&self, budget: &BudgetRef) -> Charge {
        let charged = self.runs().filter(|run| run.spec().budgets.contains(budget));
        charged.map(Run::booked).fold(Charge::default(), |sum, charge| Charge {
            spent: sum.spent + charge.spent,
            reserved: sum.reserved + charge.reserved,
        })
    }

    /// Checks the sums of budgets at the end.
    pub(crate) fn charged_in_the_end(&mut self, budgets: &BudgetState) {
        for (budget, sum) in &budgets.sums {
            let weight = self.weight(budget);
            let expected =
                Sum { spent: weight.spent.signed_nano_usd(), reserved: weight.reserved.signed_nano_usd() };
            self.require(*sum == expected, Invariant::Budget, || {
                format!("budget `{}` has {sum:?}, but its runs sum to {expected:?}", budget.payer)
            });
        }
    }

    /// Checks a stored run at the end.
    pub(crate) fn stored_in_the_end(&mut self, id: RunId, stored: Option<(&[SequencedEvent], RunSums)>) {
        let Some(known) = self.runs.get(&id) else { return };
        let Some((events, sums)) = stored else {
            return self.violated(Invariant::Ends, format!("run {id} is missing"));
        };
        let is_same = events == known.events;
        let mut paid = BTreeMap::new();
        let mut is_once = true;
        for (paid_for, cost) in known.events.iter().filter_map(|event| payment(&event.event)) {
            is_once &= paid.insert(paid_for, cost).is_none();
        }
        let sum = paid.into_values().sum();
        let taken = known.events.iter().filter(|event| is_taken(&known.run, &event.event));
        let taken = taken.filter_map(|event| payment(&event.event)).map(|(_, cost)| cost).sum();
        let is_whole = known.run.wasted_cost() + taken == sum;
        let is_sum = is_once && is_whole && known.run.cost() == sum && sums == RunSums::of(&known.run);
        self.require(is_same, Invariant::Log, || format!("the log of run {id} has changed"));
        self.require(is_sum, Invariant::Cost, || {
            format!("run {id}: its attempts cost {sum}, but its sums are {sums:?}")
        });
    }
}

impl Call {
    fn step_key(&self) -> StepKey {
        (self.question.clone(), self.subtask.clone())
    }
}
