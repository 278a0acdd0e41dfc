//! Scripted behaviour of a model: latency and faults. It can be changed at run time.

use serde::{Deserialize, Serialize};

use podium_demo_workers::dice;

use crate::script::{REPLIES_MAX, ScriptedReply};

/// The longest delay in milliseconds.
pub const DELAY_MS_MAX: u64 = 600_000;
/// Most faults of one model.
pub const FAULTS_MAX: usize = 16;
/// Most stamp words per answer.
pub const STAMP_WORDS_MAX: u32 = 1_000;

/// The behaviour of a model. Fields that the JSON form omits mean no delay and no faults.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Behaviour {
    /// Delay from the request to the first token.
    pub first_token_ms: Milliseconds,
    /// The first token also waits for the next multiple of this since the simulator's start, so that calls that began at
    /// different times receive it at the same instant. 0: no extra wait.
    pub first_token_tick_ms: u64,
    /// Delay between tokens.
    pub token_ms: u64,
    /// Number of stamp words after each answer: `call-` and the call's number in the log. So no two calls return the same
    /// text, and a text that was merged from two calls is recognisable.
    pub stamp_words: u32,
    /// Never stream: every answer is one JSON body.
    pub never_streams: bool,
    /// After tool results: answer the question as without tools. By default the answer repeats the results.
    pub answers_after_tools: bool,
    /// Checked in order for every call; the first that applies is used.
    pub faults: Vec<ScriptedFault>,
    /// Checked in order for every call; the first that is for the request is used. Without one, the model answers by itself.
    pub replies: Vec<ScriptedReply>,
}

/// A duration, uniformly distributed between two inclusive bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Milliseconds {
    /// The minimum.
    pub min: u64,
    /// The maximum.
    pub max: u64,
}

impl Milliseconds {
    /// Always the same duration.
    pub const fn fixed(milliseconds: u64) -> Self {
        Self { min: milliseconds, max: milliseconds }
    }
}

/// A fault and when it occurs: in the next calls, and after them at random.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedFault {
    /// The fault.
    pub fault: Fault,
    /// Remaining calls that show it for certain; counts down.
    #[serde(default)]
    pub next_calls: u32,
    /// The probability, 0 to 1, that any other call shows it.
    #[serde(default)]
    pub probability: f64,
}

impl ScriptedFault {
    /// A fault for the next `calls` calls.
    pub fn next_calls(fault: Fault, calls: u32) -> Self {
        Self { fault, next_calls: calls, probability: 0.0 }
    }

    /// A fault at random.
    pub fn with_probability(fault: Fault, probability: f64) -> Self {
        Self { fault, next_calls: 0, probability }
    }
}

/// A fault of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Fault {
    /// 429 with `Retry-After`.
    RateLimit {
        /// Seconds in the header.
        retry_after_s: u64,
    },
    /// 500.
    ServerError,
    /// 503.
    Overloaded,
    /// The request is accepted and never answered.
    Hang,
    /// The connection closes after some chunks of the answer.
    CutStream {
        /// Chunks that are sent before; an unstreamed answer stops in its middle.
        after_chunks: usize,
    },
    /// The first token is delayed.
    SlowFirstToken {
        /// The extra delay.
        delay_ms: u64,
    },
    /// The answer is a well-formed message with a meaningless text.
    Garbage,
    /// 429 without any hint when to retry.
    RateLimitBare,
    /// 429 with a point in time to retry at, by a wrong clock. The answer's `Date` is by the same clock.
    RateLimitDate {
        /// Seconds to wait.
        retry_after_s: u64,
        /// Seconds that the clock is ahead; behind if negative.
        skew_s: i64,
    },
    /// An error status.
    Status {
        /// The status, 400 to 599.
        status: u16,
    },
    /// The answer stops after some chunks, but the connection stays open.
    HangAfter {
        /// Chunks that are sent before, after the headers; an unstreamed answer stops in its middle.
        after_chunks: usize,
    },
    /// The connection is reset after some chunks of the answer.
    Reset {
        /// Chunks that are sent before; an unstreamed answer is reset in its middle.
        after_chunks: usize,
    },
    /// The answer ends regularly but too early, in the middle of a chunk.
    Truncate {
        /// Chunks that are sent before; an unstreamed answer ends in its middle.
        after_chunks: usize,
    },
    /// The JSON is invalid.
    GarbledJson,
    /// The answer is a text of this length.
    Huge {
        /// Its letters, at most [`HUGE_BYTES_MAX`].
        bytes: usize,
    },
    /// The answer is correct, but its content type is `application/octet-stream`.
    WrongType,
    /// A web page with a success status.
    WebPage,
    /// The account has no credit, as each vendor reports it: 429 `insufficient_quota` at OpenAI, 400 at Anthropic, 429 at Gemini.
    Unpaid,
    /// Billing is not set up: 429 `billing_not_active` in the Responses format, 402 in Chat Completions (as vendors other
    /// than OpenAI report it) and at Anthropic, 403 at Gemini.
    BillingOff,
}

/// The longest scripted answer.
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

/// Why a behaviour was rejected.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum BehaviourError {
    /// The simulator has no such model.
    #[error("unknown model `{0}`")]
    UnknownModel(String),
    /// The bounds of a duration are reversed.
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
        /// The field.
        field: &'static str,
        /// The given delay.
        milliseconds: u64,
    },
    /// A probability outside 0 to 1.
    #[error("faults: probability {0} is outside 0 to 1")]
    NotAProbability(f64),
    /// Too many faults.
    #[error("faults: {0} are above {FAULTS_MAX}")]
    TooManyFaults(usize),
    /// A scripted answer is too long.
    #[error("faults: {0} bytes are above {HUGE_BYTES_MAX}")]
    TooHuge(usize),
    /// The status is not an error.
    #[error("faults: status {0} is outside 400 to 599")]
    NotAnError(u16),
    /// Too many scripted replies.
    #[error("replies: {0} are above {REPLIES_MAX}")]
    TooManyReplies(usize),
    /// Too many stamp words.
    #[error("stamp_words: {0} are above {STAMP_WORDS_MAX}")]
    TooManyWords(u32),
}

impl Behaviour {
    /// Rejects values outside the limits.
    pub(crate) fn check(&self) -> Result<(), BehaviourError> {
        let Milliseconds { min, max } = self.first_token_ms;
        if min > max {
            return Err(BehaviourError::EmptyRange { min, max });
        }
        if self.faults.len() > FAULTS_MAX {
            return Err(BehaviourError::TooManyFaults(self.faults.len()));
        }
        if self.replies.len() > REPLIES_MAX {
            return Err(BehaviourError::TooManyReplies(self.replies.len()));
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

    /// The script of the call with this number; counts down the scripted faults.
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
            answers_after_tools: self.answers_after_tools,
            fault,
        }
    }
}

/// The scripted conditions of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CallScript {
    pub(crate) first_token_ms: u64,
    pub(crate) first_token_tick_ms: u64,
    pub(crate) token_ms: u64,
    pub(crate) stamp_words: u32,
    pub(crate) never_streams: bool,
    pub(crate) answers_after_tools: bool,
    pub(crate) fault: Option<Fault>,
}

#[cfg(test)]
mod tests {
    use super::{Behaviour, BehaviourError, Fault, Milliseconds, ScriptedFault};

    #[test]
    fn scripted_calls_show_their_fault() {
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
    fn values_outside_the_limits_are_rejected_by_name() {
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
