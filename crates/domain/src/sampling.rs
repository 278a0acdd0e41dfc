//! How workers choose their words: what a client may ask of every call of a run.

use serde::{Deserialize, Serialize};

use crate::pool::{Feature, WireFormat, Worker};

/// The highest temperature that anybody may ask for, as OpenAI and Gemini have it.
pub const TEMPERATURE_MAX: f32 = 2.0;
/// The highest one that Anthropic knows.
pub const ANTHROPIC_TEMPERATURE_MAX: f32 = 1.0;
/// The highest `top_p`: all of the mass.
pub const TOP_P_MAX: f32 = 1.0;

/// How the workers of a run are to choose their words. It is a wish: a client names no worker, so a worker that does not take a
/// part of it is called without that part. Conductors have a sampling of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sampling {
    /// 0 to [`TEMPERATURE_MAX`]; the vendor's default when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f32>,
    /// 0 to [`TOP_P_MAX`]: draw from the likeliest tokens of that mass; the vendor's default when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f32>,
    /// The same seed gives the same words, as far as a vendor can promise that. It seeds the conductor as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u32>,
}

/// A part of a sampling that is out of its bounds.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("{field} is {value}, it must be 0 to {max}")]
pub struct SamplingError {
    /// Which part.
    pub field: &'static str,
    /// What it was.
    pub value: f32,
    /// The most that is allowed.
    pub max: f32,
}

impl Sampling {
    /// Every part as the vendors have it.
    pub const NONE: Self = Self { temperature: None, top_p: None, seed: None };

    /// Whether nothing is asked for.
    pub fn is_none(&self) -> bool {
        *self == Self::NONE
    }

    /// Checks every bound.
    pub fn check(&self) -> Result<(), SamplingError> {
        let parts = [("temperature", self.temperature, TEMPERATURE_MAX), ("top_p", self.top_p, TOP_P_MAX)];
        for (field, value, max) in parts {
            if let Some(value) = value.filter(|value| !(0.0..=max).contains(value)) {
                return Err(SamplingError { field, value, max });
            }
        }
        Ok(())
    }

    /// What of it `worker` can be asked for; a temperature above the highest that it knows becomes that one.
    ///
    /// A worker that reasons at Anthropic takes neither temperature nor `top_p`, and how hard it reasons matters more.
    #[must_use]
    pub fn for_worker(self, worker: &Worker) -> Self {
        let is_anthropic = worker.api == WireFormat::Anthropic;
        let draws = !(is_anthropic && worker.takes_effort());
        let temperature_max = if is_anthropic { ANTHROPIC_TEMPERATURE_MAX } else { TEMPERATURE_MAX };
        let temperature = self.temperature.map(|temperature| temperature.min(temperature_max));
        Self {
            temperature: temperature.filter(|_| draws && worker.takes(Feature::Temperature)),
            top_p: self.top_p.filter(|_| draws && worker.takes(Feature::TopP)),
            seed: self.seed.filter(|_| worker.takes(Feature::Seed)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::Pool;

    const ALL: Sampling = Sampling { temperature: Some(1.5), top_p: Some(0.5), seed: Some(7) };

    fn worker(api: &str, features: &str) -> Worker {
        let toml = format!(
            r#"
            schema = 1
            name = "s"
            version = "1"
            vendors = [{{ id = "v", api = "{api}", base_url = "http://127.0.0.1:1" }}]
            [[workers]]
            id = "w"
            vendor = "v"
            model = "m"
            description = "a worker"
            {features}
            context_tokens = 8192
            usd_per_million_tokens = {{ input = 1.0, output = 1.0 }}
            "#
        );
        Pool::parse(&toml).unwrap().workers()[0].clone()
    }

    #[test]
    fn a_part_out_of_its_bounds_is_named() {
        assert_eq!(ALL.check(), Ok(()));
        for temperature in [-0.1, 2.1, f32::NAN, f32::INFINITY] {
            let refused = Sampling { temperature: Some(temperature), ..Sampling::NONE }.check().unwrap_err();
            assert_eq!(refused.to_string(), format!("temperature is {temperature}, it must be 0 to 2"));
        }
        let refused = Sampling { top_p: Some(1.5), ..ALL }.check().unwrap_err();
        assert_eq!(refused.to_string(), "top_p is 1.5, it must be 0 to 1");
    }

    #[test]
    fn a_worker_is_asked_for_what_it_takes() {
        assert_eq!(ALL.for_worker(&worker("openai-chat", "")), ALL);
        assert_eq!(ALL.for_worker(&worker("openai-chat", "features = []")), Sampling::NONE);
        let seeded = Sampling { seed: Some(7), ..Sampling::NONE };
        assert_eq!(ALL.for_worker(&worker("openai-chat", "features = [\"seed\", \"effort\"]")), seeded);
        let cool = Sampling { temperature: Some(1.0), top_p: Some(0.5), seed: None };
        assert_eq!(ALL.for_worker(&worker("anthropic", "")), cool);
        let thinker = worker("anthropic", r#"features = ["temperature", "top_p", "effort"]"#);
        assert_eq!(ALL.for_worker(&thinker), Sampling::NONE);
    }

    #[test]
    fn what_is_stored_reads_back_and_nothing_is_nothing() {
        assert_eq!(serde_json::to_string(&Sampling::NONE).unwrap(), "{}");
        let stored = r#"{"temperature":1.5,"top_p":0.5,"seed":7}"#;
        assert_eq!(serde_json::to_string(&ALL).unwrap(), stored);
        assert_eq!(serde_json::from_str::<Sampling>(stored).unwrap(), ALL);
    }
}
