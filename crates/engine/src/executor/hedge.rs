//! One attempt's calls: the worker's own and, while that is silent for longer than usual, a second one beside it.
//!
//! Whichever begins to answer first is the attempt's; the other is broken off at that moment. To wait for the first that *ends*
//! would give the shorter time in the end, but nobody could be shown any text before it, and mini is about when the text begins.
//! So text of two calls never meets, and from the first word on a hedged attempt is as any other.

use std::time::Duration;

use podium_domain::ids::StepIndex;
use podium_domain::money::Cost;
use podium_domain::policy::{BrokenAnswer, PoolRule};
use podium_domain::pool::Worker;
use podium_domain::run::{Hedge, Run, TaskRef, Winner};
use podium_ports::limiter::{Patience, Permit};
use podium_ports::vendor::ChatRequest;
use tokio_util::sync::CancellationToken;

use super::call::{Call, Cure, Ended, Opened, Progress, Spent, milliseconds, most_cost};
use super::fallback::candidates;
use super::{Executor, request};
use crate::holds::Held;
use crate::task::{Claimed, Reserve};

/// Who may be called beside a step's worker.
pub(super) struct Second {
    worker: Worker,
    /// The most that both calls may cost.
    reserve: Reserve,
}

/// How an attempt ended, and how it was hedged.
pub(super) struct Attempted {
    pub(super) ended: Ended,
    pub(super) hedge: Option<Hedge>,
}

/// Two calls under way, or one.
struct Calls {
    one: Progress,
    two: Option<Progress>,
    /// Which of the two began to answer first, and what the other consumed.
    decided: Option<(Winner, Spent)>,
}

/// What became of the race to the first word.
type Race = (Winner, Result<Opened, Ended>, Option<Spent>);

impl Executor {
    /// Who would be called beside `worker`, should it be silent: the first who may stand in for it. Where nobody may, the worker
    /// itself: what is slow about one call is often the machine that it met, and its vendor has others.
    ///
    /// Only one who is known now may be called later, since the claim reserves what it may cost.
    pub(super) fn second(
        &self,
        run: &Run,
        at: (u16, StepIndex),
        (worker, asked): (&Worker, &ChatRequest),
    ) -> Option<Second> {
        let (task, now) = (TaskRef::Step { round: at.0, step: at.1 }, self.engine.now());
        if !run.spec().policy.hedges(worker) || !run.may_hedge(task) {
            return None;
        }
        let is_priced = |other: &&Worker| other.prices.is_valid_at(now);
        let other = match run.spec().policy.fallback {
            PoolRule::Pool => candidates(self.engine.pool(), run, task, (worker, asked)).find(is_priced),
            PoolRule::None => None,
        };
        let other = other.unwrap_or(worker);
        let request = request(run, at, other)?;
        let reserve = Reserve { call: most_cost(worker, asked, now), hedge: most_cost(other, &request, now) };
        Some(Second { worker: other.clone(), reserve })
    }

    /// Makes an attempt's call, or both. Settles their permits.
    pub(super) async fn attempt(
        &self,
        call: Call<'_>,
        second: Option<&Second>,
        permit: Box<dyn Permit>,
        (held, abandon): (&Held, &CancellationToken),
    ) -> Attempted {
        let request = second.and_then(|second| request(call.run, call.at, &second.worker));
        let second = second.zip(request.as_ref()).map(|(second, request)| Call {
            worker: &second.worker,
            request,
            ..call
        });
        let mut calls = Calls { one: call.begin(permit, None), two: None, decided: None };
        let ended = tokio::select! {
            // A result that is there was paid for, whatever else has happened.
            biased;
            ended = self.make(call, second, &mut calls) => ended,
            () = held.lost() => Ended::Lost { spent: calls.spent(call, second) },
            () = abandon.cancelled() => Ended::Abandoned { spent: calls.spent(call, second) },
        };
        self.ended(call, second, calls, ended)
    }

    async fn make(&self, first: Call<'_>, second: Option<Call<'_>>, calls: &mut Calls) -> Ended {
        let after =
            if second.is_some() { self.hedging.called(first.worker, self.engine.now()) } else { None };
        let Some((second, after)) = second.zip(after) else { return first.make(&mut calls.one).await };
        let (winner, opened, lost) = self.race(first, (second, after), calls).await;
        let Some(two) = &mut calls.two else {
            return match opened {
                Ok(opened) => first.go_on(opened, &mut calls.one).await,
                Err(ended) => ended,
            };
        };
        // Whose room is not needed any more, is needed by others.
        let (loser, winning, winners) = match winner {
            Winner::Second => (&mut calls.one, two, second),
            Winner::First | Winner::Neither => (two, &mut calls.one, first),
        };
        loser.settle();
        let lost = lost.unwrap_or_else(|| {
            if winner != Winner::Second {
                return second.broken_off();
            }
            let now = self.engine.now();
            self.hedging.note(first.worker, milliseconds(loser.began(), now), now);
            first.broken_off()
        });
        calls.decided = Some((winner, lost));
        match opened {
            Ok(opened) => winners.go_on(opened, winning).await,
            Err(ended) => ended,
        }
    }

    /// Waits for the first word of the first call, and after a while of either. With what the loser consumed, where it failed;
    /// else it has been broken off by now. An error is the first call's: it is the one that the step was for.
    async fn race(&self, first: Call<'_>, (second, after): (Call<'_>, Duration), calls: &mut Calls) -> Race {
        let Calls { one, two, .. } = calls;
        let asked = one.began();
        let opening = first.open(one);
        tokio::pin!(opening);
        let due = self.due(second, first.worker, after);
        tokio::select! {
            biased;
            opened = &mut opening => return (Winner::First, opened, None),
            permit = due => *two = permit.map(|permit| second.begin(permit, Some(asked))),
        }
        let Some(two) = two else { return (Winner::First, opening.await, None) };
        let other = second.open(two);
        tokio::pin!(other);
        tokio::select! {
            biased;
            opened = &mut opening => match opened {
                Ok(opened) => (Winner::First, Ok(opened), None),
                Err(ended) => match other.await {
                    Ok(opened) => (Winner::Second, Ok(opened), Some(ended.spent())),
                    Err(failed) => (Winner::Neither, Err(ended), Some(failed.spent())),
                },
            },
            opened = &mut other => match opened {
                Ok(opened) => (Winner::Second, Ok(opened), None),
                Err(failed) => match opening.await {
                    Ok(opened) => (Winner::First, Ok(opened), Some(failed.spent())),
                    Err(ended) => (Winner::Neither, Err(ended), Some(failed.spent())),
                },
            },
        }
    }

    /// Room for the second call once the first has been silent for so long. A hedge never waits: where there is no room now, or the
    /// run's time is over, there is none.
    async fn due(&self, second: Call<'_>, first: &Worker, after: Duration) -> Option<Box<dyn Permit>> {
        self.engine.parts().clock.sleep(after).await;
        if self.engine.now() >= second.run.spec().deadline_at || !self.hedging.take(&first.id) {
            return None;
        }
        let asked = (second.worker, second.request);
        let permit = self.permit(second.run, second.at, asked, Patience::Leaves).await.ok();
        if permit.is_none() {
            self.hedging.give_back(&first.id);
        }
        permit
    }

    /// Says what became of the calls: to the limiter, to the statistics, and to who records the attempt.
    fn ended(
        &self,
        first: Call<'_>,
        second: Option<Call<'_>>,
        mut calls: Calls,
        mut ended: Ended,
    ) -> Attempted {
        let is_same = |second: Call<'_>| second.worker.id == first.worker.id;
        let has_broken_off = calls.one.broke_off()
            || second.is_some_and(is_same) && calls.two.as_ref().is_some_and(Progress::broke_off);
        if has_broken_off && first.run.spec().policy.broken_answer == BrokenAnswer::Elsewhere {
            ended.not_again();
        }
        let note = |worker: &Worker, progress: &mut Progress| {
            progress.settle();
            if let Some(silent_ms) = progress.silent_ms() {
                self.hedging.note(worker, silent_ms, self.engine.now());
            }
        };
        note(first.worker, &mut calls.one);
        let hedge = second.zip(calls.two.as_mut()).map(|(second, two)| {
            note(second.worker, two);
            let undecided = || (Winner::Neither, second.broken_off());
            let (winner, Spent { usage, cost }) = calls.decided.unwrap_or_else(undecided);
            Hedge { worker: second.worker.id.clone(), winner, usage, cost }
        });
        Attempted { ended, hedge }
    }
}

impl Second {
    /// The most that its call may cost.
    pub(super) fn most_cost(&self) -> Cost {
        self.reserve.hedge
    }

    /// It, if the claim that was granted has room for both calls: it may have been granted on another run than was known.
    pub(super) fn covered_by(self, claimed: &Claimed) -> Option<Self> {
        let task = claimed.run.task(claimed.task)?;
        let attempt = task.attempt(claimed.claim)?;
        let is_covered = attempt.reserved >= self.reserve.call + self.reserve.hedge;
        (task.attempts.len() == 1 && is_covered).then_some(self)
    }
}

impl Calls {
    /// What the call that the attempt goes by has consumed by now.
    fn spent(&self, first: Call<'_>, second: Option<Call<'_>>) -> Spent {
        match (self.decided, second, &self.two) {
            (Some((Winner::Second, _)), Some(second), Some(two)) => second.spent(two),
            _ => first.spent(&self.one),
        }
    }
}

impl Ended {
    /// The worker is not asked again: it has been paid for output that broke off.
    fn not_again(&mut self) {
        if let Self::Failed { message, cure: cure @ Cure::Again(_), .. } = self {
            message.push_str("; not tried again: its answer had begun");
            *cure = Cure::Elsewhere;
        }
    }

    /// What was consumed.
    fn spent(&self) -> Spent {
        match self {
            Self::Finished(result) => Spent { usage: result.usage, cost: result.cost },
            Self::Failed { spent, .. } | Self::Lost { spent } | Self::Abandoned { spent } => *spent,
        }
    }
}
