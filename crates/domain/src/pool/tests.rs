//! A good pool file reads; a bad one is refused with everything that is wrong with it.

use super::*;
use crate::money::Price;

const GOOD: &str = r#"
schema = 1
name = "demo"
version = "1"

[[vendors]]
id = "local"
kind = "openai-compatible"
base_url = "http://127.0.0.1:8099/v1/"
api_key_env = "LOCAL_KEY"

[[workers]]
id = "small"
vendor = "local"
model = "small-model"
description = "a small model"
context_tokens = 8192
usd_per_million_tokens = { input = 0.5, output = 1.5 }
"#;

#[test]
fn a_good_file_reads_with_its_defaults() {
    let pool = Pool::parse(GOOD).unwrap();
    assert_eq!(pool.version(), "demo-1");
    let worker = &pool.workers()[0];
    assert_eq!(pool.worker(&worker.id), Some(worker));
    assert_eq!(worker.prices.cached_input, Price::from_usd_per_million_tokens(0.5).unwrap());
    assert_eq!(worker.modalities, [Modality::Text]);
    assert_eq!(pool.vendor(&worker.vendor).unwrap().base_url, "http://127.0.0.1:8099/v1");
}

#[test]
fn every_problem_is_listed_at_once() {
    let bad = GOOD
        .replace("http://", "ftp://")
        .replace("LOCAL_KEY", "sk-abc")
        .replace("input = 0.5", "input = -1.0")
        .replace("context_tokens = 8192", "context_tokens = 0");
    let Err(PoolError::Invalid(problems)) = Pool::parse(&bad) else { panic!("must be refused") };
    for part in ["base_url", "api_key_env", "usd_per_million_tokens.input", "context_tokens"] {
        assert!(problems.iter().any(|p| p.contains(part)), "{part} is not in {problems:?}");
    }
}

#[test]
fn an_unknown_vendor_a_double_and_an_empty_pool_are_refused() {
    let text = |toml: &str| Pool::parse(toml).unwrap_err().to_string();
    assert!(
        text(&GOOD.replace("vendor = \"local\"", "vendor = \"other\"")).contains("`other` is not defined")
    );
    let worker = &GOOD[GOOD.find("[[workers]]").unwrap()..];
    assert!(text(&format!("{GOOD}\n{worker}")).contains("`small` occurs twice"));
    assert!(text("schema = 1\nname = \"x\"\nversion = \"1\"").contains("at least one"));
    assert!(text(&GOOD.replace("schema = 1", "schema = 1\nfoo = 2")).contains("unknown field `foo`"));
}
