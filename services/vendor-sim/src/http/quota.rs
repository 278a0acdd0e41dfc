//! The rate limit of the simulated account, enforced over every window of sixty seconds.
//!
//! A request and its prompt count when it arrives, output when it is written. Rejected requests do not count.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use axum::http::{HeaderMap, HeaderName, HeaderValue};

use super::{format::Format, serve::now};

const WINDOW: Duration = Duration::from_mins(1);

/// Limits of the account per minute; 0 means no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AccountLimit {
    /// Requests.
    pub requests_per_minute: u64,
    /// Tokens of prompts and answers.
    pub tokens_per_minute: u64,
}

/// Total use of an account, and its rejected requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AccountUse {
    /// Accepted requests.
    pub requests: u64,
    /// Tokens of their prompts and of the output so far.
    pub tokens: u64,
    /// Requests that the limit rejected.
    pub refused: u64,
}

/// Use in the last minute, and in total.
#[derive(Debug, Default)]
pub(crate) struct Quota {
    used: VecDeque<(Instant, u64, u64)>,
    requests: u64,
    tokens: u64,
    pub(crate) in_all: AccountUse,
}

/// The remaining quota of an account.
#[derive(Debug, Clone, Copy)]
pub(super) struct Standing {
    limit: AccountLimit,
    requests_left: u64,
    tokens_left: u64,
    /// Time until the whole quota is available again.
    reset: Duration,
}

impl Quota {
    /// Accepts a request, or returns the time after which to retry.
    pub(super) fn admit(
        &mut self,
        now: Instant,
        limit: AccountLimit,
        prompt_tokens: u64,
    ) -> Result<(), Duration> {
        self.forget(now);
        let fits = |used: u64, more: u64, limit: u64| limit == 0 || used + more <= limit;
        let fits = |requests: u64, tokens: u64| {
            fits(requests, 1, limit.requests_per_minute)
                && fits(tokens, prompt_tokens, limit.tokens_per_minute)
        };
        if fits(self.requests, self.tokens) {
            self.count(now, 1, prompt_tokens);
            return Ok(());
        }
        self.in_all.refused += 1;
        let (mut requests, mut tokens) = (self.requests, self.tokens);
        for (at, used_requests, used_tokens) in &self.used {
            (requests, tokens) = (requests - used_requests, tokens - used_tokens);
            if fits(requests, tokens) {
                return Err((*at + WINDOW).saturating_duration_since(now));
            }
        }
        Err(WINDOW)
    }

    /// Counts written tokens.
    pub(super) fn written(&mut self, now: Instant, tokens: u64) {
        self.count(now, 0, tokens);
    }

    pub(super) fn standing(&mut self, now: Instant, limit: AccountLimit) -> Standing {
        self.forget(now);
        let reset =
            self.used.back().map_or(Duration::ZERO, |(at, ..)| (*at + WINDOW).saturating_duration_since(now));
        Standing {
            limit,
            requests_left: limit.requests_per_minute.saturating_sub(self.requests),
            tokens_left: limit.tokens_per_minute.saturating_sub(self.tokens),
            reset,
        }
    }

    fn count(&mut self, now: Instant, requests: u64, tokens: u64) {
        self.used.push_back((now, requests, tokens));
        self.requests += requests;
        self.tokens += tokens;
        self.in_all.requests += requests;
        self.in_all.tokens += tokens;
    }

    fn forget(&mut self, now: Instant) {
        while let Some((at, requests, tokens)) = self.used.front().copied() {
            if now.saturating_duration_since(at) < WINDOW {
                break;
            }
            self.used.pop_front();
            self.requests -= requests;
            self.tokens -= tokens;
        }
    }
}

impl Standing {
    /// The format's rate-limit headers, which replace the static ones.
    pub(super) fn headers(&self, format: Format) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let kinds = [
            ("requests", self.limit.requests_per_minute, self.requests_left),
            ("tokens", self.limit.tokens_per_minute, self.tokens_left),
        ];
        for (kind, limit, left) in kinds {
            if limit == 0 {
                continue;
            }
            let words = match format {
                Format::Chat | Format::Responses => [
                    (format!("x-ratelimit-limit-{kind}"), limit.to_string()),
                    (format!("x-ratelimit-remaining-{kind}"), left.to_string()),
                    (format!("x-ratelimit-reset-{kind}"), format!("{}ms", self.reset.as_millis())),
                ],
                Format::Messages => [
                    (format!("anthropic-ratelimit-{kind}-limit"), limit.to_string()),
                    (format!("anthropic-ratelimit-{kind}-remaining"), left.to_string()),
                    (format!("anthropic-ratelimit-{kind}-reset"), rfc_3339(now() + self.reset.as_secs())),
                ],
                Format::Gemini => continue,
            };
            for (name, value) in words {
                if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
                    headers.insert(name, value);
                }
            }
        }
        headers
    }
}

/// Formats a time such as `2026-11-21T14:30:00Z`. Years begin in March here, so that a leap day is the last day.
fn rfc_3339(unix_s: u64) -> String {
    let (days, second) = (unix_s / 86_400 + 719_468, unix_s % 86_400);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_formatted_as_the_vendor_does() {
        for (unix_s, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_868_799, "2000-02-29T23:59:59Z"),
            (1_798_761_600, "2027-01-01T00:00:00Z"),
        ] {
            assert_eq!(rfc_3339(unix_s), text);
        }
    }

    #[test]
    fn no_window_of_sixty_seconds_exceeds_the_limit() {
        let (mut quota, start) = (Quota::default(), Instant::now());
        let at = |s: u64| start + Duration::from_secs(s);
        let limit = AccountLimit { requests_per_minute: 2, tokens_per_minute: 100 };
        assert_eq!(quota.admit(at(0), limit, 10), Ok(()));
        assert_eq!(quota.admit(at(30), limit, 10), Ok(()));
        assert_eq!(quota.admit(at(40), limit, 10), Err(Duration::from_secs(20)));
        assert_eq!(quota.admit(at(60), limit, 10), Ok(()));
        quota.written(at(61), 75);
        assert_eq!(quota.admit(at(90), limit, 20), Err(Duration::from_secs(30)), "tokens are what is short");
        assert_eq!(quota.admit(at(90), limit, 15), Ok(()));
        assert_eq!(quota.standing(at(90), limit).requests_left, 0);
        assert_eq!(quota.standing(at(151), limit).tokens_left, 100);
        assert_eq!(quota.in_all, AccountUse { requests: 4, tokens: 120, refused: 2 });
    }
}
