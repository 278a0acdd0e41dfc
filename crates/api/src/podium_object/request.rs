//! The object `podium` in a request's body: options that the vendors' APIs do not have. Clients send it as `extra_body`.
//!
//! Its members have the names and bounds of `Policy` in the gRPC API. A missing member has the default of the tier and the
//! effort.

use std::collections::BTreeSet;
use std::time::Duration;

use podium_domain::ids::WorkerId;
use podium_domain::money::Cost;
use podium_domain::policy::{
    ATTEMPTS_MAX, BrokenAnswer, DEADLINE_MAX, FailedStep, OUTPUT_BYTES_MAX, Policy, PoolRule, ROUNDS_MAX,
    STEPS_MAX, SUSPENDED_MAX, SUSPENDED_MIN, StepCaching, StepTools, TURNS_MAX, WorkersAllowed,
};
use podium_domain::pool::WORKERS_MAX;

use crate::field::{Field, unknown};
use crate::{ApiError, ErrorCode};

/// Sets the bounds that the object names, and rejects unknown members.
pub(crate) fn bound(field: &Field<'_>, policy: &mut Policy) -> Result<(), ApiError> {
    let object = field.object()?;
    field.only(object, &NAMES)?;
    for (name, value) in object {
        let member = Field::new(format!("{}.{name}", field.path), value);
        if value.is_null() {
            continue;
        }
        set(name, &member, policy)?;
    }
    Ok(())
}

/// All members.
const NAMES: [&str; 15] = [
    "steps_max",
    "rounds_max",
    "attempts_max",
    "deadline_ms",
    "cost_max_nano_usd",
    "output_bytes_max",
    "workers_allowed",
    "fallback",
    "broken_answer",
    "failed_step",
    "step_cache",
    "tools",
    "turns_max",
    "suspended_ms_max",
    "show_steps",
];

fn set(name: &str, field: &Field<'_>, policy: &mut Policy) -> Result<(), ApiError> {
    match name {
        "steps_max" => policy.steps_max = narrow(field, STEPS_MAX)?,
        "rounds_max" => policy.rounds_max = narrow(field, ROUNDS_MAX)?,
        "attempts_max" => policy.attempts_max = field.integer(1, ATTEMPTS_MAX)?,
        "deadline_ms" => {
            let most = u64::try_from(DEADLINE_MAX.as_millis()).unwrap_or(u64::MAX);
            policy.deadline_ms = field.long_integer(1, most)?;
        }
        "cost_max_nano_usd" => {
            policy.cost_max = Some(Cost::from_nano_usd(field.long_integer(0, u64::MAX)?));
        }
        "output_bytes_max" => {
            let bytes = field.long_integer(1, OUTPUT_BYTES_MAX as u64)?;
            policy.output_bytes_max = usize::try_from(bytes).unwrap_or(OUTPUT_BYTES_MAX);
        }
        "workers_allowed" => policy.workers_allowed = workers(field)?,
        "fallback" => {
            let name = field.one_of(&PoolRule::ALL.map(PoolRule::as_str))?;
            policy.fallback = PoolRule::from_name(name).unwrap_or(policy.fallback);
        }
        "broken_answer" => {
            let name = field.one_of(&BrokenAnswer::ALL.map(BrokenAnswer::as_str))?;
            policy.broken_answer = BrokenAnswer::from_name(name).unwrap_or(policy.broken_answer);
        }
        "failed_step" => {
            let name = field.one_of(&FailedStep::ALL.map(FailedStep::as_str))?;
            policy.failed_step = FailedStep::from_name(name).unwrap_or(policy.failed_step);
        }
        "step_cache" => {
            let is_off = field.one_of(&["off", "exact"])? == "off";
            policy.step_cache = if is_off { StepCaching::Off } else { StepCaching::Exact };
        }
        "tools" => {
            let name = field.one_of(&StepTools::ALL.map(StepTools::as_str))?;
            policy.tools = StepTools::from_name(name).unwrap_or(policy.tools);
        }
        "turns_max" => policy.turns_max = narrow(field, TURNS_MAX)?,
        "suspended_ms_max" => {
            let ms = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
            policy.suspended_ms_max = field.long_integer(ms(SUSPENDED_MIN), ms(SUSPENDED_MAX))?;
        }
        "show_steps" => policy.shows_steps = field.boolean()?,
        _ => return Err(unknown(&field.path)),
    }
    Ok(())
}

fn narrow(field: &Field<'_>, max: u16) -> Result<u16, ApiError> {
    field.integer(1, max.into()).map(|number| u16::try_from(number).unwrap_or(max))
}

/// The permitted workers. An empty array permits all workers of the pool.
fn workers(field: &Field<'_>) -> Result<WorkersAllowed, ApiError> {
    let names = field.array_of(WORKERS_MAX)?;
    let name = |name: &Field<'_>| {
        let wrong = |e: podium_domain::ids::InvalidName| {
            ApiError::on_field(ErrorCode::InvalidValue, &*name.path, format!("`{}`: {e}", name.path))
        };
        WorkerId::new(name.string()?).map_err(wrong)
    };
    let ids = names.map(|field| name(&field)).collect::<Result<BTreeSet<_>, _>>()?;
    Ok(if ids.is_empty() { WorkersAllowed::All } else { WorkersAllowed::Only(ids) })
}

#[cfg(test)]
mod tests {
    use podium_domain::policy::{Effort, Tier};
    use serde_json::{Value, json};

    use super::*;

    fn read(value: &Value) -> Result<Policy, (ErrorCode, String)> {
        let mut policy = Policy::new(Tier::Ultra, Effort::Medium);
        match bound(&Field::new("podium", value), &mut policy) {
            Ok(()) => Ok(policy),
            Err(error) => Err((error.code, error.param().unwrap_or_default().to_owned())),
        }
    }

    #[test]
    fn every_name_is_known_and_says_nothing_where_it_is_null() {
        for name in NAMES {
            assert_eq!(read(&json!({name: null})).unwrap(), Policy::new(Tier::Ultra, Effort::Medium));
            assert_eq!(
                read(&json!({name: {}})).unwrap_err(),
                (ErrorCode::InvalidValue, format!("podium.{name}"))
            );
        }
    }

    #[test]
    fn every_bound_of_grpc_can_be_set() {
        let policy = read(&json!({
            "steps_max": 3, "rounds_max": 2, "attempts_max": 1, "deadline_ms": 86_400_000_u64,
            "cost_max_nano_usd": 5_000_000_000_u64, "output_bytes_max": 1024, "workers_allowed": ["a", "b"],
            "fallback": "none", "broken_answer": "again", "failed_step": "continue",
            "step_cache": "off", "tools": "last", "turns_max": 7, "suspended_ms_max": 60_000,
            "show_steps": false,
        }))
        .unwrap();
        let ids = ["a", "b"].map(|id| WorkerId::new(id).unwrap());
        let expected = Policy {
            steps_max: 3,
            rounds_max: 2,
            attempts_max: 1,
            deadline_ms: 86_400_000,
            cost_max: Some(Cost::from_nano_usd(5_000_000_000)),
            output_bytes_max: 1024,
            workers_allowed: WorkersAllowed::Only(ids.into()),
            fallback: PoolRule::None,
            broken_answer: BrokenAnswer::Again,
            failed_step: FailedStep::Continue,
            step_cache: StepCaching::Off,
            tools: StepTools::Last,
            turns_max: 7,
            suspended_ms_max: 60_000,
            shows_steps: false,
            ..Policy::new(Tier::Ultra, Effort::Medium)
        };
        assert_eq!(policy, expected);
        let nothing = json!({"steps_max": null, "workers_allowed": []});
        assert_eq!(read(&nothing).unwrap(), Policy::new(Tier::Ultra, Effort::Medium));
    }

    #[test]
    fn invalid_members_are_rejected_by_name() {
        for (value, code, param) in [
            (json!({"colour": 1}), ErrorCode::UnknownParameter, "podium.colour"),
            (json!({"colour": null}), ErrorCode::UnknownParameter, "podium.colour"),
            (json!({"steps_max": 17}), ErrorCode::InvalidValue, "podium.steps_max"),
            (json!({"rounds_max": 0}), ErrorCode::InvalidValue, "podium.rounds_max"),
            (json!({"attempts_max": "3"}), ErrorCode::InvalidValue, "podium.attempts_max"),
            (json!({"deadline_ms": 86_400_001_u64}), ErrorCode::InvalidValue, "podium.deadline_ms"),
            (json!({"cost_max_nano_usd": -1}), ErrorCode::InvalidValue, "podium.cost_max_nano_usd"),
            (json!({"output_bytes_max": 1.5}), ErrorCode::InvalidValue, "podium.output_bytes_max"),
            (
                json!({"workers_allowed": ["a", "no such name!"]}),
                ErrorCode::InvalidValue,
                "podium.workers_allowed[1]",
            ),
            (json!({"fallback": "some"}), ErrorCode::InvalidValue, "podium.fallback"),
            (json!({"broken_answer": "twice"}), ErrorCode::InvalidValue, "podium.broken_answer"),
            (json!({"failed_step": "fallback"}), ErrorCode::InvalidValue, "podium.failed_step"),
            (json!("fast"), ErrorCode::InvalidValue, "podium"),
        ] {
            assert_eq!(read(&value).unwrap_err(), (code, param.to_owned()), "{value}");
        }
    }
}
