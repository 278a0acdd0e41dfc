//! The names of the workers, and their answers.

use crate::{
    conductor,
    errors::{self, Errors},
    panel, prompt, skills,
    skills::Skill,
};

/// A worker, by the name under which a simulated vendor serves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Model {
    /// The worker of one skill.
    Skilled(Skill),
    /// All skills, with errors.
    Generalist,
    /// Returns the most frequent of the results that it sees.
    Voter,
    /// Returns the result that it takes for right.
    Checker,
    /// Returns the result that most agree on, or answers itself.
    Merger,
    /// Repeats its subtask.
    Echo,
    /// Answers planning prompts.
    Conductor,
    /// No program: answers with a recorded answer of a real model, which its server has.
    Recorded,
}

impl Model {
    /// All programs, skill workers first.
    pub const ALL: [Self; 12] = [
        Self::Skilled(Skill::Arithmetic),
        Self::Skilled(Skill::Words),
        Self::Skilled(Skill::Dates),
        Self::Skilled(Skill::Units),
        Self::Skilled(Skill::Lists),
        Self::Skilled(Skill::Facts),
        Self::Generalist,
        Self::Voter,
        Self::Checker,
        Self::Merger,
        Self::Echo,
        Self::Conductor,
    ];

    /// The model's name in requests.
    pub fn id(self) -> &'static str {
        match self {
            Self::Skilled(Skill::Arithmetic) => "sim-arithmetic",
            Self::Skilled(Skill::Words) => "sim-words",
            Self::Skilled(Skill::Dates) => "sim-dates",
            Self::Skilled(Skill::Units) => "sim-units",
            Self::Skilled(Skill::Lists) => "sim-lists",
            Self::Skilled(Skill::Facts) => "sim-facts",
            Self::Generalist => "sim-generalist",
            Self::Voter => "sim-voter",
            Self::Checker => "sim-checker",
            Self::Merger => "sim-merger",
            Self::Echo => "sim-echo",
            Self::Conductor => "sim-conductor",
            Self::Recorded => "recorded",
        }
    }

    /// The model with this name.
    pub fn named(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|model| model.id() == id)
    }

    /// The answer to the last user turn of a conversation. An error is a refusal.
    pub fn answer(self, message: &str, errors: &Errors) -> Result<String, String> {
        match self {
            Self::Skilled(skill) => skills::answer_or_decline(skill, &prompt::task(message), errors),
            Self::Generalist => errors::answer(&prompt::task(message), errors),
            Self::Voter => panel::vote(&prompt::task(message)),
            Self::Checker => panel::check(&prompt::task(message), errors),
            Self::Merger => panel::merge(&prompt::task(message), errors),
            Self::Echo => Ok(prompt::task(message).subtask),
            Self::Conductor => Ok(conductor::answer(message)),
            Self::Recorded => Err("I have no recorded answer to this.".to_owned()),
        }
    }
}

/// A model as requests name it: `sim-words`, or with the accuracy of its operations: `sim-words@0.93`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Asked {
    /// The model.
    pub model: Model,
    /// The probability, 0 to 1, that an operation is right; `None` if the name states none.
    pub accuracy: Option<f64>,
}

impl Asked {
    /// The model and the accuracy that a name states; `None` if the model is unknown or the accuracy is not a number from 0 to 1.
    pub fn named(name: &str) -> Option<Self> {
        let Some((id, accuracy)) = name.split_once('@') else {
            return Some(Self { model: Model::named(name)?, accuracy: None });
        };
        let accuracy = accuracy.parse().ok().filter(|accuracy| (0.0..=1.0).contains(accuracy))?;
        Some(Self { model: Model::named(id)?, accuracy: Some(accuracy) })
    }
}

#[cfg(test)]
mod tests {
    use super::{Asked, Model};

    #[test]
    fn every_model_is_found_by_its_id() {
        for model in Model::ALL {
            assert_eq!(Model::named(model.id()), Some(model));
        }
        assert_eq!(Model::named("gpt-5"), None);
    }

    #[test]
    fn a_name_may_state_an_accuracy() {
        let asked = Asked::named("sim-voter@0.5").unwrap();
        assert_eq!((asked.model, asked.accuracy), (Model::Voter, Some(0.5)));
        assert_eq!(Asked::named("sim-echo").unwrap().accuracy, None);
        for name in
            ["gpt-5@0.5", "sim-echo@", "sim-echo@1.1", "sim-echo@-0.1", "sim-echo@nan", "sim-echo@0.5@0.5"]
        {
            assert_eq!(Asked::named(name), None, "{name}");
        }
    }
}
