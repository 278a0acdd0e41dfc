//! The scripts that run inside Redis, and their arguments. They need Redis 5 or newer.
//!
//! They do the sums of [`podium_domain::limits`], whose constants they get from there.

use std::fmt::Write as _;
use std::time::Duration;

use podium_domain::limits::{CONSTANTS, Outcome, Settled};
use podium_ports::limiter::CallWish;
use redis::{Cmd, Script};

use crate::place::Place;

#[cfg(test)]
mod tests;

/// All scripts, with their hashes.
pub(crate) struct Scripts {
    pub(crate) acquire: Script,
    pub(crate) keep: Script,
    pub(crate) settle: Script,
}

/// What the acquiring script answers.
pub(crate) type Acquired = (u8, u64, u64, u64);

/// Times of all scripts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) lease_ttl: Duration,
    pub(crate) kept: Duration,
    pub(crate) ask_again_max: Duration,
}

/// What is not known.
const UNKNOWN: &str = "-1";

impl Scripts {
    pub(crate) fn new() -> Self {
        Self::with_clock(include_str!("script/clock.lua"))
    }

    fn with_clock(clock: &str) -> Self {
        let constants = constants();
        let meter = include_str!("script/meter.lua");
        let script = |body: &str| Script::new(&format!("{clock}\n{constants}\n{meter}\n{body}"));
        Self {
            acquire: script(include_str!("script/acquire.lua")),
            keep: Script::new(&format!("{clock}\n{}", include_str!("script/keep.lua"))),
            settle: script(include_str!("script/settle.lua")),
        }
    }

    /// The keeping script as a command, for a pipeline. Redis refuses it with `NOSCRIPT` until the script is loaded.
    pub(crate) fn keep_command(&self, key: &str, ttl: Duration, held: &[String]) -> Cmd {
        let mut command = redis::cmd("EVALSHA");
        command.arg(self.keep.get_hash()).arg(1).arg(key).arg(milliseconds(ttl)).arg(held);
        command
    }

    /// The settling script as a command, for a pipeline: of calls of one worker, each with the id of its lease.
    pub(crate) fn settle_command(&self, place: &Place, kept: Duration, ended: &[(String, Settled)]) -> Cmd {
        let mut command = redis::cmd("EVALSHA");
        let keys = place.keys(1);
        command.arg(self.settle.get_hash()).arg(keys.len()).arg(keys);
        command.arg(milliseconds(kept)).arg(place.limits());
        for (id, settled) in ended {
            command.arg(id).arg(settled_arguments(settled));
        }
        command
    }
}

/// What the acquiring script is told of a call. `id` is that of its lease.
pub(crate) fn acquire_arguments(
    place: &Place,
    times: Times,
    id: &str,
    wish: &CallWish<'_>,
) -> (Vec<String>, Vec<String>) {
    let tier = tier_number(wish);
    let mut arguments = vec![
        id.to_owned(),
        milliseconds(times.lease_ttl).to_string(),
        milliseconds(times.kept).to_string(),
        milliseconds(times.ask_again_max).to_string(),
        wish.who(),
        tier.to_string(),
        wish.tenant.to_string(),
        wish.estimate.input.to_string(),
        wish.estimate.output_max.to_string(),
    ];
    arguments.extend(place.limits());
    (place.keys(tier), arguments)
}

fn tier_number(wish: &CallWish<'_>) -> u8 {
    match wish.tier {
        podium_domain::policy::Tier::Mini => 1,
        podium_domain::policy::Tier::Ultra => 2,
    }
}

fn settled_arguments(settled: &Settled) -> Vec<String> {
    let Settled { estimate, probes, settlement, .. } = settled;
    let known = |value: Option<u64>| value.map_or_else(|| UNKNOWN.to_owned(), |value| value.to_string());
    let (outcome, retry_after) = match settlement.outcome {
        Outcome::Unknown => ("unknown", None),
        Outcome::NotSent => ("not_sent", None),
        Outcome::Answered => ("answered", None),
        Outcome::Refused => ("refused", None),
        Outcome::Limited { retry_after } => ("limited", retry_after),
        Outcome::Overloaded => ("overloaded", None),
        Outcome::Failed => ("failed", None),
    };
    let mut arguments = vec![
        outcome.to_owned(),
        u8::from(*probes).to_string(),
        known(retry_after.map(milliseconds)),
        known(settlement.first_token.map(milliseconds)),
    ];
    arguments.extend(settled.correction().map(|amount| amount.to_string()));
    arguments.extend([estimate.input.to_string(), estimate.output_max.to_string()]);
    let usage = settlement.usage;
    arguments.extend([
        known(usage.map(|usage| usage.prompt_tokens)),
        known(usage.map(|usage| usage.completion_tokens)),
    ]);
    for allowance in settlement.quota.each() {
        arguments.extend([known(allowance.limit), known(allowance.remaining)]);
    }
    arguments
}

fn constants() -> String {
    let mut lua = "local C = {".to_owned();
    for (name, value) in CONSTANTS {
        // Writing to a string cannot fail.
        let _ = write!(lua, " {name} = {value},");
    }
    lua + " }"
}

pub(crate) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
