//! What the tries at one plan have consumed so far, whatever becomes of them.
//!
//! Planning may be stopped at any await, and its future is dropped then: so the account is kept outside of it, and the call
//! under way is in it with what is known of that call.

use std::sync::{Mutex, MutexGuard, PoisonError};

use podium_domain::money::Cost;
use podium_domain::prices::PriceList;
use podium_domain::usage::Usage;
use podium_ports::conductor::ConductorError;
use podium_ports::vendor::ChatRequest;

/// Bytes of a token, about, where a vendor does not count.
pub(super) const BYTES_PER_TOKEN: u64 = 4;

/// Bytes of all that is sent.
pub(super) fn prompt_bytes(request: &ChatRequest) -> u64 {
    request.messages.iter().map(|message| message.text.len() as u64).sum()
}

/// Adds up calls.
#[derive(Debug)]
pub(super) struct Tally {
    prices: PriceList,
    sums: Mutex<Sums>,
}

#[derive(Debug, Default)]
struct Sums {
    usage: Usage,
    cost: Cost,
    under_way: Option<UnderWay>,
}

/// A call whose end is not known.
#[derive(Clone, Copy, Debug)]
struct UnderWay {
    prompt_bytes: u64,
    text_bytes: u64,
}

impl UnderWay {
    /// About what a whole answer consumed.
    fn whole(self) -> Usage {
        Usage {
            prompt_tokens: self.prompt_bytes.div_ceil(BYTES_PER_TOKEN),
            completion_tokens: self.text_bytes.div_ceil(BYTES_PER_TOKEN),
            ..Usage::default()
        }
    }

    /// About what a call consumed that broke off. Nothing before its first text: vendors bill from then on.
    fn broken_off(self) -> Usage {
        if self.text_bytes == 0 { Usage::default() } else { self.whole() }
    }
}

impl Tally {
    pub(super) fn new(prices: PriceList) -> Self {
        Self { prices, sums: Mutex::default() }
    }

    /// A call begins.
    pub(super) fn begin(&self, request: &ChatRequest) {
        self.lock().under_way = Some(UnderWay { prompt_bytes: prompt_bytes(request), text_bytes: 0 });
    }

    /// The call under way wrote so many bytes more.
    pub(super) fn heard(&self, bytes: usize) {
        if let Some(under_way) = &mut self.lock().under_way {
            under_way.text_bytes += bytes as u64;
        }
    }

    /// The call under way has given its whole answer, and consumed what the vendor says, if it says. Tells what that is.
    pub(super) fn finish(&self, said: Option<Usage>) -> Usage {
        self.end(|under_way| said.unwrap_or_else(|| under_way.whole()))
    }

    /// The call under way, if there is one, was broken off by either side. Tells what it consumed.
    pub(super) fn break_off(&self) -> Usage {
        self.end(UnderWay::broken_off)
    }

    fn end(&self, usage: impl FnOnce(UnderWay) -> Usage) -> Usage {
        let mut sums = self.lock();
        let usage = sums.under_way.take().map(usage).unwrap_or_default();
        sums.usage += usage;
        sums.cost += self.prices.cost(&usage);
        usage
    }

    /// All of it, the call under way included.
    pub(super) fn sums(&self) -> (Usage, Cost) {
        self.break_off();
        let sums = self.lock();
        (sums.usage, sums.cost)
    }

    /// The model wrote, but no plan.
    pub(super) fn no_plan(&self, tries: u32, message: String) -> ConductorError {
        let (usage, cost) = self.sums();
        ConductorError::NoPlan { tries, message, usage, cost }
    }

    /// The error, with what was consumed before it.
    pub(super) fn charge(&self, error: ConductorError) -> ConductorError {
        match error {
            // It says so already.
            ConductorError::NoPlan { .. } => error,
            error => {
                let (usage, cost) = self.sums();
                error.charged(usage, cost)
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Sums> {
        self.sums.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
