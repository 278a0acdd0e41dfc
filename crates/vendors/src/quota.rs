//! Reads the rate limits that a vendor reports in the headers of an answer.
//!
//! OpenAI and many others send `x-ratelimit-{limit,remaining}-{requests,tokens}`, Anthropic
//! `anthropic-ratelimit-{requests,tokens,input-tokens,output-tokens}-{limit,remaining}`. Gemini reports nothing.

use podium_ports::limiter::{Allowance, Quota};
use reqwest::header::HeaderMap;

/// Reads the limits from an answer's headers. Missing and invalid values are unknown.
pub(crate) fn quota(headers: &HeaderMap) -> Quota {
    let kind = |kind: &str| {
        let openai = allowance(headers, |what| format!("x-ratelimit-{what}-{kind}"));
        openai.unwrap_or_else(|| {
            allowance(headers, |what| format!("anthropic-ratelimit-{kind}-{what}")).unwrap_or_default()
        })
    };
    Quota {
        requests: kind("requests"),
        tokens: kind("tokens"),
        input_tokens: kind("input-tokens"),
        output_tokens: kind("output-tokens"),
    }
}

/// A limit that is not positive is ignored together with its remaining amount: some servers send -1 and 0.
fn allowance(headers: &HeaderMap, name: impl Fn(&str) -> String) -> Option<Allowance> {
    let number = |what: &str| headers.get(name(what))?.to_str().ok()?.trim().parse::<u64>().ok();
    let limit = number("limit").filter(|limit| *limit > 0)?;
    Some(Allowance { limit: Some(limit), remaining: number("remaining") })
}

#[cfg(test)]
mod tests {
    use reqwest::header::{HeaderName, HeaderValue};

    use super::*;

    fn parsed(headers: &[(&'static str, &'static str)]) -> Quota {
        let pairs = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        quota(&pairs.collect())
    }

    fn allowed(limit: u64, remaining: Option<u64>) -> Allowance {
        Allowance { limit: Some(limit), remaining }
    }

    #[test]
    fn both_header_families_are_parsed() {
        let openai = parsed(&[
            ("x-ratelimit-limit-requests", "600"),
            ("x-ratelimit-remaining-requests", "0"),
            ("x-ratelimit-limit-tokens", "100000"),
        ]);
        let expected =
            Quota { requests: allowed(600, Some(0)), tokens: allowed(100_000, None), ..Quota::default() };
        assert_eq!(openai, expected);
        let anthropic = parsed(&[
            ("anthropic-ratelimit-input-tokens-limit", "40000"),
            ("anthropic-ratelimit-input-tokens-remaining", "39000"),
            ("anthropic-ratelimit-output-tokens-limit", "8000"),
        ]);
        let expected = Quota {
            input_tokens: allowed(40_000, Some(39_000)),
            output_tokens: allowed(8_000, None),
            ..Quota::default()
        };
        assert_eq!(anthropic, expected);
    }

    #[test]
    fn invalid_limits_are_ignored() {
        for limit in ["-1", "0", "", "many", "1e3"] {
            let parsed = parsed(&[
                ("x-ratelimit-limit-requests", limit),
                ("x-ratelimit-remaining-requests", "0"),
                ("x-ratelimit-remaining-tokens", "0"),
            ]);
            assert_eq!(parsed, Quota::default(), "{limit}");
        }
    }
}
