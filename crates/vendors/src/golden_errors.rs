//! Golden files of rejections: the head and body that a vendor sends, the error that they become, and the limits that they report.
//!
//! The files were written by hand from the vendors' public documentation and from reports of their users.

use std::fmt::Write as _;

use podium_domain::ids::VendorId;
use podium_ports::limiter::{Allowance, Quota};
use reqwest::StatusCode;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use crate::errors::ErrorBuilder;
use crate::golden_tests::{cases, settings, write_error};
use crate::quota::quota;

/// Status, headers and body of a golden file.
fn response(file: &[u8]) -> (StatusCode, HeaderMap, &[u8]) {
    let end = file.windows(2).position(|pair| pair == b"\n\n").unwrap();
    let head = std::str::from_utf8(&file[..end]).unwrap();
    let (status, headers) = head.split_once('\n').unwrap_or((head, ""));
    let status = status.split(' ').nth(1).unwrap().parse().unwrap();
    let headers = headers.lines().map(|line| {
        let (name, value) = line.split_once(": ").unwrap();
        (HeaderName::try_from(name).unwrap(), HeaderValue::try_from(value).unwrap())
    });
    (status, headers.collect(), &file[end + 2..])
}

fn learnt(quota: &Quota) -> String {
    let kinds = [
        ("requests", quota.requests),
        ("tokens", quota.tokens),
        ("input tokens", quota.input_tokens),
        ("output tokens", quota.output_tokens),
    ];
    let mut text = String::new();
    for (kind, Allowance { limit, remaining }) in kinds {
        if let Some(limit) = limit {
            let left = remaining.map(|left| format!(", {left} left")).unwrap_or_default();
            let _ = writeln!(text, "{limit} {kind}{left}");
        }
    }
    text
}

#[test]
fn rejections_match_their_golden_files() {
    for vendor in ["openai", "anthropic", "gemini", "others"] {
        let folder = format!("errors/{vendor}");
        for (name, file) in cases(&folder) {
            let (status, headers, body) = response(&file);
            let errors = ErrorBuilder::new(VendorId::new("v").unwrap(), []);
            let mut text = String::new();
            write_error(&mut text, &errors.refused(status, &headers, body));
            text += &learnt(&quota(&headers));
            settings(&folder).bind(|| insta::assert_snapshot!(name, text));
        }
    }
}
