//! The longest silences of a call to a worker. The limit of the whole call is in [`super::Limits`].

/// Longest silences of a call, in milliseconds; each is 1 to [`Waits::MS_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waits {
    /// From requesting a connection to having it, TLS included.
    pub connect_ms_max: u64,
    /// Before the answer's text begins: from sending the request to the first event, and between events without text.
    pub first_byte_ms_max: u64,
    /// After the text has begun: between two pieces of the answer.
    pub idle_ms_max: u64,
}

impl Waits {
    /// The longest permitted silence: a day.
    pub const MS_MAX: u64 = 86_400_000;

    /// A reachable host answers within one to three round trips; the rest is for DNS and TLS.
    const CONNECT_MS: u64 = 5_000;
    /// The longest time that servers keep a call in their own queue before they refuse it.
    const FIRST_BYTE_MS: u64 = 120_000;
    /// The slowest models write several tokens per second, and vendors send pings meanwhile.
    const IDLE_MS: u64 = 60_000;

    /// The values of a pool file with defaults for missing ones. A worker that can reason may be silent for as long as a call may
    /// take.
    pub(super) fn of(said: SaidWaits, reasons: bool, call_ms_max: u64) -> Self {
        let first_byte = if reasons { call_ms_max } else { Self::FIRST_BYTE_MS };
        Self {
            connect_ms_max: said.connect.unwrap_or(Self::CONNECT_MS),
            first_byte_ms_max: said.first_byte.unwrap_or(first_byte),
            idle_ms_max: said.idle.unwrap_or(Self::IDLE_MS),
        }
    }

    /// All three with their names in a pool file.
    pub(super) fn named(&self) -> [(&'static str, u64); 3] {
        [
            ("connect_ms_max", self.connect_ms_max),
            ("first_byte_ms_max", self.first_byte_ms_max),
            ("idle_ms_max", self.idle_ms_max),
        ]
    }
}

/// A worker's longest silences in a pool file, in milliseconds.
#[derive(Clone, Copy)]
pub(super) struct SaidWaits {
    pub(super) connect: Option<u64>,
    pub(super) first_byte: Option<u64>,
    pub(super) idle: Option<u64>,
}
