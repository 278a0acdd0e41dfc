//! The rows of the matrix, and what each must come to.

use std::fmt;
use std::time::Duration;

use podium_ports::vendor::{ChatEvent, VendorError};
use podium_vendor_sim::Fault;

use crate::authority::Paper;
use crate::house::{Delivery, QUESTION};

/// Letters of the answer that is too long.
pub(crate) const HUGE_BYTES: usize = 10 << 20;
/// Chunks that come before trouble in the middle: in every format there is text among them.
const SOME: usize = 7;

/// What goes wrong.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Trouble {
    /// A scripted fault of the simulator.
    Scripted(Fault),
    /// Nobody listens.
    Refused,
    /// The server speaks no TLS.
    NoTls,
    /// It does, and shows this certificate.
    Tls(Paper),
}

/// A row.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) trouble: Trouble,
    /// What the adapter gives.
    pub(crate) becomes: Outcome,
    /// Whether something of the answer comes before it.
    pub(crate) says_something: bool,
    /// The wait that has to be short for it.
    pub(crate) brief_wait: &'static str,
}

/// Why a certificate is refused.
const UNTRUSTED: [&str; 3] = [
    "its certificate is signed by an authority that this machine does not trust",
    "its certificate has expired, by this machine's clock",
    "its certificate is not valid for the host name of base_url",
];

/// How a call ends for its caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// With an answer of so many bytes.
    Answered(usize),
    /// The vendor asks to be left alone, perhaps for so long.
    Throttled(Option<Duration>),
    /// The vendor's own trouble, with this status.
    Failed(u16),
    Unreachable,
    Garbled,
    /// The account cannot pay.
    Unpaid,
    /// A wait was too long: the limit's name.
    TimedOut(&'static str),
    /// The server's certificate is refused, for this reason.
    Untrusted(&'static str),
    /// Something that no case expects.
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

    /// What an attempt's error says then.
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
    pub(crate) fn may_pass(&self) -> bool {
        !matches!(self, Self::Answered(_) | Self::Untrusted(_) | Self::Unpaid)
    }
}

impl Case {
    /// Whether an answer that had begun broke off.
    pub(crate) fn breaks_off(&self) -> bool {
        self.says_something && self.becomes.may_pass()
    }
}

/// A place in the matrix, for messages.
pub(crate) struct Cell<'c>(pub(crate) &'c Case, pub(crate) &'static str, pub(crate) Delivery);

impl fmt::Display for Cell<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}, {:?}", self.0.name, self.1, self.2)
    }
}

fn case(name: &'static str, fault: Fault, becomes: Outcome) -> Case {
    Case { name, trouble: Trouble::Scripted(fault), becomes, says_something: false, brief_wait: "" }
}

fn in_the_middle(name: &'static str, fault: Fault, becomes: Outcome) -> Case {
    Case { says_something: true, ..case(name, fault, becomes) }
}

fn tls(name: &'static str, paper: Paper, becomes: Outcome) -> Case {
    Case { trouble: Trouble::Tls(paper), ..case(name, Fault::Hang, becomes) }
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
        tls("certificate of an unknown authority", Paper::OfNobodyKnown, O::Untrusted(UNTRUSTED[0])),
        tls("certificate that has expired", Paper::Expired, O::Untrusted(UNTRUSTED[1])),
        tls("certificate for another name", Paper::ForAnotherName, O::Untrusted(UNTRUSTED[2])),
        // What shows that the ones before are refused for what they say.
        Case {
            says_something: true,
            ..tls("certificate that is sound", Paper::Sound, O::Answered(QUESTION.len()))
        },
        in_the_middle("connection closed", Fault::CutStream { after_chunks: SOME }, O::Unreachable),
        in_the_middle("connection reset", Fault::Reset { after_chunks: SOME }, O::Unreachable),
        Case {
            brief_wait: "first_byte_ms_max",
            ..case("hang before the first byte", Fault::Hang, O::TimedOut("first_byte_ms_max"))
        },
        Case {
            brief_wait: "idle_ms_max",
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
