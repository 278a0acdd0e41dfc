//! Worker health: vendor back-off, circuit breaker, adaptive concurrency limit.
//!
//! Calls are judged in the order in which they were sent, not in which they end: each call has a [number](Health::granted).
//! Otherwise quick errors would overtake slow answers, and refusals of calls sent before a pause would extend it.

use super::{Outcome, RefusalReason};

/// First pause after a 429 without `Retry-After`. Each later episode doubles it, as long as the vendor accepts no call in between.
pub(super) const PAUSE_MS: f64 = 1_000.0;
/// Longest such pause.
pub(super) const PAUSE_MS_MAX: f64 = 60_000.0;
/// Refusals of an episode of 429s from which on the concurrency limit is reduced, if they are more than half of its calls.
pub(super) const LIMITED_MIN: f64 = 5.0;

/// Length of one of the two spans over which the breaker counts: it judges the last 5 to 10 seconds.
pub(super) const SPAN_MS: f64 = 5_000.0;
/// Failures that the breaker needs to open, at least.
pub(super) const FAILURES_MIN: f64 = 5.0;
/// Share of failed calls above which it opens.
pub(super) const FAILED_SHARE_MAX: f64 = 0.5;
/// How long the breaker stays open at first. Doubled after each failed probe.
pub(super) const OPEN_MS: f64 = 1_000.0;
/// Longest time that it stays open.
pub(super) const OPEN_MS_MAX: f64 = 10_000.0;
/// How long a probe may take before another call may probe.
pub(super) const PROBE_MS_MAX: f64 = 10_000.0;

/// Factor of the concurrency limit after an overload, or when most calls of an episode were answered 429.
pub(super) const AFTER_OVERLOAD: f64 = 0.7;
/// The same factor after the first token became slow.
pub(super) const AFTER_SLOWNESS: f64 = 0.9;
/// Slowness alone reduces the limit to this part of the configured concurrency at most, because prompts differ.
pub(super) const SLOWNESS_FLOOR: f64 = 0.5;
/// The first token is slow if its time exceeds the usual one by this factor and by `SLOW_MORE_MS`.
pub(super) const SLOW_TIMES: f64 = 2.0;
pub(super) const SLOW_MORE_MS: f64 = 500.0;
/// Shortest time between two reductions; before that, calls do not show the effect of the first.
pub(super) const REDUCE_EVERY_MS: f64 = 1_000.0;
/// Calls by which a round of successful calls raises the limit, for the square of the seconds since the last reduction; at least one.
pub(super) const GROWTH: f64 = 0.5;
/// Gains of the moving averages of the time to the first token: the usual one upwards and downwards, and the recent one.
pub(super) const USUAL_UP: f64 = 1.0 / 64.0;
pub(super) const USUAL_DOWN: f64 = 1.0 / 8.0;
pub(super) const OF_LATE: f64 = 1.0 / 8.0;

/// The health of one worker. Times are milliseconds, and 0 means none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Health {
    /// Calls granted so far. A call's number is this count including itself.
    pub granted: f64,
    /// End of the back-off that the vendor asked for.
    pub block_until: f64,
    /// End of the pause after a 429 that gave no time.
    pub pause_until: f64,
    /// Length of that pause.
    pub pause_ms: f64,
    /// Episodes of 429s: the current one, and the one before it.
    pub limited: Limited,
    /// The counts of the breaker.
    pub window: Window,
    /// The breaker is open until then, and half-open afterwards.
    pub open_until: f64,
    /// How long it was open the last time.
    pub open_ms: f64,
    /// When the current probe expires.
    pub probe_until: f64,
    /// Adaptive concurrency limit while it is below the configured one.
    pub bears: f64,
    /// When it was reduced last.
    pub reduced_at: f64,
    /// Usual time to the first token.
    pub usual_ms: f64,
    /// Recent time to the first token.
    pub of_late_ms: f64,
}

/// An episode of 429s begins with the refusal of a call that was sent after the previous episode began. Refusals of calls that
/// were already sent then belong to that previous episode.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limited {
    /// When the episode began.
    pub at: f64,
    /// Number of the last call that was granted before it began.
    pub last: f64,
    /// The same for the previous episode.
    pub last_before: f64,
    /// Its refused calls so far.
    pub refused: f64,
}

/// The counts of the current span and of the previous one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Window {
    /// When the current span began.
    pub since: f64,
    /// Calls sent.
    pub sent: [f64; 2],
    /// Calls that ended.
    pub ended: [f64; 2],
    /// Calls that failed.
    pub failed: [f64; 2],
    /// Consecutive failures since the last accepted call, over any time.
    pub row: f64,
    /// Calls up to this number are not counted: they were sent before the breaker closed.
    pub counts_after: f64,
}

impl Window {
    fn roll(&mut self, now: f64) {
        let age = now - self.since;
        if age >= SPAN_MS * 2.0 {
            let Self { row, counts_after, .. } = *self;
            *self = Self { since: now, row, counts_after, ..Self::default() };
        } else if age >= SPAN_MS {
            self.since += SPAN_MS;
            for counts in [&mut self.sent, &mut self.ended, &mut self.failed] {
                *counts = [0.0, counts[0]];
            }
        }
    }

    /// Whether the breaker must open. Either more than half of the recent calls failed. Or nothing was accepted since at least as
    /// many failures as there are calls in flight, which detects a vendor that fails slowly. Calls in flight count as not failed, or
    /// slow answers would weigh less than quick errors.
    fn is_bad(&self, in_flight: f64) -> bool {
        let sum = |counts: [f64; 2]| counts[0] + counts[1];
        let (failed, calls) = (sum(self.failed), sum(self.sent).max(sum(self.ended)));
        let is_most = failed >= FAILURES_MIN && failed > calls * FAILED_SHARE_MAX;
        is_most || (self.row >= FAILURES_MIN && self.row >= in_flight)
    }
}

/// The end of a call, as far as health is concerned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ending {
    pub(super) outcome: Outcome,
    /// Whether the call is a probe.
    pub(super) probes: bool,
    /// The number of the call; 0 if this meter did not grant it.
    pub(super) number: f64,
    /// Calls in flight, including this one.
    pub(super) in_flight: f64,
    /// The configured concurrency.
    pub(super) configured: f64,
}

impl Health {
    /// Whether the worker may be called at all; otherwise the reason, and for how many milliseconds.
    pub(super) fn look(&self, now: f64) -> Result<(), (RefusalReason, f64)> {
        let blocked_until = self.block_until.max(self.pause_until);
        if blocked_until > now {
            return Err((RefusalReason::Blocked, blocked_until - now));
        }
        if self.open_until > now {
            return Err((RefusalReason::Broken, self.open_until - now));
        }
        if self.open_until > 0.0 && self.probe_until > now {
            return Err((RefusalReason::Broken, OPEN_MS));
        }
        Ok(())
    }

    /// The current concurrency limit.
    pub(super) fn calls_max(&self, configured: f64) -> f64 {
        if self.bears > 0.0 { self.bears.floor().min(configured) } else { configured }
    }

    /// Counts a granted call. If the breaker is half open, the call is the probe.
    pub(super) fn grant(&mut self, now: f64) -> bool {
        self.granted += 1.0;
        self.window.roll(now);
        self.window.sent[0] += 1.0;
        let probes = self.open_until > 0.0;
        if probes {
            self.probe_until = now + PROBE_MS_MAX;
        }
        probes
    }

    /// Records the end of a call.
    pub(super) fn settle(&mut self, now: f64, ending: Ending) {
        // A number above the count is from an earlier meter, whose state was lost.
        let number = if ending.number > self.granted { 0.0 } else { ending.number };
        let ending = Ending { number, ..ending };
        let Ending { outcome, probes, in_flight, configured, .. } = ending;
        match outcome {
            Outcome::Unknown | Outcome::NotSent => {
                if probes {
                    self.probe_until = 0.0;
                }
                return;
            }
            Outcome::Failed | Outcome::Overloaded => self.judge(now, &ending, true),
            Outcome::Answered | Outcome::Refused | Outcome::Limited { .. } => self.judge(now, &ending, false),
        }
        match outcome {
            Outcome::Answered => {
                self.accepted(number);
                self.grow(now, in_flight, configured);
            }
            Outcome::Overloaded => self.reduce(now, in_flight, configured, AFTER_OVERLOAD, 1.0),
            Outcome::Limited { retry_after } => {
                #[expect(clippy::cast_precision_loss, reason = "a wait is at most a day")]
                let asked = retry_after.map(|wait| wait.as_millis() as f64);
                self.limited(now, number, asked, configured);
            }
            Outcome::Refused | Outcome::Failed | Outcome::Unknown | Outcome::NotSent => {}
        }
    }

    fn limited(&mut self, now: f64, number: f64, asked_ms: Option<f64>, configured: f64) {
        let is_new = number > self.limited.last || self.limited.at <= 0.0;
        if is_new {
            let last_before = self.limited.last;
            self.limited = Limited { at: now, last: self.granted, last_before, refused: 0.0 };
        }
        if let Some(wait_ms) = asked_ms {
            self.block_until = self.block_until.max(now + wait_ms);
        } else if is_new {
            self.pause_ms = (self.pause_ms * 2.0).clamp(PAUSE_MS, PAUSE_MS_MAX);
            self.pause_until = now + self.pause_ms;
        }
        if number > self.limited.last_before {
            self.limited.refused += 1.0;
        }
        let calls = self.limited.last - self.limited.last_before;
        if self.limited.refused >= LIMITED_MIN && self.limited.refused * 2.0 > calls {
            // An episode is short: its calls say nothing about how many the vendor bears at a time.
            self.reduce(now, configured, configured, AFTER_OVERLOAD, 1.0);
        }
    }

    /// Records that the vendor accepted a call. One of the current episode shows that the previous pause was long enough, so the
    /// current one is cut to [`PAUSE_MS`].
    fn accepted(&mut self, number: f64) {
        if number > self.limited.last {
            self.pause_ms = 0.0;
        } else if number > self.limited.last_before {
            self.pause_ms = self.pause_ms.min(PAUSE_MS);
            self.pause_until = self.pause_until.min(self.limited.at + PAUSE_MS);
        }
    }

    /// Counts the end of a call, and opens or closes the breaker.
    fn judge(&mut self, now: f64, ending: &Ending, failed: bool) {
        if self.open_until > 0.0 {
            // Only the probe shows whether the vendor has recovered.
            match (ending.probes, failed) {
                (true, true) => {
                    self.open_ms = (self.open_ms * 2.0).min(OPEN_MS_MAX);
                    self.open_until = now + self.open_ms;
                    self.probe_until = 0.0;
                }
                (true, false) => {
                    (self.open_until, self.open_ms, self.probe_until) = (0.0, 0.0, 0.0);
                    self.window = Window { since: now, counts_after: self.granted, ..Window::default() };
                }
                (false, _) => {}
            }
            return;
        }
        if ending.number <= self.window.counts_after {
            return;
        }
        self.window.roll(now);
        self.window.ended[0] += 1.0;
        if !failed {
            self.window.row = 0.0;
            return;
        }
        self.window.failed[0] += 1.0;
        self.window.row += 1.0;
        if self.window.is_bad(ending.in_flight) {
            self.open_ms = OPEN_MS;
            self.open_until = now + self.open_ms;
        }
    }

    /// Raises the limit with each round of successful calls, as long as the calls in flight make use of it. It grows by one call a round
    /// at first, and faster the longer ago the last reduction is: a limit that was reduced too far does not stay low.
    ///
    /// The accelerating growth is that of H-TCP: Leith and Shorten, "H-TCP: TCP for high-speed and long-distance networks", 2004.
    fn grow(&mut self, now: f64, in_flight: f64, configured: f64) {
        if self.bears > 0.0 && in_flight >= self.bears / 2.0 && !self.is_slow() {
            let seconds = (now - self.reduced_at) / 1e3;
            self.bears += (seconds * seconds * GROWTH).max(1.0) / self.bears;
            if self.bears >= configured {
                self.bears = 0.0;
            }
        }
    }

    fn reduce(&mut self, now: f64, in_flight: f64, configured: f64, factor: f64, floor: f64) {
        if now - self.reduced_at < REDUCE_EVERY_MS {
            return;
        }
        let bears = self.calls_max(configured).min(in_flight) * factor;
        let bears = bears.max(floor);
        if bears < self.calls_max(configured) {
            self.bears = bears;
            self.reduced_at = now;
        }
    }

    fn is_slow(&self) -> bool {
        self.of_late_ms > self.usual_ms * SLOW_TIMES + SLOW_MORE_MS
    }

    /// Learns from the time to the first token of an answer.
    pub(super) fn first_token(&mut self, now: f64, ms: f64, in_flight: f64, configured: f64) {
        if self.usual_ms <= 0.0 {
            (self.usual_ms, self.of_late_ms) = (ms, ms);
            return;
        }
        let towards = if ms > self.usual_ms { USUAL_UP } else { USUAL_DOWN };
        self.usual_ms += (ms - self.usual_ms) * towards;
        self.of_late_ms += (ms - self.of_late_ms) * OF_LATE;
        if self.is_slow() {
            let floor = (configured * SLOWNESS_FLOOR).max(1.0);
            self.reduce(now, in_flight, configured, AFTER_SLOWNESS, floor);
        }
    }
}
