//! Calls of workers, under the names of OpenTelemetry's conventions for generative models (version 1.41), so that common dashboards
//! show them.

use std::collections::HashMap;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Histogram, Meter};
use podium_domain::ids::WorkerId;
use podium_domain::pool::{Pool, Worker};
use podium_ports::limiter::{Outcome, Settlement};

use super::instruments::{WORKER, seconds};

/// Bounds in seconds, from the conventions.
const DURATIONS_S: [f64; 14] =
    [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];
/// Bounds in tokens, from the conventions: powers of 4.
const TOKENS: [f64; 14] = [
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1_024.0,
    4_096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];

/// Instruments of calls.
pub(crate) struct Calls {
    duration: Histogram<f64>,
    first_chunk: Histogram<f64>,
    tokens: Histogram<u64>,
    misreported: Counter<u64>,
    workers: HashMap<WorkerId, [KeyValue; 4]>,
}

/// The measurements of one call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallMeter {
    /// The time from sending it to its end.
    pub(crate) took: Duration,
    /// The report to the limiter.
    pub(crate) settlement: Settlement,
}

impl Calls {
    pub(super) fn new(meter: &Meter, pool: &Pool) -> Self {
        let workers: HashMap<_, _> =
            pool.workers_and_retired().map(|worker| (worker.id.clone(), attributes(worker))).collect();
        let misreported = meter
            .u64_counter("podium.call.usage_misreported")
            .with_unit("{call}")
            .with_description("Calls whose vendor reported more usage than the call can have taken")
            .build();
        for [_, _, _, worker] in workers.values() {
            // Zero, so that a worker's first such call is an increase of the series.
            misreported.add(0, std::slice::from_ref(worker));
        }
        Self {
            duration: seconds(
                meter,
                "gen_ai.client.operation.duration",
                "Duration of calls of workers",
                &DURATIONS_S,
            ),
            first_chunk: seconds(
                meter,
                "gen_ai.client.operation.time_to_first_chunk",
                "Time from a call of a worker to the first text of its answer",
                &DURATIONS_S,
            ),
            tokens: meter
                .u64_histogram("gen_ai.client.token.usage")
                .with_unit("{token}")
                .with_description("Tokens of calls of workers, as far as known")
                .with_boundaries(TOKENS.to_vec())
                .build(),
            misreported,
            workers,
        }
    }

    /// Counts a call whose vendor reported more usage than the call can have taken.
    pub(crate) fn misreported(&self, worker: &WorkerId) {
        if let Some([_, _, _, worker]) = self.workers.get(worker) {
            self.misreported.add(1, std::slice::from_ref(worker));
        }
    }

    /// Measures a call that was sent and has ended.
    pub(crate) fn ended(&self, worker: &WorkerId, CallMeter { took, settlement }: CallMeter) {
        let error = match settlement.outcome {
            Outcome::NotSent => return,
            Outcome::Answered => None,
            Outcome::Refused => Some("refused"),
            Outcome::Limited { .. } => Some("limited"),
            Outcome::Overloaded => Some("overloaded"),
            Outcome::Failed => Some("failed"),
            Outcome::Unknown => Some("broken_off"),
        };
        let Some(own) = self.workers.get(worker) else { return };
        let with = |key: &'static str, value: &'static str| {
            let [operation, provider, model, worker] = own.clone();
            [operation, provider, model, worker, KeyValue::new(key, value)]
        };
        match error {
            None => self.duration.record(took.as_secs_f64(), own),
            Some(error) => self.duration.record(took.as_secs_f64(), &with("error.type", error)),
        }
        if let Some(first) = settlement.first_token {
            self.first_chunk.record(first.as_secs_f64(), own);
        }
        if let Some(usage) = settlement.usage {
            self.tokens.record(usage.prompt_tokens, &with("gen_ai.token.type", "input"));
            self.tokens.record(usage.completion_tokens, &with("gen_ai.token.type", "output"));
        }
    }
}

fn attributes(worker: &Worker) -> [KeyValue; 4] {
    // Many vendors share a wire format, so the pool names the provider.
    let provider = worker.api.provider().unwrap_or(worker.vendor.as_str());
    [
        KeyValue::new("gen_ai.operation.name", "chat"),
        KeyValue::new("gen_ai.provider.name", shared(provider)),
        KeyValue::new("gen_ai.request.model", shared(&worker.model)),
        KeyValue::new(WORKER, shared(worker.id.as_str())),
    ]
}

/// Text that is cheap to clone.
fn shared(text: &str) -> std::sync::Arc<str> {
    text.into()
}
