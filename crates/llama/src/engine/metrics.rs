//! Metrics of an engine: waiting and running requests, and computed tokens. `docs/metrics.md` describes each metric, and a
//! test compares the two.

use opentelemetry::metrics::{Counter, Gauge};
use opentelemetry::{KeyValue, StringValue, global};

/// Scope of the instruments.
const SCOPE: &str = "podium.llama";

/// Numbers of requests by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Standing {
    /// Waiting for a sequence.
    pub(super) waiting: usize,
    /// Decoding in a sequence.
    pub(super) writing: usize,
    /// Being read for the mini head, or waiting for that.
    pub(super) reading: usize,
}

/// The instruments of one engine.
pub(super) struct Metrics {
    requests: Gauge<u64>,
    tokens: Counter<u64>,
    /// In the order of [`Standing`]'s fields.
    states: [[KeyValue; 2]; 3],
    prompt: [KeyValue; 2],
    text: [KeyValue; 2],
    last: Option<Standing>,
}

impl Metrics {
    /// Creates the instruments for a conductor on the process's meter, which must be configured before.
    pub(super) fn new(conductor: &str) -> Self {
        let meter = &global::meter(SCOPE);
        let conductor =
            KeyValue::new("podium.conductor", StringValue::from(std::sync::Arc::<str>::from(conductor)));
        let with = |key: &'static str, value: &'static str| [conductor.clone(), KeyValue::new(key, value)];
        let mut metrics = Self {
            requests: meter
                .u64_gauge("podium.conductor.local.requests")
                .with_unit("{request}")
                .with_description("Requests that wait for the model or are worked on")
                .build(),
            tokens: meter
                .u64_counter("podium.conductor.local.tokens")
                .with_unit("{token}")
                .with_description("Tokens that the model computed")
                .build(),
            states: ["waiting", "writing", "reading"].map(|state| with("podium.state", state)),
            prompt: with("podium.kind", "prompt"),
            text: with("podium.kind", "text"),
            last: None,
        };
        metrics.stand(Standing::default());
        metrics
    }

    /// Records the current numbers of requests.
    pub(super) fn stand(&mut self, standing: Standing) {
        if self.last.replace(standing) == Some(standing) {
            return;
        }
        let Standing { waiting, writing, reading } = standing;
        for (count, state) in [waiting, writing, reading].into_iter().zip(&self.states) {
            self.requests.record(count as u64, state);
        }
    }

    /// Counts computed tokens of prompts and of texts.
    pub(super) fn computed(&self, prompt: usize, text: usize) {
        for (tokens, kind) in [(prompt, &self.prompt), (text, &self.text)] {
            if tokens > 0 {
                self.tokens.add(tokens as u64, kind);
            }
        }
    }
}
