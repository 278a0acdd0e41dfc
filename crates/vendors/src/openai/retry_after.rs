//! How long a vendor wants to be left alone, in all the ways that vendors say it.
//!
//! No clock is read: a date is held against the answer's own `Date`, which no difference between two clocks can falsify.

use std::time::{Duration, SystemTime};

use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};

/// Longest wait that is believed; a longer one counts as this.
pub(super) const RETRY_AFTER_MAX: Duration = Duration::from_hours(24);

/// Numbers from here on are no spans but points in time: seconds since 1970, then milliseconds.
const EPOCH_SECONDS_MIN: f64 = 1e9;
const EPOCH_MILLISECONDS_MIN: f64 = 1e12;

/// The wait that the headers of a refusal ask for.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let wait = milliseconds(headers)
        .or_else(|| seconds_or_date(headers))
        .or_else(|| used_up(headers))
        .or_else(|| span_or_time(text(headers, "x-ratelimit-reset")?, headers));
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

/// When what is used up is there again: the later one of requests and tokens, of those that are at zero if any is.
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

/// `1m30.5s`, a number of seconds, or a point in time as a number.
fn span_or_time(value: &str, headers: &HeaderMap) -> Option<Duration> {
    match number(value) {
        Some(number) if number >= EPOCH_MILLISECONDS_MIN => until(after_epoch(number / 1e3)?, headers),
        Some(number) if number >= EPOCH_SECONDS_MIN => until(after_epoch(number)?, headers),
        Some(number) => span(number),
        None => units(value),
    }
}

/// A span in the way Go writes it, such as `6m0s` or `20ms`.
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

/// From the answer's date to `time`; nothing if that is past, none if the answer has no date.
fn until(time: SystemTime, headers: &HeaderMap) -> Option<Duration> {
    let now = httpdate::parse_http_date(text(headers, DATE.as_str())?).ok()?;
    Some(time.duration_since(now).unwrap_or_default())
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
    fn each_way_to_say_it_is_understood() {
        let ms = |ms| Some(Duration::from_millis(ms));
        for (headers, expected) in [
            (vec![], None),
            (vec![("retry-after", "7")], ms(7_000)),
            (vec![("retry-after", "0.25")], ms(250)),
            (vec![("retry-after-ms", "1500"), ("retry-after", "2")], ms(1_500)),
            (vec![("retry-after", "Sun, 06 Nov 1994 08:50:07 GMT"), DATE_SENT], ms(30_000)),
            (vec![("retry-after", "Sun, 06 Nov 1994 08:00:00 GMT"), DATE_SENT], ms(0)),
            (vec![("retry-after", "Sun, 06 Nov 1994 08:50:07 GMT")], None),
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
        ] {
            assert_eq!(wait(&headers), expected, "{headers:?}");
        }
    }
}
