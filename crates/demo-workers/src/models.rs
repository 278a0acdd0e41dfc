//! The names of the workers, and their answers.

use crate::{conductor, generalist::Generalist, prompt, skills, skills::Skill};

/// A worker, by the name under which a simulated vendor serves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Model {
    /// The worker of one skill.
    Skilled(Skill),
    /// All skills, with errors.
    Generalist,
    /// Repeats its subtask.
    Echo,
    /// Answers planning prompts.
    Conductor,
}

impl Model {
    /// All models, skill workers first.
    pub const ALL: [Self; 9] = [
        Self::Skilled(Skill::Arithmetic),
        Self::Skilled(Skill::Words),
        Self::Skilled(Skill::Dates),
        Self::Skilled(Skill::Units),
        Self::Skilled(Skill::Lists),
        Self::Skilled(Skill::Facts),
        Self::Generalist,
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
            Self::Echo => "sim-echo",
            Self::Conductor => "sim-conductor",
        }
    }

    /// The model with this name.
    pub fn named(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|model| model.id() == id)
    }

    /// The answer to the last user turn of a conversation. An error is a refusal.
    pub fn answer(self, message: &str, generalist: Generalist) -> Result<String, String> {
        match self {
            Self::Skilled(skill) => skills::answer_or_decline(skill, &prompt::task(message)),
            Self::Generalist => generalist.answer(&prompt::task(message)),
            Self::Echo => Ok(prompt::task(message).subtask),
            Self::Conductor => Ok(conductor::answer(message)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Model;

    #[test]
    fn every_model_is_found_by_its_id() {
        for model in Model::ALL {
            assert_eq!(Model::named(model.id()), Some(model));
        }
        assert_eq!(Model::named("gpt-5"), None);
    }
}
