//! The rows of the matrix with their expected results.

use std::fmt;
use std::time::Duration;

use podium_ports::vendor::{ChatEvent, VendorError};
use podium_vendor_sim::Fault;

use crate::authority::Certificate;
use crate::house::{Delivery, QUESTION};

/// Letters of the answer that is too long.
pub(crate) const HUGE_BYTES: usize = 10 << 20;
/// Chunks before a fault in the middle: in every format they include text.
const SOME: usize = 7;

/// The fault of a row.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Trouble {
    /// A scripted fault of the simulator.
    Scripted(Fault),
    /// Nothing listens on the address.
    Refused,
    /// The server does not speak TLS.
    NoTls,
    /// The server has this certificate.
    Tls(Certificate),
}

/// A row.
#[derive(Clone)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) trouble: Trouble,
    /// The adapter's expected result.
    pub(crate) becomes: Outcome,
    /// Whether a part of the answer arrives before the fault.
    pub(crate) has_begun: bool,
    /// The limit that must be short for this case.
    pub(crate) short_limit: &'static str,
}

/// Why a certificate is rejected.
const UNTRUSTED: [&str; 3] = [
    "its certificate is signed by an authority that this machine does not trust",
    "its certificate has expired, by this machine's clock",
    "its certificate is not valid for the host name of base_url",
];

/// The outcome of a call for its caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// An answer of this many bytes.
    Answered(usize),
    /// The vendor asks to back off, optionally for this time.
    Throttled(Option<Duration>),
    /// A failure of the vendor, with this status.
    Failed(u16),
    Unreachable,
    Garbled,
    /// The account cannot pay.
    Unpaid,
    /// A wait exceeded the limit with this name.
    TimedOut(&'static str),
    /// The server's certificate is rejected for this reason.
    Untrusted(&'static str),
    /// An unexpected result.
    Other(String),
}

impl Outcome {
    pub(crate) fn of(error: &VendorError) -> Self {
        match error {
            VendorError::Throttled { retry_after, .. } => Self::Throttled(*retry_after),
            VendorError::Failed { status, .. } => Self::Failed(*status),
            VendorError::Unreachable { .. } => Self::Unreachable,
            VendorError::Garbled { .. } => Self::Garbled,
            VendorError::Unpaid { .. } => Self::Unpaid,
            VendorError::Timeout { wait, .. } => Self::TimedOut(wait.as_str()),
            VendorError::Misconfigured { message, .. } => {
                let why = UNTRUSTED.into_iter().find(|why| message.ends_with(why));
                why.map_or_else(|| Self::Other(message.clone()), Self::Untrusted)
            }
            other => Self::Other(other.to_string()),
        }
    }

    /// The text of an attempt's error.
    pub(crate) fn words(&self) -> &'static str {
        match self {
            Self::Answered(_) => "exceeds output_bytes_max",
            Self::Throttled(_) => "asked to slow down",
            Self::Failed(_) => "failed with status",
            Self::Unreachable => "could not be reached, or cut the connection",
            Self::Garbled => "sent something that cannot be decoded",
            Self::Unpaid => "cannot pay for the call",
            Self::TimedOut(limit) => limit,
            Self::Untrusted(why) => why,
            Self::Other(_) => "nothing that a case expects",
        }
    }

    /// Whether the same call may succeed later.
    pub(crate) fn is_retryable(&self) -> bool {
        !matches!(self, Self::Answered(_) | Self::Untrusted(_) | Self::Unpaid)
    }
}

impl Case {
    /// Whether an answer broke off after its beginning.
    pub(crate) fn breaks_off(&self) -> bool {
        self.has_begun && self.becomes.is_retryable()
    }
}

/// A cell of the matrix, for messages.
pub(crate) struct Cell<'c>(pub(crate) &'c Case, pub(crate) &'static str, pub(crate) Delivery);

impl fmt::Display for Cell<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}, {:?}", self.0.name, self.1, self.2)
    }
}

fn case(name: &'static str, fault: Fault, becomes: Outcome) -> Case {
    Case { name, trouble: Trouble::Scripted(fault), becomes, has_begun: false, short_limit: "" }
}

fn in_the_middle(name: &'static str, fault: Fault, becomes: Outcome) -> Case {
    Case { has_begun: true, ..case(name, fault, becomes) }
}

fn tls(name: &'static str, kind: Certificate, becomes: Outcome) -> Case {
    Case { trouble: Trouble::Tls(kind), ..case(name, Fault::Hang, becomes) }
}

/// Every row.
pub(crate) fn cases() -> Vec<Case> {
    use Outcome as O;
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    let ahead = Fault::RateLimitDate { retry_after_s: 1, skew_s: 600 };
    let behind = Fault::RateLimitDate { retry_after_s: 1, skew_s: -600 };
    let huge = Fault::Huge { bytes: HUGE_BYTES };
    vec![
        case("429 with headers", Fault::RateLimit { retry_after_s: 1 }, O::Throttled(seconds(1))),
        case("429 without headers", Fault::RateLimitBare, O::Throttled(None)),
        case("429 by a clock ten minutes ahead", ahead, O::Throttled(seconds(1))),
        case("429 by a clock ten minutes behind", behind, O::Throttled(seconds(1))),
        case("500", Fault::Status { status: 500 }, O::Failed(500)),
        case("503", Fault::Status { status: 503 }, O::Failed(503)),
        case("529", Fault::Status { status: 529 }, O::Failed(529)),
        Case { trouble: Trouble::Refused, ..case("connection refused", Fault::Hang, O::Unreachable) },
        Case { trouble: Trouble::NoTls, ..case("TLS error", Fault::Hang, O::Unreachable) },
        tls("certificate of an unknown authority", Certificate::UnknownAuthority, O::Untrusted(UNTRUSTED[0])),
        tls("certificate that has expired", Certificate::Expired, O::Untrusted(UNTRUSTED[1])),
        tls("certificate for another name", Certificate::ForAnotherName, O::Untrusted(UNTRUSTED[2])),
        // Proves that the previous ones are rejected for their stated reasons.
        Case { has_begun: true, ..tls("valid certificate", Certificate::Valid, O::Answered(QUESTION.len())) },
        in_the_middle("connection closed", Fault::CutStream { after_chunks: SOME }, O::Unreachable),
        in_the_middle("connection reset", Fault::Reset { after_chunks: SOME }, O::Unreachable),
        Case {
            short_limit: "first_byte_ms_max",
            ..case("hang before the first byte", Fault::Hang, O::TimedOut("first_byte_ms_max"))
        },
        Case {
            short_limit: "idle_ms_max",
            ..in_the_middle(
                "hang after the first byte",
                Fault::HangAfter { after_chunks: SOME },
                O::TimedOut("idle_ms_max"),
            )
        },
        case("garbage for JSON", Fault::GarbledJson, O::Garbled),
        in_the_middle("answer cut short", Fault::Truncate { after_chunks: SOME }, O::Garbled),
        in_the_middle("10 MB answer", huge, O::Answered(HUGE_BYTES)),
        in_the_middle("wrong content type", Fault::WrongType, O::Answered(QUESTION.len())),
        case("web page", Fault::WebPage, O::Garbled),
        case("no money left", Fault::Unpaid, O::Unpaid),
        case("nobody who pays", Fault::BillingOff, O::Unpaid),
    ]
}

/// The text among an answer's events.
pub(crate) fn text_bytes(events: &[ChatEvent]) -> usize {
    let bytes = events.iter().map(|event| match event {
        ChatEvent::Delta(text) => text.len(),
        _ => 0,
    });
    bytes.sum()
}
