//! How a worker fares: whether its vendor asked to be left alone, whether it fails, how many calls at once it bears.

use super::{Outcome, Why};

/// How long a vendor that says 429 and nothing else is left alone; doubled each time in a row.
pub(super) const PAUSE_MS: f64 = 1_000.0;
/// Longest such pause.
pub(super) const PAUSE_MS_MAX: f64 = 60_000.0;

/// Failures in a row that open the breaker.
pub(super) const FAILURES_MAX: f64 = 5.0;
/// How long it stays open at first; doubled each time that a probe fails.
pub(super) const OPEN_MS: f64 = 1_000.0;
/// Longest time.
pub(super) const OPEN_MS_MAX: f64 = 30_000.0;
/// How long the outcome of a probe is waited for before another call may be one.
pub(super) const PROBE_MS_MAX: f64 = 60_000.0;

/// What is left of the calls at once after an overload.
pub(super) const AFTER_OVERLOAD: f64 = 0.7;
/// What is left of them after the first token got slow.
pub(super) const AFTER_SLOWNESS: f64 = 0.9;
/// Slowness alone takes no more than this part of what is configured: prompts differ.
pub(super) const SLOWNESS_FLOOR: f64 = 0.5;
/// The first token is slow when it takes so many times as long as usual, and so much more.
pub(super) const SLOW_TIMES: f64 = 2.0;
pub(super) const SLOW_MORE_MS: f64 = 500.0;
/// Shortest time between two reductions: what is under way shows the first one only then.
pub(super) const REDUCE_EVERY_MS: f64 = 1_000.0;
/// How quickly what is usual follows what is now: as a part of the difference, upwards, downwards, and of late.
pub(super) const USUAL_UP: f64 = 1.0 / 64.0;
pub(super) const USUAL_DOWN: f64 = 1.0 / 8.0;
pub(super) const OF_LATE: f64 = 1.0 / 8.0;

/// Kept for each worker, not for accounts. 0 is nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Health {
    /// The vendor wants to be left alone until then.
    pub block_until: f64,
    /// The last pause after a refusal that said no time, while they come in a row.
    pub pause_ms: f64,
    /// Failures in a row.
    pub failures: f64,
    /// The breaker is open until then, and half open after.
    pub open_until: f64,
    /// For how long it was opened last.
    pub open_ms: f64,
    /// A probe is under way until then.
    pub probe_until: f64,
    /// Calls at once that it bears, while that is less than what is configured.
    pub bears: f64,
    /// When that was reduced last.
    pub reduced_at: f64,
    /// Milliseconds to the first token, usually.
    pub usual_ms: f64,
    /// The same of late.
    pub of_late_ms: f64,
}

impl Health {
    /// Whether it may be called at all, else why not and for how long.
    pub(super) fn look(&self, now: f64) -> Result<(), (Why, f64)> {
        if self.block_until > now {
            return Err((Why::Blocked, self.block_until - now));
        }
        if self.open_until > now {
            return Err((Why::Broken, self.open_until - now));
        }
        if self.open_until > 0.0 && self.probe_until > now {
            return Err((Why::Broken, OPEN_MS));
        }
        Ok(())
    }

    /// Most calls at once.
    pub(super) fn calls_max(&self, configured: f64) -> f64 {
        if self.bears > 0.0 { self.bears.floor().min(configured) } else { configured }
    }

    /// A call was granted. If the breaker is half open, this is the probe.
    pub(super) fn grant(&mut self, now: f64) -> bool {
        let probes = self.open_until > 0.0;
        if probes {
            self.probe_until = now + PROBE_MS_MAX;
        }
        probes
    }

    /// A call ended, one of `in_flight`. `probes` if it was granted as a probe.
    pub(super) fn settle(
        &mut self,
        now: f64,
        outcome: Outcome,
        probes: bool,
        in_flight: f64,
        configured: f64,
    ) {
        match outcome {
            Outcome::Unknown | Outcome::NotSent => {
                if probes {
                    self.probe_until = 0.0;
                }
                return;
            }
            Outcome::Failed | Outcome::Overloaded => self.failed(now, probes),
            Outcome::Answered | Outcome::Refused | Outcome::Limited { .. } => self.is_there(probes),
        }
        match outcome {
            Outcome::Answered => {
                self.pause_ms = 0.0;
                self.grow(in_flight, configured);
            }
            Outcome::Overloaded => self.reduce(now, in_flight, configured, AFTER_OVERLOAD, 1.0),
            Outcome::Limited { retry_after } => {
                #[expect(clippy::cast_precision_loss, reason = "a wait is at most a day")]
                let asked = retry_after.map(|wait| wait.as_millis() as f64);
                self.limited(now, asked);
            }
            Outcome::Refused | Outcome::Failed | Outcome::Unknown | Outcome::NotSent => {}
        }
    }

    fn limited(&mut self, now: f64, asked_ms: Option<f64>) {
        let wait_ms = asked_ms.unwrap_or_else(|| {
            self.pause_ms = (self.pause_ms * 2.0).clamp(PAUSE_MS, PAUSE_MS_MAX);
            self.pause_ms
        });
        self.block_until = self.block_until.max(now + wait_ms);
    }

    fn is_there(&mut self, probes: bool) {
        if self.open_until <= 0.0 {
            self.failures = 0.0;
        } else if probes {
            (self.failures, self.open_until, self.open_ms, self.probe_until) = (0.0, 0.0, 0.0, 0.0);
        }
    }

    fn failed(&mut self, now: f64, probes: bool) {
        if self.open_until <= 0.0 {
            self.failures += 1.0;
            if self.failures >= FAILURES_MAX {
                self.open_ms = OPEN_MS;
                self.open_until = now + self.open_ms;
            }
        } else if probes {
            // What began before the breaker opened says nothing new.
            self.open_ms = (self.open_ms * 2.0).min(OPEN_MS_MAX);
            self.open_until = now + self.open_ms;
            self.probe_until = 0.0;
        }
    }

    /// One more for each round of calls that went well, as long as so many are made that it matters.
    fn grow(&mut self, in_flight: f64, configured: f64) {
        if self.bears > 0.0 && in_flight >= self.bears / 2.0 && !self.is_slow() {
            self.bears += 1.0 / self.bears;
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

    /// An answer's first token took so long.
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
