//! Sampling parameters that a client may request for every worker call of a run.

use serde::{Deserialize, Serialize};

use crate::pool::{Feature, Worker};
use crate::run::StepRef;
use crate::split_mix::split_mix;

/// The highest temperature of all vendors, as in OpenAI and Gemini.
pub const TEMPERATURE_MAX: f32 = 2.0;
/// The highest `top_p`: the whole probability mass.
pub const TOP_P_MAX: f32 = 1.0;

/// The requested sampling of a run's workers. Clients name no worker, so a worker that does not support a parameter is called
/// without it. Conductors have their own sampling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sampling {
    /// 0 to [`TEMPERATURE_MAX`]; the vendor's default when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f32>,
    /// 0 to [`TOP_P_MAX`]: sample from the most likely tokens up to this probability mass; the vendor's default when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f32>,
    /// The same seed gives the same answer, as far as a vendor supports it. It also seeds the conductor. Each step has a seed that
    /// follows from it: see [`Sampling::for_step`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u32>,
}

/// A parameter is out of its bounds.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("{field} is {value}, it must be 0 to {max}")]
pub struct SamplingError {
    /// The name of the parameter.
    pub field: &'static str,
    /// Its value.
    pub value: f32,
    /// The largest permitted value.
    pub max: f32,
}

impl Sampling {
    /// The vendors' defaults.
    pub const NONE: Self = Self { temperature: None, top_p: None, seed: None };

    /// Whether no parameter is set.
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

    /// The sampling of a step. The first step of a run has the requested seed, and each other one a different seed that follows from
    /// it: workers that are asked the same question twice, for a vote, would otherwise give the same answer twice.
    #[must_use]
    pub fn for_step(self, step: StepRef) -> Self {
        let number = (u64::from(step.round) << 16) | u64::from(step.step.get());
        // Gemini takes seeds of 31 bits.
        let derived = |seed: u32| match number {
            0 => seed,
            number => u32::try_from(split_mix(u64::from(seed), number) >> 33).unwrap_or(seed),
        };
        Self { seed: self.seed.map(derived), ..self }
    }

    /// The parameters that `worker` supports, with the temperature reduced to the highest that it accepts.
    ///
    /// In some wire formats a worker that reasons accepts neither temperature nor `top_p`; its effort matters more.
    #[must_use]
    pub fn for_worker(self, worker: &Worker) -> Self {
        let draws = worker.api.samples_while_reasoning() || !worker.takes_effort();
        let temperature = self.temperature.map(|temperature| temperature.min(worker.api.temperature_max()));
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
    use crate::ids::StepIndex;
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
    fn each_step_has_its_own_seed() {
        let seed = |round, step| ALL.for_step(StepRef { round, step: StepIndex::new(step) }).seed.unwrap();
        assert_eq!(seed(0, 0), 7);
        let mut seeds: Vec<u32> =
            (0..3).flat_map(|round| (0..20).map(move |step| seed(round, step))).collect();
        assert!(seeds.iter().all(|seed| i32::try_from(*seed).is_ok()));
        seeds.sort_unstable();
        seeds.dedup();
        assert_eq!(seeds.len(), 60);
        assert_eq!(Sampling::NONE.for_step(StepRef { round: 1, step: StepIndex::new(1) }), Sampling::NONE);
    }

    #[test]
    fn a_parameter_out_of_bounds_is_named() {
        assert_eq!(ALL.check(), Ok(()));
        for temperature in [-0.1, 2.1, f32::NAN, f32::INFINITY] {
            let refused = Sampling { temperature: Some(temperature), ..Sampling::NONE }.check().unwrap_err();
            assert_eq!(refused.to_string(), format!("temperature is {temperature}, it must be 0 to 2"));
        }
        let refused = Sampling { top_p: Some(1.5), ..ALL }.check().unwrap_err();
        assert_eq!(refused.to_string(), "top_p is 1.5, it must be 0 to 1");
    }

    #[test]
    fn a_worker_gets_the_parameters_that_it_supports() {
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
    fn stored_parameters_are_read_unchanged() {
        assert_eq!(serde_json::to_string(&Sampling::NONE).unwrap(), "{}");
        let stored = r#"{"temperature":1.5,"top_p":0.5,"seed":7}"#;
        assert_eq!(serde_json::to_string(&ALL).unwrap(), stored);
        assert_eq!(serde_json::from_str::<Sampling>(stored).unwrap(), ALL);
    }
}
