//! Tests of the pool file: defaults of a valid one, and the problems of invalid ones.

use super::*;
use crate::money::{Price, Prices};
use crate::time::Timestamp;

const GOOD: &str = r#"
schema = 1
name = "demo"
version = "1"

[[vendors]]
id = "local"
api = "openai-chat"
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
fn a_valid_file_gets_its_defaults() {
    let pool = Pool::parse(GOOD).unwrap();
    assert_eq!(pool.version(), "demo-1");
    let worker = &pool.workers()[0];
    assert_eq!(pool.worker(&worker.id), Some(worker));
    assert_eq!(worker.prices.latest().prices.cached_input, Price::from_usd_per_million_tokens(0.5).unwrap());
    assert_eq!(worker.modalities, [Modality::Text]);
    assert_eq!(worker.api, WireFormat::OpenaiChat);
    assert!(worker.takes(Feature::Temperature) && worker.takes(Feature::Seed));
    assert!(!worker.takes(Feature::Tools) && !worker.takes(Feature::Image) && !worker.takes_effort());
    assert_eq!(pool.vendor(&worker.vendor).unwrap().base_url, "http://127.0.0.1:8099/v1");
}

#[test]
fn a_worker_continues_traces_only_if_its_entry_says_so() {
    assert!(!Pool::parse(GOOD).unwrap().workers()[0].trace);
    let with = |value: &str| {
        Pool::parse(&GOOD.replace("context_tokens", &format!("trace = {value}\ncontext_tokens")))
    };
    assert!(with("true").unwrap().workers()[0].trace);
    assert!(with("1").unwrap_err().to_string().contains("expected a boolean"));
}

#[test]
fn every_silence_of_a_call_is_bounded() {
    let pool = |features: &str, limits: &str| {
        let more =
            format!("features = [{features}]\nlimits = {{ call_ms_max = 900_000{limits} }}\ncontext_tokens");
        Pool::parse(&GOOD.replace("context_tokens", &more))
    };
    let waits = |features, limits| pool(features, limits).unwrap().workers()[0].limits.waits;
    let usual = Waits { connect_ms_max: 5_000, first_byte_ms_max: 120_000, idle_ms_max: 60_000 };
    assert_eq!(waits("", ""), usual);
    // A worker that reasons may be silent meanwhile.
    assert_eq!(waits("\"effort\"", ""), Waits { first_byte_ms_max: 900_000, ..usual });
    let said = ", connect_ms_max = 1, first_byte_ms_max = 2, idle_ms_max = 3";
    let expected = Waits { connect_ms_max: 1, first_byte_ms_max: 2, idle_ms_max: 3 };
    assert_eq!(waits("\"effort\"", said), expected);
    for field in ["connect_ms_max", "first_byte_ms_max", "idle_ms_max"] {
        let refused = pool("", &format!(", {field} = 0")).unwrap_err().to_string();
        assert!(refused.contains(&format!("limits.{field} is 0, it must be 1 to 86400000")), "{refused}");
    }
}

#[test]
fn prices_change_on_their_day() {
    let lists = r"[
    { from = 2026-03-01, input = 1.0, output = 2.0 },
    { from = 2025-01-01, input = 3.0, cached_input = 0.3, cache_write = 3.75, output = 15.0, reasoning = 20.0 },
]";
    let pool = Pool::parse(&GOOD.replace("{ input = 0.5, output = 1.5 }", lists)).unwrap();
    let prices = &pool.workers()[0].prices;
    let at = |ms| prices.at(Timestamp::from_unix_ms(ms)).prices;
    let usd = |usd| Price::from_usd_per_million_tokens(usd).unwrap();
    // 2026-03-01T00:00:00Z, and the day of the first list.
    let (changed, first) = (1_772_323_200_000, 1_735_689_600_000);
    assert_eq!(at(changed), Prices::plain(usd(1.0), usd(2.0)));
    let before = at(changed - 1);
    assert_eq!((before.cached_input, before.cache_write), (usd(0.3), usd(3.75)));
    assert_eq!((before.output, before.reasoning), (usd(15.0), usd(20.0)));
    assert!(prices.is_valid_at(Timestamp::from_unix_ms(first)));
    assert!(!prices.is_valid_at(Timestamp::from_unix_ms(first - 1)));
}

#[test]
fn prices_of_long_prompts_have_the_same_defaults_and_bounds() {
    let read = |prices: &str| Pool::parse(&GOOD.replace("{ input = 0.5, output = 1.5 }", prices));
    let long = "{ above_tokens = 200_000, input = 4.0, cached_input = 0.4, output = 18.0 }";
    let pool = read(&format!("{{ input = 2.0, output = 12.0, long_prompt = {long} }}")).unwrap();
    let list = pool.workers()[0].prices.latest();
    let usd = |usd| Price::from_usd_per_million_tokens(usd).unwrap();
    let long = list.long_prompt.unwrap();
    assert_eq!((list.prices, long.above_tokens), (Prices::plain(usd(2.0), usd(12.0)), 200_000));
    assert_eq!(
        (long.prices.input, long.prices.cache_write, long.prices.reasoning),
        (usd(4.0), usd(5.0), usd(18.0))
    );
    for (long, problem) in [
        (
            "{ above_tokens = 0, input = 1.0, output = 1.0 }",
            "long_prompt.above_tokens is 0, it must be at least 1",
        ),
        ("{ above_tokens = 9, input = -1.0, output = 1.0 }", "long_prompt.input is -1, it must be 0 to 1e9"),
        ("{ input = 1.0, output = 1.0 }", "missing field `above_tokens`"),
    ] {
        let error = read(&format!("{{ input = 2.0, output = 12.0, long_prompt = {long} }}")).unwrap_err();
        assert!(error.to_string().contains(problem), "{error}");
    }
}

#[test]
fn certificates_of_a_vendor_need_a_path_and_tls() {
    let with = |scheme: &str, path: &str| {
        let entry = format!("root_certificates = \"{path}\"\nbase_url = \"{scheme}");
        Pool::parse(&GOOD.replace("base_url = \"http://", &entry))
    };
    assert_eq!(with("https://", "ca.pem").unwrap().vendors()[0].root_certificates.as_deref(), Some("ca.pem"));
    for (url, path, problem) in [
        ("http://", "ca.pem", "root_certificates needs a base_url that begins with https://"),
        ("https://", "", "root_certificates is empty, it must be the path of a PEM file"),
    ] {
        let error = with(url, path).unwrap_err().to_string();
        assert!(error.contains(problem), "{error}");
    }
}

#[test]
fn a_cache_write_costs_a_quarter_more_if_caching_is_priced() {
    let written = |prices: &str| {
        let pool = Pool::parse(&GOOD.replace("{ input = 0.5, output = 1.5 }", prices)).unwrap();
        pool.workers()[0].prices.latest().prices.cache_write.usd_per_million_tokens()
    };
    for (prices, usd) in [
        ("{ input = 2.0, output = 8.0 }", 2.0),
        ("{ input = 2.0, cached_input = 0.2, output = 8.0 }", 2.5),
        ("{ input = 2.0, cached_input = 0.2, cache_write = 2.0, output = 8.0 }", 2.0),
    ] {
        assert!((written(prices) - usd).abs() < 1e-9, "{prices}");
    }
}

#[test]
fn keys_have_exactly_one_of_three_forms() {
    let keys = |lines: &str| {
        let pool = Pool::parse(&GOOD.replace("api_key_env = \"LOCAL_KEY\"", lines));
        pool.map(|pool| pool.vendors()[0].keys.clone()).map_err(|error| error.to_string())
    };
    let env = |name: &str| SecretRef::Env(name.to_owned());
    assert_eq!(keys("api_key_env = \"A\""), Ok(vec![env("A")]));
    assert_eq!(keys("api_keys_env = [\"A\", \"B\"]"), Ok(vec![env("A"), env("B")]));
    assert_eq!(keys("api_key_file = \"/run/k\""), Ok(vec![SecretRef::File("/run/k".to_owned())]));
    assert_eq!(keys(""), Ok(Vec::new()));
    for (lines, said) in [
        ("api_keys_env = [\"A\", \"A\"]", "environment variable A occurs twice"),
        ("api_keys_env = [\"sk-abc\"]", "api_keys_env must name an environment variable"),
        ("api_keys_env = []", "api_keys_env must have 1 to 64 entries"),
        (
            "api_key_env = \"A\"\napi_key_file = \"/k\"",
            "use one of api_key_env, api_keys_env and api_key_file",
        ),
        ("api_key_file = \"\"", "api_key_file must be the path of a file"),
    ] {
        let refused = keys(lines).unwrap_err();
        assert!(refused.contains(said) && !refused.contains("sk-abc"), "{lines}: {refused}");
    }
}

#[test]
fn headers_and_body_fields_come_from_vendor_and_worker() {
    let vendor = "headers = { OpenAI-Project = \"p\", x-team = \"env:TEAM\" }\nbase_url";
    let worker = "body = { service_tier = \"flex\", options = { num_ctx = 8, ratio = 0.5 } }\nmodel = ";
    let pool = Pool::parse(&GOOD.replace("base_url", vendor).replace("model = ", worker)).unwrap();
    let headers = &pool.vendors()[0].extras.headers;
    assert_eq!(headers["openai-project"], HeaderText::Plain("p".to_owned()));
    assert_eq!(headers["x-team"], HeaderText::Secret(SecretRef::Env("TEAM".to_owned())));
    let body = serde_json::json!({ "service_tier": "flex", "options": { "num_ctx": 8, "ratio": 0.5 } });
    assert_eq!(serde_json::Value::Object(pool.workers()[0].extras.body.clone()), body);
}

#[test]
fn headers_and_body_fields_that_podium_sets_are_refused_by_name() {
    for (at, line, said) in [
        (
            "base_url",
            "headers = { Content-Type = \"x\" }",
            "vendors `local`: headers.Content-Type cannot be set",
        ),
        ("base_url", "headers = { Authorization = \"x\" }", "headers.authorization is set already"),
        ("model = ", "headers = { host = \"x\" }", "workers `small`: headers.host cannot be set"),
        ("model = ", "headers = { \"a b\" = \"x\" }", "headers.a b is not a valid header name"),
        ("model = ", "headers = { a = \"x\\ny\" }", "headers.a must be 1 to 4096 printable"),
        ("model = ", "headers = { a = \"env:sk-abc\" }", "headers.a must name an environment variable"),
        ("model = ", "headers = { a = \"x\", A = \"y\" }", "occurs twice"),
        ("base_url", "body = { model = \"x\" }", "vendors `local`: body.model cannot be set"),
        ("model = ", "body = { max_tokens = 5 }", "workers `small`: body.max_tokens cannot be set"),
        ("model = ", "body = { since = 2026-01-01 }", "body.since has the date"),
        ("model = ", "body = { weight = nan }", "body.weight has the number NaN"),
        ("base_url", "token_limit_field = \"tokens\"", "unknown variant `tokens`"),
    ] {
        let refused = Pool::parse(&GOOD.replace(at, &format!("{line}\n{at}"))).unwrap_err().to_string();
        assert!(refused.contains(said) && !refused.contains("sk-abc"), "{line}: {refused}");
    }
    let gemini = GOOD.replace("openai-chat", "gemini");
    let nested = |field: &str| {
        gemini.replace("model = ", &format!("body = {{ generationConfig = {{ {field} = 5 }} }}\nmodel = "))
    };
    assert!(Pool::parse(&nested("maxOutputTokens")).is_err());
    assert!(Pool::parse(&nested("mediaResolution")).is_ok());
}

#[test]
fn an_unsupported_effort_becomes_the_nearest() {
    let nearest = |lines: &str, wanted: &str| {
        let toml = GOOD.replace("model = ", &format!("{lines}\nmodel = "));
        let pool = Pool::parse(&toml).unwrap();
        pool.workers()[0].nearest_effort(Effort::from_name(wanted).unwrap()).as_str()
    };
    for (lines, wanted, sent) in [
        ("", "max", "xhigh"),
        ("api = \"anthropic\"", "max", "max"),
        ("", "none", "none"),
        ("api = \"anthropic\"", "none", "low"),
        ("api = \"gemini\"", "minimal", "low"),
        ("api = \"gemini\"", "max", "high"),
        ("api = \"gemini\"\nefforts = [\"minimal\", \"high\", \"xhigh\"]", "max", "xhigh"),
        ("efforts = [\"low\", \"high\"]", "medium", "low"),
        ("efforts = [\"low\", \"high\"]", "none", "low"),
    ] {
        assert_eq!(nearest(lines, wanted), sent, "{lines} {wanted}");
    }
    let empty = GOOD.replace("model = ", "efforts = []\nmodel = ");
    assert!(Pool::parse(&empty).unwrap_err().to_string().contains("efforts must have at least one entry"));
}

#[test]
fn wrong_price_lists_are_named() {
    for (lists, said) in [
        ("[]", "there is no price list"),
        (
            "[{ from = 2026-03-01, input = 1.0, output = 2.0 }, { from = 2026-03-01, input = 1, output = 2 }]",
            "two price lists have the same `from`",
        ),
        ("{ from = 2026-03-01T10:00:00Z, input = 1.0, output = 2.0 }", "it must be a day"),
        ("{ input = 1.0, output = 2.0, reasoning = -1.0 }", "usd_per_million_tokens.reasoning is -1"),
        ("{ input = 1.0, output = 2.0, thinking = 1.0 }", "unknown field `thinking`"),
        ("5", "a table of prices"),
    ] {
        let text =
            Pool::parse(&GOOD.replace("{ input = 0.5, output = 1.5 }", lists)).unwrap_err().to_string();
        assert!(text.contains(said), "{lists}: {text}");
    }
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
fn limits_are_those_of_the_worker_and_of_its_vendors_account() {
    let limits =
        "limits = { in_flight_max = 3, requests_per_minute = 60, output_tokens_per_minute = 8000 }\nmodel = ";
    let account = "limits = { tokens_per_minute = 90000 }\nbase_url";
    let pool = Pool::parse(&GOOD.replace("model = ", limits).replace("base_url", account)).unwrap();
    let of_vendor = pool.vendors()[0].limits;
    let of_worker = pool.workers()[0].limits;
    assert_eq!((of_worker.in_flight_max, of_worker.rates.requests_per_minute), (3, Some(60)));
    assert_eq!(of_worker.rates.output_tokens_per_minute, Some(8_000));
    assert_eq!(of_worker.rates.tokens_per_minute, None);
    assert_eq!(of_worker.account, of_vendor);
    assert_eq!((of_vendor.in_flight_max, of_vendor.rates.tokens_per_minute), (None, Some(90_000)));
    assert_eq!(Pool::parse(GOOD).unwrap().workers()[0].limits.rates, Rates::default());
}

#[test]
fn limits_that_are_out_of_bounds_are_refused_by_name() {
    let refusal = |at: &str, limits: &str| {
        Pool::parse(&GOOD.replace(at, &format!("limits = {{ {limits} }}\n{at}"))).unwrap_err().to_string()
    };
    for field in ["requests_per_minute", "tokens_per_minute", "input_tokens_per_minute", "in_flight_max"] {
        for at in ["model = ", "base_url"] {
            let said = refusal(at, &format!("{field} = 0"));
            assert!(said.contains(&format!("limits.{field} is 0, it must be 1 to")), "{said}");
        }
    }
    assert!(refusal("base_url", "call_ms_max = 5").contains("unknown field `call_ms_max`"));
}

#[test]
fn an_unknown_vendor_a_duplicate_and_an_empty_pool_are_refused() {
    let text = |toml: &str| Pool::parse(toml).unwrap_err().to_string();
    assert!(
        text(&GOOD.replace("vendor = \"local\"", "vendor = \"other\"")).contains("`other` is not defined")
    );
    let worker = &GOOD[GOOD.find("[[workers]]").unwrap()..];
    assert!(text(&format!("{GOOD}\n{worker}")).contains("`small` occurs twice"));
    assert!(text("schema = 1\nname = \"x\"\nversion = \"1\"").contains("at least one"));
    assert!(text(&GOOD.replace("schema = 1", "schema = 1\nfoo = 2")).contains("unknown field `foo`"));
}

#[test]
fn a_worker_has_the_wire_format_of_its_vendor_by_default() {
    let pool = Pool::parse(&GOOD.replace("model = ", "api = \"openai-responses\"\nmodel = ")).unwrap();
    let worker = &pool.workers()[0];
    assert_eq!(worker.api, WireFormat::OpenaiResponses);
    assert!(worker.takes(Feature::Temperature) && !worker.takes(Feature::Seed), "it has no seed");
    let pool = Pool::parse(&GOOD.replace("openai-chat", "anthropic")).unwrap();
    assert_eq!(pool.workers()[0].api, WireFormat::Anthropic);
}

#[test]
fn the_key_header_is_that_of_the_vendor_or_the_wire_format() {
    let header = |toml: &str| {
        let pool = Pool::parse(toml).unwrap();
        pool.vendors()[0].key_header(pool.workers()[0].api)
    };
    let named = |name: &str| KeyHeader::Named(name.to_owned());
    assert_eq!(header(GOOD), KeyHeader::Bearer);
    assert_eq!(header(&GOOD.replace("openai-chat", "anthropic")), named("x-api-key"));
    assert_eq!(header(&GOOD.replace("openai-chat", "gemini")), named("x-goog-api-key"));
    let with = |name: &str| GOOD.replace("base_url", &format!("key_header = \"{name}\"\nbase_url"));
    assert_eq!(header(&with("API-Key")), named("api-key"));
    assert_eq!(header(&with("Authorization").replace("openai-chat", "anthropic")), KeyHeader::Bearer);
    assert!(Pool::parse(&with("api key")).unwrap_err().to_string().contains("key_header must be"));
}

#[test]
fn unsupported_features_are_refused() {
    let problem = |api: &str, features: &str| {
        let toml =
            GOOD.replace("openai-chat", api).replace("model = ", &format!("features = {features}\nmodel = "));
        Pool::parse(&toml).map(|_| ()).map_err(|e| e.to_string())
    };
    for (api, feature) in [
        ("anthropic", "seed"),
        ("anthropic", "json_object"),
        ("openai-responses", "stop"),
        ("openai-chat", "thinking_budget"),
        ("gemini", "cache_hint"),
    ] {
        let said = problem(api, &format!("[\"{feature}\"]")).unwrap_err();
        assert!(said.contains(&format!("api `{api}` does not support `{feature}`")), "{said}");
    }
    assert!(
        problem("gemini", r#"["effort", "thinking_budget"]"#).unwrap_err().contains("exclude each other")
    );
    assert!(problem("anthropic", r#"["one_tool_call"]"#).unwrap_err().contains("needs `tools`"));
    assert!(problem("anthropic", r#"["image"]"#).is_err(), "images are a modality");
    assert!(problem("anthropic", r#"["pdf"]"#).is_err(), "PDFs are a modality");
    assert_eq!(problem("anthropic", r#"["tools", "one_tool_call", "thinking_budget"]"#), Ok(()));
}

#[test]
fn the_pools_of_the_project_are_valid() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../pools");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let pool = Pool::parse(&std::fs::read_to_string(&path).unwrap());
        pool.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        count += 1;
    }
    assert!(count >= 4, "{count} pools");
}

/// Workers of two vendors, with different prices.
const PRICED: &str = r#"
schema = 1
name = "priced"
version = "1"
vendors = [
    { id = "here", api = "openai-chat", base_url = "http://127.0.0.1:1" },
    { id = "there", api = "openai-chat", base_url = "http://127.0.0.1:2" },
]
workers = [
    { id = "a", vendor = "here", model = "a", description = "", context_tokens = 9999, usd_per_million_tokens = { input = 1.0, output = 1.0 } },
    { id = "b", vendor = "here", model = "b", description = "", context_tokens = 9999, usd_per_million_tokens = { input = 1.1, output = 1.1 } },
    { id = "c", vendor = "there", model = "c", description = "", context_tokens = 9999, usd_per_million_tokens = { input = 9.0, output = 9.0 } },
    { id = "d", vendor = "there", model = "d", description = "", context_tokens = 9999, usd_per_million_tokens = { input = 0.5, output = 0.5 } },
]
"#;

#[test]
fn fallbacks_are_named_or_of_another_vendor_and_near_in_price() {
    let toml = PRICED.replace(r#"description = """#, r#"description = "one""#);
    let of = |toml: &str, id: &str| {
        let pool = Pool::parse(toml).unwrap();
        let worker = pool.worker(&WorkerId::new(id).unwrap()).unwrap();
        pool.fallbacks_of(worker).iter().map(|worker| worker.id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(of(&toml, "a"), ["d", "c", "b"]);
    assert_eq!(of(&toml, "c"), ["b", "a", "d"]);
    let named = toml.replace(r#"model = "a""#, r#"model = "a", fallbacks = ["b", "c"]"#);
    assert_eq!(of(&named, "a"), ["b", "c"]);
    assert_eq!(of(&toml.replace(r#"model = "a""#, r#"model = "a", fallbacks = []"#), "a"), [""; 0]);
    for bad in ["a", "e"] {
        let toml = toml.replace(r#"model = "a""#, &format!(r#"model = "a", fallbacks = ["{bad}"]"#));
        let text = Pool::parse(&toml).unwrap_err().to_string();
        assert!(
            text.contains(&format!("workers `a`: fallbacks: `{bad}` must be another worker of the pool")),
            "{text}"
        );
    }
}
