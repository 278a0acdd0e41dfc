//! Decides a batch in memory: computes how the commands change their runs.

use std::collections::{BTreeMap, HashMap};

use podium_domain::budget::{Charge, Shortage};
use podium_domain::ids::RunId;
use podium_domain::run::{Command, Effect, Refusal, Run, SequencedEvent};
use podium_domain::time::Timestamp;
use tracing::debug;

use super::request::{CommandError, Request};

/// A run with the context for decisions.
pub(super) struct Subject {
    pub(super) run: Run,
    /// The charge of its budgets before the commands.
    pub(super) booked: Charge,
    /// Whether the run is from the run cache: another process may have committed to it since.
    is_cached: bool,
}

impl Subject {
    pub(super) fn loaded(run: Run) -> Self {
        Self { booked: run.booked(), run, is_cached: false }
    }

    pub(super) fn cached(run: &Run) -> Self {
        Self { is_cached: true, ..Self::loaded(run.clone()) }
    }
}

/// The events and effects of commands on one run.
#[derive(Default)]
pub(crate) struct Change {
    pub(crate) events: Vec<SequencedEvent>,
    pub(crate) effects: Vec<Effect>,
}

/// A batch after its decisions.
pub(super) struct Decided {
    /// Requests that are answered after the changes are committed.
    pub(super) requests: Vec<Request>,
    /// Requests that were refused or had no effect on a cached run. They must be decided again on the stored run.
    pub(super) unsure: Vec<Request>,
    /// Ordered: every process writes the runs of a batch in the same order, and a simulation can be repeated.
    pub(super) changes: BTreeMap<RunId, Change>,
}

/// Decides every request in order.
pub(super) fn decide_all(
    requests: Vec<Request>,
    subjects: &mut HashMap<RunId, Subject>,
    now: Timestamp,
) -> Decided {
    let (mut decided, mut unsure, mut changes) = (Vec::new(), Vec::new(), BTreeMap::<_, Change>::new());
    for request in requests {
        let Some(subject) = subjects.get_mut(&request.run) else {
            request.answer(Err(CommandError::UnknownRun));
            continue;
        };
        match decide(&mut subject.run, &request, now) {
            Ok(fresh) if !fresh.events.is_empty() => {
                let change = changes.entry(request.run).or_default();
                change.events.extend(fresh.events);
                change.effects.extend(fresh.effects);
                decided.push(request);
            }
            _ if subject.is_cached => unsure.push(request),
            Ok(_) => decided.push(request),
            Err(refusal) => request.answer(Err(CommandError::Refused(refusal))),
        }
    }
    Decided { requests: decided, unsure, changes }
}

fn decide(run: &mut Run, request: &Request, now: Timestamp) -> Result<Change, Refusal> {
    let shortage = request.shortage.as_ref();
    let mut change = carry_out(run, &request.order.command, shortage, now)?;
    if let Some(then) = &request.order.then {
        match carry_out(run, then, shortage, now) {
            Ok(second) => {
                change.events.extend(second.events);
                change.effects.extend(second.effects);
            }
            Err(refusal) => debug!(run = %run.id(), %refusal, "the second of two commands is left out"),
        }
    }
    Ok(change)
}

fn carry_out(
    run: &mut Run,
    command: &Command,
    shortage: Option<&Shortage>,
    now: Timestamp,
) -> Result<Change, Refusal> {
    let decision = match shortage {
        Some(shortage) => run.decide_over_budget(command, shortage, now)?,
        None => run.decide(command, now)?,
    };
    let mut events = Vec::with_capacity(decision.events.len());
    for event in decision.events {
        let event = SequencedEvent { sequence: run.version() + 1, at: now, event };
        if let Err(error) = run.apply(&event) {
            // A test checks for every reachable state that `apply` accepts the decision.
            tracing::error!(run = %run.id(), %error, "a decision cannot be applied");
            debug_assert!(false, "a decision cannot be applied: {error}");
            break;
        }
        events.push(event);
    }
    Ok(Change { events, effects: decision.effects })
}

/// Carries out a command on a run in memory. Returns the content of its commit.
pub(crate) fn rehearse(run: &mut Run, command: &Command, now: Timestamp) -> Result<Change, Refusal> {
    carry_out(run, command, None, now)
}
