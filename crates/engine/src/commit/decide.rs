//! Deciding a batch in memory: what the commands make of the runs that they are about.

use std::collections::{BTreeMap, HashMap};

use podium_domain::budget::{Charge, Shortage};
use podium_domain::ids::RunId;
use podium_domain::run::{Command, Effect, Refusal, Run, SequencedEvent};
use podium_domain::time::Timestamp;
use tracing::debug;

use super::{CommandError, Request};

/// A run that commands are decided on.
pub(super) struct InHand {
    pub(super) run: Run,
    /// What it weighed on its budgets when it was taken in hand.
    pub(super) booked: Charge,
    /// It was not read just now: others may have gone on with it since.
    is_remembered: bool,
}

impl InHand {
    pub(super) fn loaded(run: Run) -> Self {
        Self { booked: run.booked(), run, is_remembered: false }
    }

    pub(super) fn remembered(run: &Run) -> Self {
        Self { is_remembered: true, ..Self::loaded(run.clone()) }
    }
}

/// What a batch does to one run.
#[derive(Default)]
pub(super) struct Change {
    pub(super) events: Vec<SequencedEvent>,
    pub(super) effects: Vec<Effect>,
}

/// A batch after deciding.
pub(super) struct Decided {
    /// To be answered once the changes are committed.
    pub(super) requests: Vec<Request>,
    /// Refused, or without effect, by what a remembered run says: to be decided anew on what the store says.
    pub(super) unsure: Vec<Request>,
    /// Ordered: every process writes the runs of a batch in one order, and a simulation can be repeated.
    pub(super) changes: BTreeMap<RunId, Change>,
}

/// Decides every request in order.
pub(super) fn decide_all(
    requests: Vec<Request>,
    runs: &mut HashMap<RunId, InHand>,
    now: Timestamp,
) -> Decided {
    let mut decided = Decided {
        requests: Vec::with_capacity(requests.len()),
        unsure: Vec::new(),
        changes: BTreeMap::new(),
    };
    for request in requests {
        let Some(in_hand) = runs.get_mut(&request.run) else {
            let _ = request.reply.send(Err(CommandError::UnknownRun));
            continue;
        };
        match decide(&mut in_hand.run, &request, now) {
            Ok(fresh) if !fresh.events.is_empty() => {
                let change = decided.changes.entry(request.run).or_default();
                change.events.extend(fresh.events);
                change.effects.extend(fresh.effects);
                decided.requests.push(request);
            }
            _ if in_hand.is_remembered => decided.unsure.push(request),
            Ok(_) => decided.requests.push(request),
            Err(refusal) => {
                let _ = request.reply.send(Err(CommandError::Refused(refusal)));
            }
        }
    }
    decided
}

fn decide(run: &mut Run, request: &Request, now: Timestamp) -> Result<Change, Refusal> {
    let mut change = Change::default();
    let shortage = request.shortage.as_ref();
    carry(run, &request.command, shortage, now, &mut change)?;
    if let Some(then) = &request.then
        && let Err(refusal) = carry(run, then, shortage, now, &mut change)
    {
        debug!(run = %run.id(), %refusal, "the second of two commands is left out");
    }
    Ok(change)
}

fn carry(
    run: &mut Run,
    command: &Command,
    shortage: Option<&Shortage>,
    now: Timestamp,
    change: &mut Change,
) -> Result<(), Refusal> {
    let decision = match shortage {
        Some(shortage) => run.decide_over_budget(command, shortage, now)?,
        None => run.decide(command, now)?,
    };
    for event in decision.events {
        let event = SequencedEvent { sequence: run.version() + 1, at: now, event };
        if let Err(error) = run.apply(&event) {
            // `decide` and `apply` are held together by a test over every reachable state.
            tracing::error!(run = %run.id(), %error, "a decision does not fold");
            debug_assert!(false, "a decision does not fold: {error}");
            break;
        }
        change.events.push(event);
    }
    change.effects.extend(decision.effects);
    Ok(())
}

/// Carries out a command on a run in memory: what a commit of it would make of the run, and with which events and effects.
pub(crate) fn rehearse(
    run: &mut Run,
    command: &Command,
    now: Timestamp,
) -> Result<(Vec<SequencedEvent>, Vec<Effect>), Refusal> {
    let mut change = Change::default();
    carry(run, command, None, now, &mut change)?;
    Ok((change.events, change.effects))
}
