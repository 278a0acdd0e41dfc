//! The meter of one scope: its usage, and whether it has capacity for a call.
//!
//! Each limit per minute is a virtual queue that drains at a steady pace (the generic cell rate algorithm, ITU-T I.371). A call
//! adds the amount that it takes, and is admitted while the queue holds at most the burst. A call larger than the whole burst is
//! admitted when the queue is empty. An unknown scope, new or forgotten, has capacity for one call; the rest of its burst counts
//! as used up. No queue is longer than a minute and a burst, even after an implausible usage: after a minute without calls every
//! vendor's window is empty.

use std::time::Duration;

use super::health::{Ending, Health};
use super::terms::{AMOUNTS, Amounts, MINUTE_MS, Pace, Terms};
use super::turns::{Caller, Turns};
use super::{Quota, RefusalReason, Settlement, TokenEstimate};
use crate::policy::Tier;
use crate::split_mix::split_mix;

/// The service of one call in a scope without limits per minute; used for fairness only.
pub(super) const CALL_MS: f64 = 1_000.0;
/// How soon the holder of the turn asks again if it waits for a call to end.
pub(super) const LOOK_MS: f64 = 20.0;
/// Factor on the longest delay of a refusal while the worker is backing off or its breaker is open.
pub(super) const OUT_OF_ORDER_TIMES: f64 = 5.0;
/// Differences below this count as zero, because sums of times since 1970 are not more exact.
pub(super) const SLACK_MS: f64 = 0.01;
/// How long after the agreed time a caller may still ask again.
pub(super) const GRACE_MS: f64 = 1_000.0;

/// How long a limit that a vendor reported is valid after its last report.
pub(super) const SAID_KEPT_MS: f64 = 600_000.0;
/// Largest part of a limit that is withheld for the usage before the limit was known.
pub(super) const DEBT_MAX: f64 = 0.5;

/// The gain of the moving averages of what calls take, as TCP uses for round trips (RFC 6298).
pub(super) const MEAN_GAIN: f64 = 1.0 / 8.0;
pub(super) const DEVIATION_GAIN: f64 = 1.0 / 4.0;
/// The expected completion is the mean plus this many deviations.
pub(super) const DEVIATIONS: f64 = 2.0;
/// Bounds of the ratio between a prompt's real and estimated tokens.
pub(super) const RATIO_MIN: f64 = 0.25;
pub(super) const RATIO_MAX: f64 = 8.0;

/// The state of one scope.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Meter {
    /// Calls in flight.
    pub(super) in_flight: f64,
    /// When each virtual queue will be empty; 0 if unknown.
    pub(super) empty_at: Amounts,
    /// Whether an unknown scope counts as completely used up.
    pub(super) begins_empty: bool,
    /// The limits per minute that the vendor reported; 0 for none.
    pub(super) said: Amounts,
    /// When the reported limits expire.
    pub(super) said_until: f64,
    /// The amounts taken since `spent_since`, at most a minute ago.
    pub(super) spent: Amounts,
    pub(super) spent_since: f64,
    /// The amounts that were taken without a pace before a limit became known. They are withheld until `debt_until`, so that the
    /// minute that began before does not exceed the limit.
    pub(super) debt: Amounts,
    pub(super) debt_until: f64,
    pub(super) turns: Turns,
    pub(super) health: Health,
    pub(super) expectation: Expectation,
}

/// A granted call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// Whether it is a probe, whose outcome decides if the breaker closes.
    pub probes: bool,
    /// Its position in the order in which the worker's calls were granted, from 1.
    pub number: u64,
}

/// A request for one call.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// The caller's name: the same each time it asks, sorted by arrival; blank if it does not ask again.
    pub who: &'a str,
    /// The tier of the run.
    pub tier: Tier,
    /// The tenant of the run.
    pub tenant: &'a str,
    /// The expected tokens.
    pub takes: Drawn,
    /// The longest delay that a refusal may give, in milliseconds.
    pub ask_again_ms_max: f64,
}

impl<'a> Ask<'a> {
    fn caller(&self) -> Caller<'a> {
        Caller::new(self.who, self.tier, self.tenant)
    }
}

/// Tokens that were reserved or used.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Drawn {
    /// Tokens of the prompt.
    pub input: f64,
    /// Tokens of the completion.
    pub output: f64,
}

impl Drawn {
    fn amounts(self, requests: f64) -> Amounts {
        [requests, self.input + self.output, self.input, self.output]
    }
}

/// There is no capacity. Times are milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Refusal {
    /// The limit or condition that refuses the call.
    pub why: RefusalReason,
    /// The earliest time to ask again.
    pub after: f64,
    /// The largest random addition to it, so that callers do not all ask again together.
    pub spread: f64,
}

/// The delay before asking again; `seed` is different for each refusal.
pub fn scatter(refusal: Refusal, seed: u64) -> Duration {
    let random = u32::try_from(split_mix(seed, 1) >> 32).unwrap_or(u32::MAX);
    let later = refusal.spread * f64::from(random) / f64::from(u32::MAX);
    Duration::try_from_secs_f64((refusal.after + later) / 1e3).unwrap_or_default()
}

/// A scope has no capacity, with the time until it has, if known.
#[derive(Clone, Copy, Debug)]
struct Full {
    why: RefusalReason,
    wait: f64,
}

/// The end of a call.
#[derive(Clone, Copy, Debug)]
pub struct Settled {
    /// The reserved tokens; `None` if this meter did not grant the call.
    pub reserved: Option<Drawn>,
    /// The estimate before the call.
    pub estimate: TokenEstimate,
    /// The grant; `None` if this meter did not grant the call.
    pub granted: Option<Granted>,
    /// The usage and outcome.
    pub settlement: Settlement,
}

/// The tokens that calls of a worker are expected to take, learned from settled calls.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Expectation {
    /// Mean tokens of a completion.
    pub output_mean: f64,
    /// Mean deviation of these tokens.
    pub output_deviation: f64,
    /// Real tokens of a prompt for each estimated one.
    pub input_ratio: f64,
}

impl Expectation {
    /// The tokens to reserve. Before anything is learned: the estimate, with the whole completion.
    pub fn of(&self, estimate: TokenEstimate) -> Drawn {
        let (input, output_max) = (float(estimate.input), float(estimate.output_max));
        let ratio = if self.input_ratio > 0.0 { self.input_ratio } else { 1.0 };
        let output = if self.output_mean > 0.0 {
            (self.output_mean + self.output_deviation * DEVIATIONS).ceil().min(output_max)
        } else {
            output_max
        };
        Drawn { input: (input * ratio).ceil(), output }
    }

    fn learn(&mut self, estimate: TokenEstimate, used: Drawn) {
        if estimate.input > 0 && used.input > 0.0 {
            let ratio = (used.input / float(estimate.input)).clamp(RATIO_MIN, RATIO_MAX);
            let known = if self.input_ratio > 0.0 { self.input_ratio } else { ratio };
            self.input_ratio = known + (ratio - known) * MEAN_GAIN;
        }
        if used.output <= 0.0 {
            return;
        }
        if self.output_mean <= 0.0 {
            (self.output_mean, self.output_deviation) = (used.output, used.output / 2.0);
            return;
        }
        let error = used.output - self.output_mean;
        self.output_deviation += (error.abs() - self.output_deviation) * DEVIATION_GAIN;
        self.output_mean += error * MEAN_GAIN;
    }
}

impl Meter {
    /// The tokens that a call is expected to take.
    pub fn expects(&self, estimate: TokenEstimate) -> Drawn {
        self.expectation.of(estimate)
    }

    /// A meter that grants nothing at first, as if all its limits were used up.
    pub fn used_up() -> Self {
        Self { begins_empty: true, ..Self::default() }
    }

    /// Sets the number of calls in flight, for a caller that counts them itself.
    pub fn set_in_flight(&mut self, calls: f64) {
        self.in_flight = calls;
    }

    #[cfg(test)]
    pub(super) fn granted(&self) -> u64 {
        whole(self.health.granted)
    }

    /// Decides on one call that needs capacity in all of `scopes`: the worker's first, then its account's. It takes capacity in all
    /// of them or in none. `now` is in milliseconds.
    pub fn ask(now: f64, scopes: &mut [(&mut Self, Terms)], ask: &Ask<'_>) -> Result<Granted, Refusal> {
        for (meter, terms) in scopes.iter_mut() {
            meter.begin(now, terms, ask);
            if let Err(full) = meter.look(now, terms, ask) {
                return Err(meter.refuse(now, terms, ask, full));
            }
        }
        Ok(Self::take(now, scopes, ask))
    }

    /// Counts a call that was granted elsewhere, even without capacity.
    pub fn note(now: f64, scopes: &mut [(&mut Self, Terms)], ask: &Ask<'_>) -> Granted {
        for (meter, terms) in scopes.iter_mut() {
            meter.begin(now, terms, ask);
        }
        Self::take(now, scopes, ask)
    }

    fn take(now: f64, scopes: &mut [(&mut Self, Terms)], ask: &Ask<'_>) -> Granted {
        let mut granted = Granted { probes: false, number: 0 };
        for (meter, terms) in scopes {
            let probes = meter.grant(now, terms, ask);
            if granted.number == 0 {
                granted.number = whole(meter.health.granted);
            }
            granted.probes |= probes;
        }
        granted
    }

    /// The pace of a limit: the lower of the configured limit and the one that the vendor reported to this worker.
    ///
    /// A reported limit that the account's configured limit already enforces sets no pace. It belongs to the account; a second pace
    /// in one worker's scope would let newer calls of other workers overtake the older ones that wait for it.
    fn pace(&self, now: f64, terms: &Terms, which: usize) -> Option<Pace> {
        let said = if now < self.said_until { self.said[which] * terms.share } else { 0.0 };
        let (configured, account) = (terms.per_minute[which], terms.account_per_minute[which]);
        let said = if account > 0.0 && said >= account { 0.0 } else { said };
        let limit = if said > 0.0 && configured > 0.0 { configured.min(said) } else { configured.max(said) };
        let debt = if now < self.debt_until { self.debt[which].min(limit * DEBT_MAX) } else { 0.0 };
        (limit > 0.0).then(|| Pace::of(limit - debt))
    }

    /// Makes an unknown scope count as used up except for the requested call.
    fn begin(&mut self, now: f64, terms: &Terms, ask: &Ask<'_>) {
        for (which, amount) in ask.takes.amounts(1.0).into_iter().enumerate() {
            if let Some(pace) = self.pace(now, terms, which).filter(|_| self.empty_at[which] <= 0.0) {
                let kept_free = if self.begins_empty { 0.0 } else { amount * pace.unit_ms };
                self.empty_at[which] = now + (pace.burst_ms - kept_free).max(0.0);
            }
        }
    }

    fn look(&self, now: f64, terms: &Terms, ask: &Ask<'_>) -> Result<(), Full> {
        self.health.look(now).map_err(|(why, wait)| Full { why, wait })?;
        let left = self.turns.left_by(now, ask.caller());
        let calls = self.in_flight + 1.0 + if left.is_some() { 1.0 } else { 0.0 };
        if calls > self.health.calls_max(terms.calls_max) {
            return Err(Full { why: RefusalReason::Busy, wait: 0.0 });
        }
        let (takes, left) = (ask.takes.amounts(1.0), left.unwrap_or_default());
        let mut wait: f64 = 0.0;
        for (which, amount) in takes.into_iter().enumerate() {
            if let Some(pace) = self.pace(now, terms, which) {
                let queued = (self.empty_at[which] - now).max(0.0);
                let added = amount * pace.unit_ms + left;
                // A call larger than the burst needs only an empty queue.
                let over = if added > pace.burst_ms && left <= 0.0 {
                    queued
                } else {
                    queued + added - pace.burst_ms
                };
                wait = wait.max(over);
            }
        }
        if wait > SLACK_MS { Err(Full { why: RefusalReason::Rate, wait }) } else { Ok(()) }
    }

    /// The service of a call in this scope, in milliseconds: that of the limit of which it takes the largest part.
    fn service_ms(&self, now: f64, terms: &Terms, takes: Amounts) -> f64 {
        let each =
            (0..AMOUNTS).filter_map(|which| Some(takes[which] * self.pace(now, terms, which)?.unit_ms));
        let most = each.fold(0.0, f64::max);
        if most > 0.0 { most } else { CALL_MS }
    }

    fn refuse(&mut self, now: f64, terms: &Terms, ask: &Ask<'_>, full: Full) -> Refusal {
        let Full { why, wait } = full;
        // A caller with the longest delay gets a random part too, so that callers do not return together.
        let refusal = |most: f64, after: f64, spread: f64| {
            let after = if spread > 0.0 { after.min(most / 2.0) } else { after.min(most) };
            let after = after.max(1.0);
            Refusal { why, after, spread: spread.min(most - after).max(0.0) }
        };
        let most = ask.ask_again_ms_max;
        if matches!(why, RefusalReason::Blocked | RefusalReason::Broken | RefusalReason::Unreachable) {
            return refusal(most * OUT_OF_ORDER_TIMES, wait, (wait / 10.0).max(LOOK_MS));
        }
        let (caller, service_ms) = (ask.caller(), self.service_ms(now, terms, ask.takes.amounts(1.0)));
        #[expect(clippy::cast_precision_loss, reason = "it is bounded by WAITING_MAX")]
        let waiting = self.turns.waiting(now, caller) as f64;
        let takes_turn = self.turns.may_take(now, caller);
        let refused = match (why, takes_turn) {
            (RefusalReason::Rate, true) => refusal(most, wait, 0.0),
            // On average, half of the waiting callers come first.
            (RefusalReason::Rate, false) => {
                let after = wait.max(waiting * service_ms / 2.0);
                refusal(most, after, after)
            }
            (_, true) => refusal(most, LOOK_MS, LOOK_MS),
            (_, false) => refusal(most, LOOK_MS * waiting, LOOK_MS * waiting),
        };
        if !caller.who.is_empty() {
            let until = now + refused.after + refused.spread + GRACE_MS;
            self.turns.wait(caller, until, takes_turn.then_some(service_ms));
        }
        refused
    }

    fn grant(&mut self, now: f64, terms: &Terms, ask: &Ask<'_>) -> bool {
        let takes = ask.takes.amounts(1.0);
        self.add(now, terms, takes);
        self.in_flight += 1.0;
        let service_ms = self.service_ms(now, terms, takes);
        self.turns.grant(ask.caller(), service_ms);
        self.health.grant(now)
    }

    fn add(&mut self, now: f64, terms: &Terms, amounts: Amounts) {
        if now - self.spent_since >= MINUTE_MS {
            (self.spent, self.spent_since) = ([0.0; AMOUNTS], now);
        }
        for (which, amount) in amounts.into_iter().enumerate() {
            self.spent[which] = (self.spent[which] + amount).max(0.0);
            // A returned amount was reserved earlier, perhaps before the limit was known.
            self.debt[which] = (self.debt[which] + amount.min(0.0)).max(0.0);
            if let Some(pace) = self.pace(now, terms, which) {
                let empty_at = self.empty_at[which].max(now) + amount * pace.unit_ms;
                self.empty_at[which] = empty_at.min(now + MINUTE_MS + pace.burst_ms).max(now);
            }
        }
    }

    /// Records the end of a call, in the scope of its worker.
    pub fn settle_worker(&mut self, now: f64, terms: &Terms, settled: &Settled) {
        let (in_flight, configured) = (self.in_flight, terms.calls_max);
        self.settle_account(now, terms, settled);
        let Settled { estimate, granted, settlement, .. } = *settled;
        self.health.settle(
            now,
            Ending {
                outcome: settlement.outcome,
                probes: granted.is_some_and(|granted| granted.probes),
                number: granted.map_or(0.0, |granted| float(granted.number)),
                in_flight,
                configured,
            },
        );
        if let Some(used) = settled.learned() {
            self.expectation.learn(estimate, used);
        }
        if let Some(first_token) = settlement.first_token {
            #[expect(clippy::cast_precision_loss, reason = "a wait is at most a day")]
            let ms = first_token.as_millis() as f64;
            self.health.first_token(now, ms, in_flight, configured);
        }
        self.hear(now, terms, &settlement.quota);
    }

    /// Records the end of a call, in the scope of its account.
    pub fn settle_account(&mut self, now: f64, terms: &Terms, settled: &Settled) {
        self.in_flight = (self.in_flight - 1.0).max(0.0);
        self.add(now, terms, settled.correction());
    }

    /// Learns the limits that the vendor reports. From then on, at most the reported remainder is spent at once.
    fn hear(&mut self, now: f64, terms: &Terms, quota: &Quota) {
        for (which, allowance) in quota.each().into_iter().enumerate() {
            if let Some(limit) = allowance.limit.filter(|limit| *limit > 0) {
                let had_pace = self.pace(now, terms, which).is_some();
                if now >= self.said_until {
                    self.said = [0.0; AMOUNTS];
                }
                (self.said[which], self.said_until) = (float(limit), now + SAID_KEPT_MS);
                if !had_pace {
                    self.owe(now, terms, which);
                }
            }
            if let (Some(remaining), Some(pace)) = (allowance.remaining, self.pace(now, terms, which)) {
                let left_ms = float(remaining) * terms.share * pace.unit_ms;
                self.empty_at[which] = self.empty_at[which].max(now + pace.burst_ms - left_ms);
            }
        }
    }

    /// Withholds what was taken before a limit became known, spread over the next minute.
    fn owe(&mut self, now: f64, terms: &Terms, which: usize) {
        if now >= self.debt_until {
            self.debt = [0.0; AMOUNTS];
        }
        (self.debt[which], self.debt_until) = (self.spent[which], now + MINUTE_MS);
        if let Some(pace) = self.pace(now, terms, which) {
            self.empty_at[which] = now + pace.burst_ms;
        }
    }
}

impl Settled {
    /// The difference between used and reserved amounts.
    pub fn correction(&self) -> Amounts {
        let reserved = self.reserved.map_or([0.0; AMOUNTS], |reserved| reserved.amounts(1.0));
        let used = match (self.settlement.outcome, self.settlement.usage) {
            (super::Outcome::NotSent, _) => Drawn::default().amounts(0.0),
            (_, Some(usage)) => drawn(usage).amounts(1.0),
            // Vendors count a refused call as a request.
            (super::Outcome::Limited { .. }, None) => Drawn::default().amounts(1.0),
            (_, None) => return [0.0; AMOUNTS],
        };
        std::array::from_fn(|which| used[which] - reserved[which])
    }

    /// The sample for the estimates of later calls, if the call has one. Usage above the permitted completion is cut to it, because a
    /// call cannot write more.
    pub fn learned(&self) -> Option<Drawn> {
        let usage = self.settlement.usage.filter(|_| self.settlement.outcome == super::Outcome::Answered)?;
        let used = drawn(usage);
        Some(Drawn { output: used.output.min(float(self.estimate.output_max)), ..used })
    }
}

fn drawn(usage: crate::usage::Usage) -> Drawn {
    Drawn { input: float(usage.prompt_tokens), output: float(usage.completion_tokens) }
}

#[expect(clippy::cast_precision_loss, reason = "tokens and limits are far below 2^53")]
fn float(number: u64) -> f64 {
    number as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is a count")]
fn whole(number: f64) -> u64 {
    number as u64
}
