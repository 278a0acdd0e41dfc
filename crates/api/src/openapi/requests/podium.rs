//! The schema of the parameter `podium`, which all APIs have.

use podium_domain::policy::{
    ATTEMPTS_MAX, BrokenAnswer, DEADLINE_MAX, FailedStep, OUTPUT_BYTES_MAX, PoolRule, ROUNDS_MAX, STEPS_MAX,
    SUSPENDED_MAX, SUSPENDED_MIN, StepTools, TURNS_MAX,
};
use serde_json::{Value, json};

use super::forms::{flag, integer, list, maybe, object, one_of};

/// The options of a run.
pub(super) fn schema() -> Value {
    let ms = |span: std::time::Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    let worker = json!({"type": "string", "pattern": "^[A-Za-z0-9._:/-]{1,64}$", "examples": ["quick"]});
    object(
        &[
            ("steps_max", integer(1, STEPS_MAX.into())),
            ("rounds_max", integer(1, ROUNDS_MAX.into())),
            ("attempts_max", integer(1, ATTEMPTS_MAX.into())),
            ("deadline_ms", integer(1, ms(DEADLINE_MAX))),
            ("cost_max_nano_usd", integer(0, u64::MAX)),
            ("output_bytes_max", integer(1, OUTPUT_BYTES_MAX as u64)),
            ("workers_allowed", maybe(&list(&worker, podium_domain::pool::WORKERS_MAX))),
            ("fallback", maybe(&one_of(&PoolRule::ALL.map(PoolRule::as_str)))),
            ("broken_answer", maybe(&one_of(&BrokenAnswer::ALL.map(BrokenAnswer::as_str)))),
            ("failed_step", maybe(&one_of(&FailedStep::ALL.map(FailedStep::as_str)))),
            ("step_cache", maybe(&one_of(&["off", "exact"]))),
            ("tools", maybe(&one_of(&StepTools::ALL.map(StepTools::as_str)))),
            ("turns_max", integer(1, TURNS_MAX.into())),
            ("suspended_ms_max", integer(ms(SUSPENDED_MIN), ms(SUSPENDED_MAX))),
            ("show_steps", maybe(&flag())),
        ],
        &[],
    )
}
