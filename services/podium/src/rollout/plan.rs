//! From a completion to a plan, without any help.

use podium_domain::ids::WorkerId;
use podium_domain::plan::{Plan, PlanDraft, RawId};
use podium_domain::policy::Policy;
use podium_domain::pool::Pool;

/// The plan of a completion. Positions in `model_id` mean `workers`, or those of the pool if there are none. Names of workers are
/// refused: a conductor in training knows positions only.
pub(super) fn parse(
    completion: &str,
    workers: &[WorkerId],
    pool: &Pool,
    policy: &Policy,
) -> Result<Plan, String> {
    let mut draft = PlanDraft::parse(completion).map_err(|error| error.to_string())?;
    for (step, id) in draft.model_id.iter_mut().enumerate() {
        let RawId::Index(position) = *id else {
            return Err(format!("model_id of step {} is not a position", step + 1));
        };
        if workers.is_empty() {
            continue;
        }
        let worker = usize::try_from(position).ok().and_then(|position| workers.get(position));
        let worker = worker.ok_or_else(|| {
            format!(
                "model_id of step {} is `{position}`, there are positions 0 to {}",
                step + 1,
                workers.len() - 1
            )
        })?;
        *id = RawId::Name(worker.as_str().to_owned());
    }
    draft.check(pool, policy).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use podium_domain::plan::Step;
    use podium_domain::policy::{Effort, Tier};
    use serde_json::{Value, json};

    use super::*;

    fn workers_of(completion: &str, workers: &[&str]) -> Result<Vec<String>, String> {
        let pool = Pool::parse(include_str!("../../../../pools/gym.toml")).unwrap();
        let workers: Vec<_> = workers.iter().map(|name| WorkerId::new(*name).unwrap()).collect();
        let plan = parse(completion, &workers, &pool, &Policy::new(Tier::Ultra, Effort::Medium))?;
        Ok(plan.steps().iter().map(|step| step.worker.to_string()).collect())
    }

    #[test]
    fn positions_mean_the_given_workers() {
        let text = "Two parts.\nmodel_id = [1, 0]\nsubtasks = [\"a\", \"b\"]\naccess_list = [[], [0]]";
        assert_eq!(workers_of(text, &[]).unwrap(), ["worker-b", "worker-a"]);
        assert_eq!(workers_of(text, &["worker-j", "worker-c"]).unwrap(), ["worker-c", "worker-j"]);
    }

    #[test]
    fn a_completion_is_neither_repaired_nor_replaced() {
        for (text, said) in [
            ("", "model_id has no list"),
            ("model_id = [0]\nsubtasks = [\"a\"]", "access_list has no list"),
            ("model_id = [0]\nsubtasks = [\"a\"]\naccess_list = [[", "never closed"),
            ("model_id = [0, 1]\nsubtasks = [\"a\"]\naccess_list = [[]]", "differ in length"),
            ("model_id = []\nsubtasks = []\naccess_list = []", "plan has no steps"),
            ("model_id = [10]\nsubtasks = [\"a\"]\naccess_list = [[]]", "positions 0 to 9"),
            ("model_id = [-1]\nsubtasks = [\"a\"]\naccess_list = [[]]", "positions 0 to 9"),
            ("model_id = [\"worker-a\"]\nsubtasks = [\"a\"]\naccess_list = [[]]", "is not a position"),
            ("model_id = [0]\nsubtasks = [\" \"]\naccess_list = [[]]", "subtask of step 1 is blank"),
            ("model_id = [0]\nsubtasks = [\"a\"]\naccess_list = [[0]]", "position 0"),
        ] {
            let problem = workers_of(text, &[]).unwrap_err();
            assert!(problem.contains(said), "{text}: {problem}");
        }
        let text = "model_id = [2]\nsubtasks = [\"a\"]\naccess_list = [[]]";
        assert!(workers_of(text, &["worker-a"]).unwrap_err().contains("positions 0 to 0"));
    }

    /// A test of `training` holds the trainer to the same file.
    #[test]
    fn the_engine_reads_plans_as_the_trainer_does() {
        let pool = Pool::parse(include_str!("../../../../pools/demo.toml")).unwrap();
        let policy = Policy { steps_max: 4, ..Policy::new(Tier::Ultra, Effort::Medium) };
        let rows = include_str!("../../../../training/tests/plans.jsonl");
        for row in rows.lines().map(|row| serde_json::from_str::<Value>(row).unwrap()) {
            let text = row["text"].as_str().unwrap();
            let found = parse(text, &[], &pool, &policy).map_or(Value::Null, |plan| {
                let position =
                    |step: &Step| pool.workers().iter().position(|worker| worker.id == step.worker);
                let access =
                    |step: &Step| step.access.as_slice().iter().map(|seen| seen.get()).collect::<Vec<_>>();
                json!({
                    "workers": plan.steps().iter().map(position).collect::<Vec<_>>(),
                    "subtasks": plan.steps().iter().map(|step| &step.subtask).collect::<Vec<_>>(),
                    "access": plan.steps().iter().map(access).collect::<Vec<_>>(),
                })
            });
            assert_eq!(found, row["engine"], "{text}");
        }
    }
}
