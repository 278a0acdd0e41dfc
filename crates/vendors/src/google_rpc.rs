//! Reads the machine-readable details of Google's errors: `google.rpc.RetryInfo`, `google.rpc.QuotaFailure` and
//! `google.rpc.ErrorInfo`.

use std::time::Duration;

use serde_json::Value;

use crate::retry_after::span_text;

/// Pause of a worker whose daily quota is used up. The quota is renewed at midnight in California, which is not computed
/// here: one rejected call an hour is cheap. The delay in such an error is a few seconds and does not help.
pub(crate) const DAY_QUOTA_PAUSE: Duration = Duration::from_hours(1);

/// When a rejected call may be retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    /// After this time.
    Of(Duration),
    /// Never: the account has no such quota.
    Endless,
}

/// The pause that an error's `details` ask for. If several quotas are exceeded, the longest pause counts.
pub(crate) fn pause(details: &Value) -> Option<Pause> {
    let details = details.as_array()?;
    let violations = || {
        details
            .iter()
            .filter_map(|detail| detail.get("violations")?.as_array())
            .flatten()
            .map(Violation::read)
    };
    if violations().any(|violation| violation == Violation::NoQuota) {
        return Some(Pause::Endless);
    }
    let delay = details.iter().find_map(|detail| span_text(detail.get("retryDelay")?.as_str()?));
    if violations().any(|violation| violation == Violation::Day) {
        return Some(Pause::Of(delay.unwrap_or_default().max(DAY_QUOTA_PAUSE)));
    }
    delay.map(Pause::Of)
}

/// Whether an error's `details` say that the key is invalid, expired or blocked.
pub(crate) fn refuses_key(details: &Value) -> bool {
    let reasons =
        details.as_array().into_iter().flatten().filter_map(|detail| detail.get("reason")?.as_str());
    reasons.into_iter().any(|reason| {
        reason.starts_with("API_KEY_") || matches!(reason, "ACCESS_TOKEN_EXPIRED" | "CREDENTIALS_MISSING")
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Violation {
    /// The quota is zero.
    NoQuota,
    /// A daily quota.
    Day,
    /// A quota per minute, or without a known period.
    Other,
}

impl Violation {
    fn read(violation: &Value) -> Self {
        let text = |name: &str| violation.get(name).and_then(Value::as_str).unwrap_or_default();
        let is_for_a_day = |name| text(name).to_ascii_lowercase().replace('_', "").contains("perday");
        let quota = violation.get("quotaValue");
        match quota {
            Some(quota) if quota == "0" || quota == 0 => Self::NoQuota,
            _ if ["quotaId", "quotaMetric", "quotaLimit"].into_iter().any(is_for_a_day) => Self::Day,
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_exceeded_quota_determines_the_wait() {
        let delay = || json!({ "@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "18.5s" });
        let passed = |violations: Value| json!({ "@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": violations });
        let minute = json!({ "quotaId": "GenerateRequestsPerMinutePerProjectPerModel" });
        let day =
            json!({ "quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier", "quotaValue": "50" });
        let metric =
            json!({ "quotaMetric": "generativelanguage.googleapis.com/generate_requests_per_model_per_day" });
        let none = json!({ "quotaId": "GenerateRequestsPerMinutePerProjectPerModel", "quotaValue": "0" });
        for (details, expected) in [
            (json!([]), None),
            (json!("words"), None),
            (json!([{ "violations": "many" }]), None),
            (json!([passed(json!([minute]))]), None),
            (json!([passed(json!([minute])), delay()]), Some(Pause::Of(Duration::from_millis(18_500)))),
            (json!([delay(), passed(json!([minute, day]))]), Some(Pause::Of(DAY_QUOTA_PAUSE))),
            (json!([passed(json!([metric]))]), Some(Pause::Of(DAY_QUOTA_PAUSE))),
            (
                json!([passed(json!([day])), { "retryDelay": "7200s" }]),
                Some(Pause::Of(Duration::from_hours(2))),
            ),
            (json!([delay(), passed(json!([day, none]))]), Some(Pause::Endless)),
        ] {
            assert_eq!(pause(&details), expected, "{details}");
        }
    }
}
