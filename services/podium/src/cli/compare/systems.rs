//! The systems that `podium eval` compares.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::str::FromStr;

use podium_api::{Family, ModelName};
use podium_domain::ids::WorkerId;
use podium_domain::policy::{Effort, Policy, Tier, WorkersAllowed};
use podium_domain::split_mix::split_mix;
use podium_planning::{ConductorChoice, ConductorChoices};
use serde::Serialize;

use super::neighbours::Neighbours;
use crate::error::Error;
use crate::settings::Settings;

/// A system that answers questions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) struct System {
    /// Its name in the report.
    pub(super) name: String,
    pub(super) way: Way,
}

/// How a system answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// `podium-ultra` with this conductor.
    Planned(ConductorChoice),
    /// `podium-mini` with the conductor of the settings, whose head chooses a worker.
    Mini,
    /// One worker gets every question.
    Worker(WorkerId),
    /// A worker that is drawn for each question.
    Random,
    /// The worker that answered the most similar questions of this file best.
    Neighbours(PathBuf),
    /// `podium-max`: the head of this file chooses among its workflows.
    Max(PathBuf),
}

/// `NAME=CONDUCTOR`, where `CONDUCTOR` is a value of the setting `conductor`, or `mini`, `random`, `neighbours:FILE` or `max:FILE`.
impl FromStr for System {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, way) =
            text.split_once('=').ok_or("must be NAME=CONDUCTOR, such as rules=fixed:workflow.yaml")?;
        let name = name.trim();
        if name.is_empty() || name.contains('|') || name.len() > NAME_BYTES_MAX {
            return Err(format!("the name must have 1 to {NAME_BYTES_MAX} bytes and no |"));
        }
        let way = match way {
            "mini" => Way::Mini,
            "random" => Way::Random,
            way if way.starts_with(NEIGHBOURS) => Way::Neighbours(way[NEIGHBOURS.len()..].into()),
            way if way.starts_with(MAX) => Way::Max(way[MAX.len()..].into()),
            conductor => Way::Planned(podium_planning::CONDUCTOR.value(conductor).map_err(|problem| {
                format!("the conductor {problem}, mini, random, {NEIGHBOURS}FILE or {MAX}FILE")
            })?),
        };
        Ok(Self { name: name.to_owned(), way })
    }
}

/// Before the file of outcomes of a system that routes by them.
const NEIGHBOURS: &str = "neighbours:";
/// Before the file of the workflows of `podium-max`.
const MAX: &str = "max:";
/// Longest name of a system.
const NAME_BYTES_MAX: usize = 60;

/// How a system is described in files of results.
#[derive(Debug, Serialize)]
pub(super) struct Described<'a> {
    pub(super) name: &'a str,
    pub(super) way: String,
}

impl System {
    /// A single worker.
    pub(super) fn of_worker(worker: &WorkerId) -> Self {
        Self { name: format!("worker {worker}"), way: Way::Worker(worker.clone()) }
    }

    /// Whether it is a single worker.
    pub(super) fn is_worker(&self) -> bool {
        matches!(self.way, Way::Worker(_))
    }

    pub(super) fn described(&self) -> Described<'_> {
        let way = match &self.way {
            Way::Planned(choice) => choice.to_string(),
            Way::Mini => "mini".to_owned(),
            Way::Worker(worker) => format!("direct:{worker}"),
            Way::Random => "random".to_owned(),
            Way::Neighbours(file) => format!("{NEIGHBOURS}{}", file.display()),
            Way::Max(file) => format!("{MAX}{}", file.display()),
        };
        Described { name: &self.name, way }
    }

    /// The settings under which it runs.
    pub(super) fn settings(&self, settings: &Settings) -> Settings {
        let conductors = match &self.way {
            Way::Planned(choice) => ConductorChoices::one(choice.clone()),
            Way::Mini => return settings.clone(),
            Way::Max(file) => {
                ConductorChoices { workflows: Some(file.clone()), ..settings.conductors.clone() }
            }
            Way::Worker(_) | Way::Random | Way::Neighbours(_) => {
                ConductorChoices::one(ConductorChoice::Direct(None))
            }
        };
        Settings { conductors, ..settings.clone() }
    }

    /// The model that is asked.
    pub(super) fn model(&self) -> ModelName {
        let family = match &self.way {
            Way::Max(_) => Family::Max,
            Way::Planned(_) => Family::Ultra,
            Way::Mini | Way::Worker(_) | Way::Random | Way::Neighbours(_) => Family::Mini,
        };
        ModelName { family, pin: None }
    }

    /// The recorded outcomes that it routes by, if it does.
    pub(super) fn neighbours(&self, workers: &[WorkerId]) -> Result<Option<Neighbours>, Error> {
        match &self.way {
            Way::Neighbours(file) => Neighbours::read(file, workers).map(Some),
            Way::Planned(_) | Way::Mini | Way::Worker(_) | Way::Random | Way::Max(_) => Ok(None),
        }
    }

    /// The policy for a question with this seed. `workers` are those of the pool, and `routed` is the worker that recorded outcomes
    /// choose.
    pub(super) fn policy(
        &self,
        effort: Effort,
        workers: &[WorkerId],
        routed: Option<&WorkerId>,
        seed: u32,
    ) -> Policy {
        let only = |worker: &WorkerId| Policy {
            workers_allowed: WorkersAllowed::Only(BTreeSet::from([worker.clone()])),
            ..Policy::new(Tier::Mini, effort)
        };
        match &self.way {
            Way::Planned(_) | Way::Max(_) => Policy::new(Tier::Ultra, effort),
            Way::Mini => Policy::new(Tier::Mini, effort),
            Way::Worker(worker) => only(worker),
            Way::Neighbours(_) => routed.map_or_else(|| Policy::new(Tier::Mini, effort), only),
            Way::Random => {
                let count = u64::try_from(workers.len().max(1)).unwrap_or(1);
                let drawn = usize::try_from(split_mix(seed.into(), 1) % count).unwrap_or_default();
                workers.get(drawn).map_or_else(|| Policy::new(Tier::Mini, effort), only)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_is_a_name_and_a_conductor() {
        let system: System = "nano=llama:models/nano".parse().unwrap();
        assert_eq!((system.name.as_str(), system.described().way.as_str()), ("nano", "llama:models/nano"));
        let max: System = "a=max:max.yaml".parse().unwrap();
        assert_eq!(
            (max.described().way.as_str(), max.model().to_string().as_str()),
            ("max:max.yaml", "podium-max")
        );
        assert_eq!("a=random".parse::<System>().unwrap().way, Way::Random);
        assert_eq!("a=mini".parse::<System>().unwrap().way, Way::Mini);
        for (text, problem) in [
            ("nano", "NAME=CONDUCTOR"),
            ("=direct", "1 to 60 bytes"),
            ("a|b=direct", "no |"),
            ("a=what", "mini, random, neighbours:FILE or max:FILE"),
        ] {
            let said = text.parse::<System>().unwrap_err();
            assert!(said.contains(problem), "{said}");
        }
    }

    #[test]
    fn a_random_worker_is_drawn_for_each_question() {
        let workers = ["a", "b", "c"].map(|name| WorkerId::new(name).unwrap());
        let system: System = "random=random".parse().unwrap();
        let drawn: Vec<_> = (0..300)
            .map(|seed| system.policy(Effort::Medium, &workers, None, seed).workers_allowed)
            .collect();
        for worker in &workers {
            let only = WorkersAllowed::Only(BTreeSet::from([worker.clone()]));
            let count = drawn.iter().filter(|allowed| **allowed == only).count();
            assert!((70..130).contains(&count), "{worker}: {count} of 300");
        }
        assert_eq!(drawn[7], system.policy(Effort::Medium, &workers, None, 7).workers_allowed);
    }
}
