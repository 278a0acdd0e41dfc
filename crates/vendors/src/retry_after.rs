//! Reads how long a vendor asks callers to back off, in all forms that vendors use.
//!
//! A date is compared with the answer's own `Date`, so a difference between the two clocks does not matter. Without that
//! header it is compared with this machine's clock, and the wait is at most [`OWN_CLOCK_WAIT_MAX`].

use std::time::{Duration, SystemTime};

use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};

/// Longest accepted wait; a longer one is cut to this.
pub(crate) const RETRY_AFTER_MAX: Duration = Duration::from_hours(24);

/// Longest accepted wait that is computed with this machine's clock.
const OWN_CLOCK_WAIT_MAX: Duration = Duration::from_mins(1);

/// Numbers from here on are points in time, not durations: seconds since 1970, then milliseconds.
const EPOCH_SECONDS_MIN: f64 = 1e9;
const EPOCH_MILLISECONDS_MIN: f64 = 1e12;

/// The wait that the headers explicitly ask for.
pub(crate) fn explicit_wait(headers: &HeaderMap) -> Option<Duration> {
    let wait = milliseconds(headers).or_else(|| seconds_or_date(headers));
    wait.map(|wait| wait.min(RETRY_AFTER_MAX))
}

/// The wait that the headers of a rejection ask for, or that follows from the limits that they report.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let wait = explicit_wait(headers)
        .or_else(|| used_up(headers))
        .or_else(|| span_or_time(text(headers, "x-ratelimit-reset")?, headers))
        .or_else(|| used_up_at_anthropic(headers));
    wait.map(|wait| wait.min(RETRY_AFTER_MAX))
}

fn milliseconds(headers: &HeaderMap) -> Option<Duration> {
    span(number(text(headers, "retry-after-ms")?)? / 1e3)
}

fn seconds_or_date(headers: &HeaderMap) -> Option<Duration> {
    let value = text(headers, RETRY_AFTER.as_str())?;
    match number(value) {
        Some(seconds) => span(seconds),
        None => httpdate::parse_http_date(value).ok().and_then(|time| until(time, headers)),
    }
}

/// When a used-up limit is renewed: the later one of requests and tokens. If any of them is at zero, only those count.
fn used_up(headers: &HeaderMap) -> Option<Duration> {
    let kinds = ["requests", "tokens"].map(|kind| {
        let reset = text(headers, &format!("x-ratelimit-reset-{kind}"));
        let wait = reset.and_then(|reset| span_or_time(reset, headers));
        let is_empty = text(headers, &format!("x-ratelimit-remaining-{kind}")).and_then(number) == Some(0.0);
        (is_empty, wait)
    });
    let any_is_empty = kinds.iter().any(|(is_empty, _)| *is_empty);
    kinds.into_iter().filter(|(is_empty, _)| *is_empty || !any_is_empty).filter_map(|(_, wait)| wait).max()
}

/// The same for Anthropic's headers: a point in time for each kind, the latest of those that are at zero.
fn used_up_at_anthropic(headers: &HeaderMap) -> Option<Duration> {
    let kinds = ["requests", "tokens", "input-tokens", "output-tokens"].into_iter().filter_map(|kind| {
        let name = |what: &str| format!("anthropic-ratelimit-{kind}-{what}");
        let is_empty = text(headers, &name("remaining")).and_then(number) == Some(0.0);
        let reset = text(headers, &name("reset")).and_then(rfc_3339).filter(|_| is_empty)?;
        until(reset, headers)
    });
    kinds.max()
}

/// A point in time such as `2026-11-21T14:30:00Z`. Of RFC 3339 only this form is accepted: UTC, whole seconds, or a fraction
/// that is dropped.
fn rfc_3339(value: &str) -> Option<SystemTime> {
    let (date, time) = value.strip_suffix('Z')?.split_once('T')?;
    let time = time.split_once('.').map_or(time, |(whole, _)| whole);
    let numbers = |text: &str, separator| -> Option<Vec<u64>> {
        text.split(separator).map(|number| number.parse().ok()).collect()
    };
    let ([year, month, day], [hour, minute, second]) =
        (<[u64; 3]>::try_from(numbers(date, '-')?).ok()?, <[u64; 3]>::try_from(numbers(time, ':')?).ok()?);
    let is_sound = (1970..10_000).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second <= 60;
    // Days since 1970, with years that begin in March so that a leap day is the last day of its year.
    let (year, month) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
    let before_year = year * 365 + year / 4 - year / 100 + year / 400;
    let days = (before_year + (153 * month + 2) / 5 + day).checked_sub(719_469)?;
    let seconds = ((days * 24 + hour) * 60 + minute) * 60 + second;
    is_sound.then(|| SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds)))?
}

/// A duration with a unit, such as `34.5s`.
pub(crate) fn span_text(value: &str) -> Option<Duration> {
    units(value.trim()).map(|span| span.min(RETRY_AFTER_MAX))
}

/// A duration such as `1m30.5s`, a number of seconds, or a point in time as a number.
fn span_or_time(value: &str, headers: &HeaderMap) -> Option<Duration> {
    match number(value) {
        Some(number) if number >= EPOCH_MILLISECONDS_MIN => until(after_epoch(number / 1e3)?, headers),
        Some(number) if number >= EPOCH_SECONDS_MIN => until(after_epoch(number)?, headers),
        Some(number) => span(number),
        None => units(value),
    }
}

/// A duration as Go writes it, such as `6m0s` or `20ms`.
fn units(value: &str) -> Option<Duration> {
    let mut seconds = 0.0;
    let mut rest = value;
    while !rest.is_empty() {
        let (digits, after) = rest.split_at(rest.find(|c: char| c.is_ascii_alphabetic())?);
        let (unit, after) =
            after.split_at(after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len()));
        let factor = match unit {
            "d" => 86_400.0,
            "h" => 3_600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            _ => return None,
        };
        seconds += number(digits)? * factor;
        rest = after;
    }
    (!value.is_empty()).then(|| span(seconds))?
}

fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    Some(headers.get(name)?.to_str().ok()?.trim())
}

fn number(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0)
}

fn span(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds.min(RETRY_AFTER_MAX.as_secs_f64())).ok()
}

fn after_epoch(seconds: f64) -> Option<SystemTime> {
    SystemTime::UNIX_EPOCH.checked_add(Duration::try_from_secs_f64(seconds).ok()?)
}

/// Time from the answer's date to `time`; zero if that is past. Without a date, a time in the past is unknown (`None`).
fn until(time: SystemTime, headers: &HeaderMap) -> Option<Duration> {
    let sent = text(headers, DATE.as_str()).and_then(|date| httpdate::parse_http_date(date).ok());
    match sent {
        Some(sent) => Some(time.duration_since(sent).unwrap_or_default()),
        None => time.duration_since(now()).ok().map(|wait| wait.min(OWN_CLOCK_WAIT_MAX)),
    }
}

#[expect(clippy::disallowed_methods, reason = "only for an answer that has no date, and within a bound")]
fn now() -> SystemTime {
    SystemTime::now()
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqwest::header::{HeaderName, HeaderValue};

    const DATE_SENT: (&str, &str) = ("date", "Sun, 06 Nov 1994 08:49:37 GMT");

    fn wait(headers: &[(&'static str, &'static str)]) -> Option<Duration> {
        let pairs = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        retry_after(&pairs.collect())
    }

    #[test]
    fn rfc_3339_dates_equal_http_dates() {
        for (rfc, http) in [
            ("1994-11-06T08:49:37Z", "Sun, 06 Nov 1994 08:49:37 GMT"),
            ("1970-01-01T00:00:00Z", "Thu, 01 Jan 1970 00:00:00 GMT"),
            ("2000-02-29T23:59:59.9Z", "Tue, 29 Feb 2000 23:59:59 GMT"),
            ("2026-12-31T12:00:00Z", "Thu, 31 Dec 2026 12:00:00 GMT"),
            ("2100-03-01T00:00:00Z", "Mon, 01 Mar 2100 00:00:00 GMT"),
        ] {
            assert_eq!(rfc_3339(rfc), Some(httpdate::parse_http_date(http).unwrap()), "{rfc}");
        }
        for bad in [
            "",
            "2026-12-31",
            "2026-12-31T12:00:00",
            "1969-12-31T12:00:00Z",
            "a-b-cT1:2:3Z",
            "2026-12-31T25:00:00Z",
        ] {
            assert_eq!(rfc_3339(bad), None, "{bad}");
        }
    }

    #[test]
    fn all_retry_headers_are_read() {
        let ms = |ms| Some(Duration::from_millis(ms));
        for (headers, expected) in [
            (vec![], None),
            (vec![("retry-after", "7")], ms(7_000)),
            (vec![("retry-after", "0.25")], ms(250)),
            (vec![("retry-after-ms", "1500"), ("retry-after", "2")], ms(1_500)),
            (vec![("retry-after", "Sun, 06 Nov 1994 08:50:07 GMT"), DATE_SENT], ms(30_000)),
            (vec![("retry-after", "Sun, 06 Nov 1994 08:00:00 GMT"), DATE_SENT], ms(0)),
            (vec![("retry-after", "Sun, 06 Nov 1994 08:50:07 GMT")], None),
            (vec![("retry-after", "Tue, 01 Jan 2999 00:00:00 GMT")], Some(OWN_CLOCK_WAIT_MAX)),
            (vec![("retry-after", "soon")], None),
            (vec![("retry-after", "-3")], None),
            (vec![("retry-after", "999999999999")], Some(RETRY_AFTER_MAX)),
            (vec![("x-ratelimit-reset-requests", "1s"), ("x-ratelimit-reset-tokens", "6m0s")], ms(360_000)),
            (
                vec![
                    ("x-ratelimit-remaining-requests", "0"),
                    ("x-ratelimit-reset-requests", "20ms"),
                    ("x-ratelimit-remaining-tokens", "90000"),
                    ("x-ratelimit-reset-tokens", "6m0s"),
                ],
                ms(20),
            ),
            (vec![("x-ratelimit-reset-tokens", "1h2m3.5s")], ms(3_723_500)),
            (vec![("x-ratelimit-reset", "12")], ms(12_000)),
            (vec![("x-ratelimit-reset", "1735689600"), ("date", "Wed, 01 Jan 2025 00:00:00 GMT")], ms(0)),
            (
                vec![("x-ratelimit-reset", "1735689660000"), ("date", "Wed, 01 Jan 2025 00:00:00 GMT")],
                ms(60_000),
            ),
            (vec![("x-ratelimit-reset", "1735689600")], None),
            (vec![("x-ratelimit-reset", "5 parsecs")], None),
            (vec![("x-ratelimit-reset", "")], None),
            (
                vec![
                    ("anthropic-ratelimit-requests-remaining", "12"),
                    ("anthropic-ratelimit-requests-reset", "1994-11-06T08:59:37Z"),
                    ("anthropic-ratelimit-input-tokens-remaining", "0"),
                    ("anthropic-ratelimit-input-tokens-reset", "1994-11-06T08:49:57.250Z"),
                    DATE_SENT,
                ],
                ms(20_000),
            ),
            (
                vec![
                    ("anthropic-ratelimit-tokens-remaining", "0"),
                    ("anthropic-ratelimit-tokens-reset", "2026-13-01T00:00:00Z"),
                    DATE_SENT,
                ],
                None,
            ),
        ] {
            assert_eq!(wait(&headers), expected, "{headers:?}");
        }
    }
}
