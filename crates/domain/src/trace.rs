//! The trace of a run, after [W3C Trace Context](https://www.w3.org/TR/trace-context/).
//!
//! Every id follows from ids that a run has anyway, so no process has to pass a context on to the next one: the trace is that of the
//! client's `traceparent`, or has the run's id, and the span of an attempt has an id from its claim.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ids::{ClaimId, RunId};
use crate::run::{Run, StepRef};
use crate::split_mix::split_mix;

/// The id of a trace; never zero. Displayed as 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceId(u128);

/// The id of a span in a trace; never zero. Displayed as 16 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SpanId(u64);

/// A span of the client's, and whether the client keeps its trace: the header `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TraceParent {
    /// The trace.
    pub trace: TraceId,
    /// The span.
    pub span: SpanId,
    /// Whether the trace is recorded.
    pub is_sampled: bool,
}

/// The name of the header with the client's span, in HTTP and in gRPC's metadata.
pub const TRACE_PARENT: &str = "traceparent";

/// The name of the header with the trace of a run in responses, in HTTP and in gRPC's metadata.
pub const TRACE_ID: &str = "x-podium-trace-id";

/// A text is no `traceparent` header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a traceparent is VERSION-TRACE-SPAN-FLAGS with 2, 32, 16 and 2 lower-case hexadecimal digits, and no id is zero"
)]
pub struct InvalidTraceParent;

impl TraceId {
    /// The id as 16 bytes, the most significant first.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }
}

impl From<RunId> for TraceId {
    fn from(run: RunId) -> Self {
        Self(run.as_uuid().as_u128())
    }
}

impl SpanId {
    /// The id as 8 bytes, the most significant first.
    pub const fn to_bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }

    /// An id that follows from this one and a number.
    #[must_use]
    pub fn derived(self, number: u64) -> Self {
        Self(split_mix(self.0, number).max(1))
    }
}

impl From<RunId> for SpanId {
    /// The span of the whole run.
    fn from(run: RunId) -> Self {
        Self(run.as_uuid().as_u64_pair().1.max(1))
    }
}

impl From<ClaimId> for SpanId {
    /// The span of the attempt with the claim.
    fn from(claim: ClaimId) -> Self {
        Self(claim.as_uuid().as_u64_pair().1.max(1))
    }
}

impl Run {
    /// The trace that the run belongs to.
    pub fn trace_id(&self) -> TraceId {
        self.spec().request.trace.map_or_else(|| self.id().into(), |parent| parent.trace)
    }

    /// The span of a step.
    pub fn span_of_step(&self, step: StepRef) -> SpanId {
        let number = (u64::from(step.round) << 16) + u64::from(step.step.get());
        SpanId::from(self.id()).derived(number + 1)
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{}-{}-{:02x}", self.trace, self.span, u8::from(self.is_sampled))
    }
}

impl From<TraceParent> for String {
    fn from(parent: TraceParent) -> Self {
        parent.to_string()
    }
}

impl TryFrom<String> for TraceParent {
    type Error = InvalidTraceParent;

    fn try_from(text: String) -> Result<Self, InvalidTraceParent> {
        text.parse()
    }
}

impl FromStr for TraceParent {
    type Err = InvalidTraceParent;

    /// Reads the fields of version 00. A later version may have more fields, which are ignored, as the specification asks.
    fn from_str(text: &str) -> Result<Self, InvalidTraceParent> {
        let mut fields = text.split('-');
        let mut field = |digits: usize| {
            let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
            let valid = fields.next().filter(|field| field.len() == digits && field.bytes().all(is_digit));
            u128::from_str_radix(valid.ok_or(InvalidTraceParent)?, 16).map_err(|_| InvalidTraceParent)
        };
        let (version, trace, span, flags) = (field(2)?, field(32)?, field(16)?, field(2)?);
        let has_more = fields.next().is_some();
        let span = u64::try_from(span).map_err(|_| InvalidTraceParent)?;
        if version == 0xff || (version == 0 && has_more) || trace == 0 || span == 0 {
            return Err(InvalidTraceParent);
        }
        Ok(Self { trace: TraceId(trace), span: SpanId(span), is_sampled: flags & 1 == 1 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_traceparent_is_read_and_written() {
        let parent: TraceParent = EXAMPLE.parse().unwrap();
        assert_eq!((parent.is_sampled, parent.to_string().as_str()), (true, EXAMPLE));
        let later: TraceParent =
            "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-02-more".parse().unwrap();
        assert_eq!((later.trace, later.is_sampled), (parent.trace, false));
        let stored = serde_json::to_string(&parent).unwrap();
        assert_eq!(serde_json::from_str::<TraceParent>(&stored).unwrap(), parent);
    }

    #[test]
    fn anything_else_is_refused() {
        for wrong in [
            "",
            "00",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
        ] {
            assert_eq!(wrong.parse::<TraceParent>(), Err(InvalidTraceParent), "{wrong}");
        }
    }

    #[test]
    fn spans_of_a_run_have_ids_of_their_own() {
        let run = SpanId::from(RunId::new(uuid::Uuid::from_u128(7)));
        let ids: std::collections::BTreeSet<_> = (1..=1000).map(|number| run.derived(number).0).collect();
        assert_eq!((ids.len(), ids.contains(&run.0)), (1000, false));
    }
}
