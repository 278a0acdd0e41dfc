//! The usage of all calls for one plan so far, including failed ones.
//!
//! Planning may be stopped at any await, which drops its future. So the account lives outside that future and includes what
//! is known of the call in progress.

use std::sync::{Mutex, MutexGuard, PoisonError};

use podium_domain::money::Cost;
use podium_domain::prices::PriceList;
use podium_domain::token_estimate::text_tokens;
use podium_domain::usage::Usage;
use podium_ports::conductor::ConductorError;
use podium_ports::vendor::{AnswerForm, ChatRequest};

/// Tokens that vendors may add to a prompt or a completion.
const TOKENS_SLACK: u64 = 4096;

/// Bytes of the request's text.
pub(super) fn prompt_bytes(request: &ChatRequest) -> usize {
    request.messages.iter().map(|message| message.text.len()).sum()
}

/// Bytes that a vendor may prepend to the prompt for the response format.
fn form_bytes(form: &AnswerForm) -> usize {
    match form {
        AnswerForm::JsonSchema(form) => form.schema.to_string().len(),
        AnswerForm::Regex(regex) => regex.len(),
        AnswerForm::Text | AnswerForm::JsonObject => 0,
    }
}

/// Sums up the usage of calls.
#[derive(Debug)]
pub(super) struct UsageAccount {
    prices: PriceList,
    sums: Mutex<Sums>,
}

#[derive(Debug, Default)]
struct Sums {
    usage: Usage,
    cost: Cost,
    in_progress: Option<InProgress>,
}

/// A call in progress.
#[derive(Clone, Copy, Debug)]
struct InProgress {
    prompt_bytes: usize,
    form_bytes: usize,
    output_tokens_max: u64,
    text_bytes: usize,
}

impl InProgress {
    /// Estimated usage of a complete answer.
    fn whole(self) -> Usage {
        Usage {
            prompt_tokens: text_tokens(self.prompt_bytes),
            completion_tokens: text_tokens(self.text_bytes),
            ..Usage::default()
        }
    }

    /// The usage that the vendor reported, but at most what the call can have used: two prompt tokens for each byte, twice the limit of
    /// output tokens, and [`TOKENS_SLACK`] more of each. A prompt of no tokens was not counted, so its tokens are estimated.
    fn plausible(self, reported: Usage) -> Usage {
        let prompt_max = (self.prompt_bytes + self.form_bytes) as u64 * 2 + TOKENS_SLACK;
        let prompt_tokens = match reported.prompt_tokens {
            0 => self.whole().prompt_tokens,
            counted => counted.min(prompt_max),
        };
        let completion_tokens = reported.completion_tokens.min(self.output_tokens_max * 2 + TOKENS_SLACK);
        let cached_tokens = reported.cached_tokens.min(prompt_tokens);
        Usage {
            prompt_tokens,
            cached_tokens,
            cache_write_tokens: reported.cache_write_tokens.min(prompt_tokens - cached_tokens),
            completion_tokens,
            reasoning_tokens: reported.reasoning_tokens.min(completion_tokens),
        }
    }

    /// Estimated usage of a call that broke off: zero before its first text, since vendors bill from then on.
    fn broken_off(self) -> Usage {
        if self.text_bytes == 0 { Usage::default() } else { self.whole() }
    }
}

impl UsageAccount {
    pub(super) fn new(prices: PriceList) -> Self {
        Self { prices, sums: Mutex::default() }
    }

    /// A call begins.
    pub(super) fn begin(&self, request: &ChatRequest) {
        self.lock().in_progress = Some(InProgress {
            prompt_bytes: prompt_bytes(request),
            form_bytes: form_bytes(&request.answer),
            output_tokens_max: request.output_tokens_max.into(),
            text_bytes: 0,
        });
    }

    /// The call in progress has written more bytes.
    pub(super) fn wrote(&self, bytes: usize) {
        if let Some(in_progress) = &mut self.lock().in_progress {
            in_progress.text_bytes += bytes;
        }
    }

    /// Ends the call in progress with the usage that the vendor reported, as far as it is possible, or an estimate. Returns what was
    /// counted.
    pub(super) fn finish(&self, reported: Option<Usage>) -> Usage {
        self.end(|in_progress| {
            reported.map_or_else(|| in_progress.whole(), |reported| in_progress.plausible(reported))
        })
    }

    /// Ends the call in progress, if any, as aborted by either side. Returns what was counted.
    pub(super) fn break_off(&self) -> Usage {
        self.end(InProgress::broken_off)
    }

    fn end(&self, usage: impl FnOnce(InProgress) -> Usage) -> Usage {
        let mut sums = self.lock();
        let usage = sums.in_progress.take().map(usage).unwrap_or_default();
        sums.usage += usage;
        sums.cost += self.prices.cost(&usage);
        usage
    }

    /// The total. A call in progress is ended as aborted.
    pub(super) fn sums(&self) -> (Usage, Cost) {
        self.break_off();
        let sums = self.lock();
        (sums.usage, sums.cost)
    }

    /// The error for an output without a plan, with the usage so far.
    pub(super) fn no_plan(&self, tries: u32, message: String) -> ConductorError {
        let (usage, cost) = self.sums();
        ConductorError::NoPlan { tries, message, usage, cost }
    }

    /// Adds the usage so far to an error.
    pub(super) fn charge(&self, error: ConductorError) -> ConductorError {
        match error {
            // It has the usage already.
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
