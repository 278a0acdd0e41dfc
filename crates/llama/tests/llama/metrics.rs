//! The engine's metrics match the documentation. Each test runs in its own process.

use std::num::NonZeroU16;

use podium_llama::engine::{EngineOptions, HiddenStates};
use podium_testkit::metrics::{Meters, assert_described};

use crate::reading::{SUM, values};
use crate::support::*;

const PAGE: &str = include_str!("../../../../docs/metrics.md");

#[tokio::test]
async fn requests_and_tokens_are_measured_as_documented() {
    let meters = Meters::start();
    let of = |name: &str, attribute: &str| {
        let measured = meters.read();
        measured[&format!("podium.conductor.local.{name}")]
            .value(&format!("podium.conductor=tiny-1,{attribute}"))
    };
    let standing =
        || ["waiting", "writing", "reading"].map(|state| of("requests", &format!("podium.state={state}")));
    let until = async |wanted: [u64; 3]| {
        while standing() != wanted {
            tokio::task::yield_now().await;
        }
    };
    let (sequences_max, hidden_states) = (NonZeroU16::MIN, HiddenStates::Readable);
    let options = EngineOptions { hidden_states, sequences_max, ..options() };
    let engine = load(options).unwrap();
    assert_eq!(standing(), [0, 0, 0]);

    let alone = completion(&engine, greedy(SUM)).await;
    until([0, 0, 0]).await;
    let (prompt, text) = (of("tokens", "podium.kind=prompt"), of("tokens", "podium.kind=text"));
    assert_eq!(prompt, alone.prompt_tokens as u64);
    // The last tokens are not computed, because nothing follows them.
    let written = alone.completion_tokens as u64;
    assert!((written / 2..=written).contains(&text), "{text} of {written}");

    let mut running = engine.handle().submit(endless()).unwrap();
    running.next_text().await.unwrap();
    let pending = engine.handle().submit(greedy(SUM)).unwrap();
    until([1, 1, 0]).await;
    drop(running);
    pending.finish().await.unwrap();
    until([0, 0, 0]).await;

    let before = of("tokens", "podium.kind=prompt");
    values(&engine, SUM).await;
    until([0, 0, 0]).await;
    assert!(of("tokens", "podium.kind=prompt") > before, "read prompts count as computed");
    assert_described(PAGE, "A local conductor", &meters.read());
}
