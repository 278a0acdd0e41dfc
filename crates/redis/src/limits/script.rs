//! The scripts that run inside Redis, and their arguments. They need Redis 6 or newer.
//!
//! They compute as [`podium_domain::limits`] does, with the constants from there.

use std::cmp::Reverse;
use std::time::Duration;

use podium_domain::limits::{CONSTANTS, Outcome, Settled};
use podium_ports::limiter::CallRequest;
use redis::{Cmd, Script};

use crate::limits::keys::WorkerKeys;

#[cfg(test)]
mod tests;

/// All scripts, with their hashes.
pub(crate) struct Scripts {
    pub(crate) acquire: Script,
    pub(crate) alive: Script,
    pub(crate) keep: Script,
    pub(crate) join: Script,
    pub(crate) settle: Script,
}

/// The answer of the acquiring script to each call.
pub(crate) type Acquired = [u64; 5];

/// The times that scripts get.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) lease_ttl: Duration,
    pub(crate) member_ttl: Duration,
    pub(crate) kept: Duration,
    pub(crate) ask_again_max: Duration,
}

/// An unknown value.
const UNKNOWN: f64 = -1.0;

impl Scripts {
    pub(crate) fn new() -> Self {
        Self::with_clock(include_str!("script/clock.lua"))
    }

    fn with_clock(clock: &str) -> Self {
        let (calls, meter) = (include_str!("script/calls.lua"), include_str!("script/meter.lua"));
        let script = |body: &str| Script::new(&with_constants(&format!("{clock}\n{calls}\n{meter}\n{body}")));
        Self {
            acquire: script(include_str!("script/acquire.lua")),
            alive: Script::new(&format!("{clock}\n{}", include_str!("script/alive.lua"))),
            keep: Script::new(&format!("{clock}\n{}", include_str!("script/keep.lua"))),
            join: Script::new(&format!("{clock}\n{}", include_str!("script/join.lua"))),
            settle: script(include_str!("script/settle.lua")),
        }
    }

    /// The keeping script as a command for a pipeline. Redis rejects it with `NOSCRIPT` until the script is loaded.
    pub(crate) fn keep_command(&self, calls: &str, times: Times, held: &[String]) -> Cmd {
        let Times { lease_ttl, kept, .. } = times;
        let mut command = redis::cmd("EVALSHA");
        command.arg(self.keep.get_hash()).arg(1).arg(calls);
        command.arg(milliseconds(lease_ttl)).arg(milliseconds(kept)).arg(held);
        command
    }

    /// The script that records that a process is alive, as a command for a pipeline. It must be loaded, like the keeping script.
    pub(crate) fn alive_command(&self, key: &str, ttl: Duration, id: &str) -> Cmd {
        let mut command = redis::cmd("EVALSHA");
        command.arg(self.alive.get_hash()).arg(1).arg(key).arg(milliseconds(ttl)).arg(id);
        command
    }

    /// The joining script as a command for a pipeline. It must be loaded, like the keeping script.
    pub(crate) fn join_command(&self, key: &str, ttl: Duration, id: &str) -> Cmd {
        let mut command = redis::cmd("EVALSHA");
        command.arg(self.join.get_hash()).arg(1).arg(key).arg(milliseconds(ttl)).arg(id);
        command
    }

    /// The acquiring script as a command, for calls of one worker. It must be loaded, like the keeping script.
    pub(crate) fn acquire_command(&self, keys: &WorkerKeys, times: Times, asked: &[AskedCall]) -> Cmd {
        let Times { lease_ttl, kept, ask_again_max, .. } = times;
        let mut numbers = Packed::default();
        for time in [lease_ttl, kept, ask_again_max] {
            numbers.number(float(milliseconds(time)));
        }
        keys.limits().for_each(|limit| numbers.number(limit));
        let mut command = redis::cmd("EVALSHA");
        let names = keys.acquire_keys();
        command.arg(self.acquire.get_hash()).arg(names.len()).arg(names).arg(numbers.bytes);
        for AskedCall(packed) in asked {
            command.arg(&packed.bytes);
        }
        command
    }

    /// The settling script as a command for a pipeline: for calls of one worker, each with the id of its lease.
    pub(crate) fn settle_command(&self, keys: &WorkerKeys, times: Times, ended: &[(String, Settled)]) -> Cmd {
        let mut command = redis::cmd("EVALSHA");
        let names = keys.settle_keys();
        command.arg(self.settle.get_hash()).arg(names.len()).arg(names);
        let mut numbers = Packed::default();
        for time in [times.lease_ttl, times.kept] {
            numbers.number(float(milliseconds(time)));
        }
        keys.limits().for_each(|limit| numbers.number(limit));
        command.arg(numbers.bytes);
        for (id, settled) in ended {
            command.arg(packed_settlement(id, settled).bytes);
        }
        command
    }
}

/// Numbers and texts as the scripts unpack them: doubles, and texts that end with a zero byte, which no name contains.
#[derive(Debug, Default)]
struct Packed {
    bytes: Vec<u8>,
}

impl Packed {
    fn number(&mut self, number: f64) {
        self.bytes.extend(number.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.bytes.extend(text.bytes().filter(|byte| *byte != 0).chain([0]));
    }
}

/// A call as the acquiring script gets it.
#[derive(Debug)]
pub(crate) struct AskedCall(Packed);

impl AskedCall {
    /// `id` is the id of its lease.
    pub(crate) fn new(id: &str, request: &CallRequest<'_>) -> Self {
        let mut packed = Packed::default();
        packed.number(tier_number(request));
        packed.number(float(request.estimate.input));
        packed.number(float(request.estimate.output_max));
        packed.text(id);
        packed.text(&request.who());
        packed.text(request.tenant.as_str());
        Self(packed)
    }
}

fn tier_number(request: &CallRequest<'_>) -> f64 {
    match request.tier {
        podium_domain::policy::Tier::Mini => 1.0,
        podium_domain::policy::Tier::Ultra => 2.0,
    }
}

fn packed_settlement(id: &str, settled: &Settled) -> Packed {
    let Settled { estimate, granted, settlement, .. } = settled;
    let learned = settled.learned();
    let known = |value: Option<u64>| value.map_or(UNKNOWN, float);
    let (outcome, retry_after) = match settlement.outcome {
        Outcome::Unknown => (0.0, None),
        Outcome::NotSent => (1.0, None),
        Outcome::Answered => (2.0, None),
        Outcome::Refused => (3.0, None),
        Outcome::Limited { retry_after } => (4.0, retry_after),
        Outcome::Overloaded => (5.0, None),
        Outcome::Failed => (6.0, None),
    };
    let mut packed = Packed::default();
    packed.number(outcome);
    packed.number(f64::from(u8::from(granted.is_some_and(|granted| granted.probes))));
    packed.number(granted.map_or(0.0, |granted| float(granted.number)));
    packed.number(known(retry_after.map(milliseconds)));
    packed.number(known(settlement.first_token.map(milliseconds)));
    settled.correction().into_iter().for_each(|amount| packed.number(amount));
    packed.number(float(estimate.input));
    packed.number(learned.map_or(UNKNOWN, |used| used.input));
    packed.number(learned.map_or(UNKNOWN, |used| used.output));
    for allowance in settlement.quota.each() {
        packed.number(known(allowance.limit));
        packed.number(known(allowance.remaining));
    }
    packed.text(id);
    packed
}

/// Replaces the names of constants by their values, longer names first: a name may be the beginning of another one.
fn with_constants(script: &str) -> String {
    let mut constants = CONSTANTS;
    constants.sort_unstable_by_key(|(name, _)| Reverse(name.len()));
    constants.iter().fold(script.to_owned(), |script, (name, value)| {
        script.replace(&format!("C.{name}"), &value.to_string())
    })
}

#[expect(clippy::cast_precision_loss, reason = "times, tokens and limits are far below 2^53")]
fn float(number: u64) -> f64 {
    number as f64
}

pub(crate) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
