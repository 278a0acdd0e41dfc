//! What a model does beside answering: how long it takes and which faults it shows. Changed at run time, per model.

use serde::{Deserialize, Serialize};

use crate::dice;

/// The longest delay that can be asked for.
pub const DELAY_MS_MAX: u64 = 600_000;
/// Faults of one model.
pub const FAULTS_MAX: usize = 16;
/// Words that can be asked for to tell answers apart.
pub const STAMP_WORDS_MAX: u32 = 1_000;

/// How a model behaves. What is left out of the JSON form is instant and faultless.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Behaviour {
    /// From the request to the first token.
    pub first_token_ms: Milliseconds,
    /// The first token waits on for the next multiple of so many milliseconds since the simulator's start, so that calls which
    /// began at different times get it at the same instant. 0: it waits for nothing.
    pub first_token_tick_ms: u64,
    /// Between tokens.
    pub token_ms: u64,
    /// So many words follow each answer, all of them `call-` and the call's number in the log: no two calls' texts are then
    /// the same, as those of real models are not, and a text that was put together from two of them shows it.
    pub stamp_words: u32,
    /// Every answer comes in one piece, whatever was asked for.
    pub never_streams: bool,
    /// Looked at in order for every call; the first that occurs is shown.
    pub faults: Vec<ScriptedFault>,
}

/// A duration drawn evenly between two bounds, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Milliseconds {
    /// The shortest.
    pub min: u64,
    /// The longest.
    pub max: u64,
}

impl Milliseconds {
    /// Always the same duration.
    pub const fn fixed(milliseconds: u64) -> Self {
        Self { min: milliseconds, max: milliseconds }
    }
}

/// A fault and when it occurs: for the next calls, and after them by chance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedFault {
    /// What goes wrong.
    pub fault: Fault,
    /// The number of calls that still show it for certain; counts down.
    #[serde(default)]
    pub next_calls: u32,
    /// The chance, 0 to 1, that any other call shows it.
    #[serde(default)]
    pub probability: f64,
}

impl ScriptedFault {
    /// The fault for the next `calls` calls.
    pub fn next_calls(fault: Fault, calls: u32) -> Self {
        Self { fault, next_calls: calls, probability: 0.0 }
    }

    /// The fault by chance.
    pub fn with_probability(fault: Fault, probability: f64) -> Self {
        Self { fault, next_calls: 0, probability }
    }
}

/// What can go wrong with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Fault {
    /// 429 with `Retry-After`.
    RateLimit {
        /// Seconds to wait, as the header says.
        retry_after_s: u64,
    },
    /// 500.
    ServerError,
    /// 503.
    Overloaded,
    /// The request is taken and never answered.
    Hang,
    /// The connection closes after some chunks of the answer.
    CutStream {
        /// Chunks that are still sent; a plain answer stops in its middle.
        after_chunks: usize,
    },
    /// The first token comes late.
    SlowFirstToken {
        /// The extra delay.
        delay_ms: u64,
    },
    /// The answer is well-formed as a message, and nonsense as a text.
    Garbage,
    /// 429, and not a word about when to come back.
    RateLimitBare,
    /// 429 that says when to come back as a point in time, by a clock that goes wrong. The answer's `Date` is by the same clock.
    RateLimitDate {
        /// Seconds to wait.
        retry_after_s: u64,
        /// Seconds that the clock is ahead, or behind if negative.
        skew_s: i64,
    },
    /// Another status than that of success.
    Status {
        /// Which: 400 to 599.
        status: u16,
    },
    /// The answer stops after some chunks, and the connection stays.
    HangAfter {
        /// Chunks that are still sent, after the head of the answer; a plain answer stops in its middle.
        after_chunks: usize,
    },
    /// The connection is reset after some chunks of the answer.
    Reset {
        /// Chunks that are still sent; a plain answer is reset in its middle.
        after_chunks: usize,
    },
    /// The answer ends properly, and too early: in the middle of the chunk after these.
    Truncate {
        /// Chunks that are still sent; a plain answer ends in its middle.
        after_chunks: usize,
    },
    /// What should be JSON is none.
    GarbledJson,
    /// The answer is a text of so many letters.
    Huge {
        /// How many, at most [`HUGE_BYTES_MAX`].
        bytes: usize,
    },
    /// The answer is right, and its content type is `application/octet-stream`.
    WrongType,
    /// A web page, with a status of success.
    WebPage,
    /// The account has no money left, in each vendor's own words: 429 `insufficient_quota` at OpenAI, 400 at Anthropic, 429 at
    /// Gemini.
    Unpaid,
    /// Nobody pays for the account at all: 429 `billing_not_active` in the Responses format, 402 in Chat Completions (as others
    /// than OpenAI say it) and at Anthropic, 403 at Gemini.
    BillingOff,
}

/// The longest answer that can be asked for.
pub const HUGE_BYTES_MAX: usize = 64 << 20;

impl Fault {
    /// The name in the JSON form.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::RateLimit { .. } => "rate_limit",
            Self::ServerError => "server_error",
            Self::Overloaded => "overloaded",
            Self::Hang => "hang",
            Self::CutStream { .. } => "cut_stream",
            Self::SlowFirstToken { .. } => "slow_first_token",
            Self::Garbage => "garbage",
            Self::RateLimitBare => "rate_limit_bare",
            Self::RateLimitDate { .. } => "rate_limit_date",
            Self::Status { .. } => "status",
            Self::HangAfter { .. } => "hang_after",
            Self::Reset { .. } => "reset",
            Self::Truncate { .. } => "truncate",
            Self::GarbledJson => "garbled_json",
            Self::Huge { .. } => "huge",
            Self::WrongType => "wrong_type",
            Self::WebPage => "web_page",
            Self::Unpaid => "unpaid",
            Self::BillingOff => "billing_off",
        }
    }
}

/// Why a behaviour was refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum BehaviourError {
    /// The simulator has no such model.
    #[error("unknown model `{0}`")]
    UnknownModel(String),
    /// The bounds of a duration are the wrong way round.
    #[error("first_token_ms: min {min} is above max {max}")]
    EmptyRange {
        /// The lower bound.
        min: u64,
        /// The upper bound.
        max: u64,
    },
    /// A delay is too long.
    #[error("{field}: {milliseconds} ms is above {DELAY_MS_MAX} ms")]
    DelayTooLong {
        /// Where.
        field: &'static str,
        /// The delay asked for.
        milliseconds: u64,
    },
    /// A probability outside 0 to 1.
    #[error("faults: probability {0} is outside 0 to 1")]
    NotAProbability(f64),
    /// Too many faults.
    #[error("faults: {0} are above {FAULTS_MAX}")]
    TooManyFaults(usize),
    /// An answer is too long.
    #[error("faults: {0} bytes are above {HUGE_BYTES_MAX}")]
    TooHuge(usize),
    /// A status that is no error.
    #[error("faults: status {0} is outside 400 to 599")]
    NotAnError(u16),
    /// Too many words behind an answer.
    #[error("stamp_words: {0} are above {STAMP_WORDS_MAX}")]
    TooManyWords(u32),
}

impl Behaviour {
    /// Refuses what is outside the limits.
    pub(crate) fn check(&self) -> Result<(), BehaviourError> {
        let Milliseconds { min, max } = self.first_token_ms;
        if min > max {
            return Err(BehaviourError::EmptyRange { min, max });
        }
        if self.faults.len() > FAULTS_MAX {
            return Err(BehaviourError::TooManyFaults(self.faults.len()));
        }
        if self.stamp_words > STAMP_WORDS_MAX {
            return Err(BehaviourError::TooManyWords(self.stamp_words));
        }
        let mut delays = vec![
            ("first_token_ms", max),
            ("first_token_tick_ms", self.first_token_tick_ms),
            ("token_ms", self.token_ms),
        ];
        for scripted in &self.faults {
            if !(0.0..=1.0).contains(&scripted.probability) {
                return Err(BehaviourError::NotAProbability(scripted.probability));
            }
            match scripted.fault {
                Fault::SlowFirstToken { delay_ms } => delays.push(("faults: delay_ms", delay_ms)),
                Fault::RateLimit { retry_after_s } => {
                    delays.push(("faults: retry_after_s", retry_after_s.saturating_mul(1_000)));
                }
                Fault::RateLimitDate { retry_after_s, skew_s } => {
                    let furthest = retry_after_s.max(skew_s.unsigned_abs());
                    delays.push(("faults: retry_after_s, skew_s", furthest.saturating_mul(1_000)));
                }
                Fault::Huge { bytes } if bytes > HUGE_BYTES_MAX => {
                    return Err(BehaviourError::TooHuge(bytes));
                }
                Fault::Status { status } if !(400..600).contains(&status) => {
                    return Err(BehaviourError::NotAnError(status));
                }
                _ => {}
            }
        }
        match delays.into_iter().find(|(_, milliseconds)| *milliseconds > DELAY_MS_MAX) {
            Some((field, milliseconds)) => Err(BehaviourError::DelayTooLong { field, milliseconds }),
            None => Ok(()),
        }
    }

    /// What the call with this sequence number meets, and counts it.
    pub(crate) fn next_call(&mut self, seed: u64, sequence: u64) -> CallScript {
        let sequence = sequence.to_string();
        let mut fault = None;
        for (index, scripted) in self.faults.iter_mut().enumerate() {
            let certain = scripted.next_calls > 0;
            scripted.next_calls = scripted.next_calls.saturating_sub(1);
            let draw = dice::draw(seed, &["fault", &sequence, &index.to_string()]);
            if certain || dice::happens(draw, scripted.probability) {
                fault = Some(scripted.fault);
                break;
            }
        }
        let draw = dice::draw(seed, &["latency", &sequence]);
        let extra = if let Some(Fault::SlowFirstToken { delay_ms }) = fault { delay_ms } else { 0 };
        let first_token_ms = dice::within(draw, self.first_token_ms.min, self.first_token_ms.max) + extra;
        CallScript {
            first_token_ms,
            first_token_tick_ms: self.first_token_tick_ms,
            token_ms: self.token_ms,
            stamp_words: self.stamp_words,
            never_streams: self.never_streams,
            fault,
        }
    }
}

/// What one call meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CallScript {
    pub(crate) first_token_ms: u64,
    pub(crate) first_token_tick_ms: u64,
    pub(crate) token_ms: u64,
    pub(crate) stamp_words: u32,
    pub(crate) never_streams: bool,
    pub(crate) fault: Option<Fault>,
}

#[cfg(test)]
mod tests {
    use super::{Behaviour, BehaviourError, Fault, Milliseconds, ScriptedFault};

    #[test]
    fn the_next_calls_show_their_fault_and_then_no_more() {
        let faults =
            vec![ScriptedFault::next_calls(Fault::ServerError, 2), ScriptedFault::next_calls(Fault::Hang, 1)];
        let mut behaviour = Behaviour { faults, ..Behaviour::default() };
        let shown: Vec<_> = (0..4).map(|sequence| behaviour.next_call(7, sequence).fault).collect();
        assert_eq!(shown, [Some(Fault::ServerError), Some(Fault::ServerError), Some(Fault::Hang), None]);
    }

    #[test]
    fn chance_repeats_with_the_seed() {
        let faults = vec![ScriptedFault::with_probability(Fault::ServerError, 0.3)];
        let first_token_ms = Milliseconds { min: 10, max: 20 };
        let behaviour = Behaviour { faults, first_token_ms, token_ms: 1, ..Behaviour::default() };
        let run =
            |seed| (0..200).map(|sequence| behaviour.clone().next_call(seed, sequence)).collect::<Vec<_>>();
        assert_eq!(run(7), run(7));
        assert_ne!(run(7), run(8));
        let count = run(7).iter().filter(|script| script.fault.is_some()).count();
        assert!((40..80).contains(&count), "{count} of 200");
        assert!(run(7).iter().all(|script| (10..=20).contains(&script.first_token_ms)));
    }

    #[test]
    fn the_json_form_is_as_documented() {
        let json = r#"{"first_token_ms": {"min": 100, "max": 200}, "token_ms": 5,
            "faults": [{"fault": {"kind": "rate_limit", "retry_after_s": 2}, "next_calls": 3, "probability": 0.1}]}"#;
        let behaviour: Behaviour = serde_json::from_str(json).expect("valid");
        assert_eq!(behaviour.faults[0].fault, Fault::RateLimit { retry_after_s: 2 });
        assert!(serde_json::from_str::<Behaviour>(r#"{"latency": 5}"#).is_err());
    }

    #[test]
    fn what_is_outside_the_limits_is_refused_by_name() {
        let range = Behaviour { first_token_ms: Milliseconds { min: 2, max: 1 }, ..Behaviour::default() };
        assert_eq!(range.check(), Err(BehaviourError::EmptyRange { min: 2, max: 1 }));
        let slow = Behaviour { token_ms: 600_001, ..Behaviour::default() };
        assert_eq!(slow.check().expect_err("too long").to_string(), "token_ms: 600001 ms is above 600000 ms");
        let wordy = Behaviour { stamp_words: 1_001, ..Behaviour::default() };
        assert_eq!(wordy.check().expect_err("too many").to_string(), "stamp_words: 1001 are above 1000");
        let faults = vec![ScriptedFault::with_probability(Fault::Hang, f64::NAN)];
        assert!(Behaviour { faults, ..Behaviour::default() }.check().is_err());
    }
}
