//! The model names that clients use: a tier, optionally pinned to a conductor.

use std::fmt;
use std::str::FromStr;

use podium_domain::policy::Tier;

use crate::field::Field;
use crate::{ApiError, ErrorCode};

/// The models by their unpinned names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// `podium-mini`: latency.
    Mini,
    /// `podium-ultra`: quality.
    Ultra,
    /// `podium-max`: the best answer for the money, by a workflow that a head chooses.
    Max,
}

impl Family {
    /// Every family.
    pub const ALL: [Self; 3] = [Self::Mini, Self::Ultra, Self::Max];

    /// The unpinned name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Mini => Tier::Mini.model(),
            Self::Ultra => Tier::Ultra.model(),
            Self::Max => "podium-max",
        }
    }

    /// The tier of its runs: that of `podium-max` is ultra.
    pub const fn tier(self) -> Tier {
        match self {
            Self::Mini => Tier::Mini,
            Self::Ultra | Self::Max => Tier::Ultra,
        }
    }
}

impl From<Tier> for Family {
    fn from(tier: Tier) -> Self {
        match tier {
            Tier::Mini => Self::Mini,
            Tier::Ultra => Self::Ultra,
        }
    }
}

/// `podium-mini`, `podium-ultra` or `podium-max`, optionally with `@` and the id of a conductor, which `.` and the version of a pool
/// may follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelName {
    /// The name before the pin.
    pub family: Family,
    /// The conductor, or the conductor and the pool, that the name is pinned to.
    pub pin: Option<String>,
}

impl ModelName {
    /// The unpinned name of a tier.
    pub fn of_tier(tier: Tier) -> Self {
        Self { family: tier.into(), pin: None }
    }

    /// The tier of its runs.
    pub const fn tier(&self) -> Tier {
        self.family.tier()
    }

    /// Whether the pin names this conductor, and no other pool than this one.
    fn is_pinned_to(&self, conductor: &str, pool: &str) -> bool {
        match self.pin.as_deref().and_then(|pin| pin.strip_prefix(conductor)) {
            Some("") => true,
            Some(rest) => rest.strip_prefix('.') == Some(pool),
            None => false,
        }
    }
}

/// The models that a process serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedModels {
    /// Name and version of each conductor that runs get without naming it, the current one first.
    pub conductors: Vec<String>,
    /// Name and version of the conductor of `podium-max`, if that is offered.
    pub max: Option<String>,
    /// Name and version of the pool.
    pub pool: String,
}

/// A model is not served here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotServed {
    /// The name is pinned to something else.
    #[error(
        "model `{model}` is pinned to a conductor or pool that this server does not run; it runs {conductors} with pool `{pool}`"
    )]
    OtherPin {
        /// The model's name.
        model: ModelName,
        /// The conductors of this server.
        conductors: String,
        /// Its pool.
        pool: String,
    },
    /// No head chooses among workflows.
    #[error(
        "model `podium-max` is not offered here: the server has no workflows to choose from (setting `conductor_max`)"
    )]
    NoWorkflows,
}

impl ServedModels {
    /// Every model name.
    pub fn names(&self) -> Vec<ModelName> {
        let max = self.max.iter().map(|_| Family::Max);
        let plain = [Family::Mini, Family::Ultra].into_iter().chain(max);
        let plain = plain.map(|family| ModelName { family, pin: None });
        let planned = self.conductors.iter().flat_map(|conductor| {
            [Family::Mini, Family::Ultra].map(|family| ModelName { family, pin: Some(conductor.clone()) })
        });
        let max = self.max.iter().map(|max| ModelName { family: Family::Max, pin: Some(max.clone()) });
        plain.chain(planned).chain(max).collect()
    }

    /// The conductor that a request for this model must get; `None` if it may get any. An error if the model is not served here.
    pub fn conductor_of(&self, model: &ModelName) -> Result<Option<&str>, NotServed> {
        let known: Vec<&str> = match model.family {
            Family::Mini | Family::Ultra => self.conductors.iter().map(String::as_str).collect(),
            Family::Max => vec![self.max.as_deref().ok_or(NotServed::NoWorkflows)?],
        };
        match (&model.pin, model.family) {
            (None, Family::Max) => Ok(self.max.as_deref()),
            (None, Family::Mini | Family::Ultra) => Ok(None),
            (Some(_), _) => {
                let pinned = known.iter().copied().find(|id| model.is_pinned_to(id, &self.pool));
                pinned.map(Some).ok_or_else(|| NotServed::OtherPin {
                    model: model.clone(),
                    conductors: known.iter().map(|id| format!("`{id}`")).collect::<Vec<_>>().join(" and "),
                    pool: self.pool.clone(),
                })
            }
        }
    }
}

impl fmt::Display for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.family.as_str())?;
        self.pin.iter().try_for_each(|pin| write!(f, "@{pin}"))
    }
}

/// The model name is unknown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown model `{name}`; use `podium-mini`, `podium-ultra` or `podium-max`, optionally pinned as `podium-ultra@<conductor>` or \
     `podium-ultra@<conductor>.<pool>`"
)]
pub struct UnknownModel {
    /// The name, cut to a readable length.
    pub name: String,
}

impl FromStr for ModelName {
    type Err = UnknownModel;

    fn from_str(name: &str) -> Result<Self, UnknownModel> {
        let unknown = || UnknownModel { name: name.chars().take(100).collect() };
        let (family, pin) = match name.split_once('@') {
            Some((_, "")) => return Err(unknown()),
            Some((family, pin)) => (family, Some(pin.to_owned())),
            None => (name, None),
        };
        let known = Family::ALL.into_iter().find(|known| known.as_str() == family);
        Ok(Self { family: known.ok_or_else(unknown)?, pin })
    }
}

/// The model that a field names.
pub(crate) fn model_name(field: &Field<'_>) -> Result<ModelName, ApiError> {
    let unknown = |e: UnknownModel| ApiError::on_field(ErrorCode::ModelNotFound, "model", e.to_string());
    field.string()?.parse().map_err(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(conductors: &[&str], max: Option<&str>, pool: &str) -> ServedModels {
        let conductors = conductors.iter().map(|id| (*id).to_owned()).collect();
        ServedModels { conductors, max: max.map(ToOwned::to_owned), pool: pool.to_owned() }
    }

    #[test]
    fn every_served_name_parses_and_is_served() {
        for (max, count) in [(None, 6), (Some("mine-1"), 8)] {
            let served = served(&["nano-1", "nano-2"], max, "demo-1");
            assert_eq!(served.names().len(), count);
            for model in served.names() {
                assert_eq!(model.to_string().parse(), Ok(model.clone()));
                assert!(served.conductor_of(&model).is_ok(), "{model}");
            }
        }
    }

    #[test]
    fn a_name_may_be_pinned_to_a_pool_as_well() {
        let among = |name: &str, pool| {
            let served = served(&["nano-1", "nano-1.5"], None, pool);
            served.conductor_of(&name.parse().unwrap()).map(|id| id.map(ToOwned::to_owned)).ok()
        };
        let pinned = |id: &str| Some(Some(id.to_owned()));
        assert_eq!(among("podium-ultra@nano-1.demo-1", "demo-1"), pinned("nano-1"));
        assert_eq!(among("podium-ultra@nano-1.5.demo-1.2", "demo-1.2"), pinned("nano-1.5"));
        assert_eq!(among("podium-ultra@nano-1.5", "demo-1"), pinned("nano-1.5"));
        assert_eq!(among("podium-ultra@nano-1.demo-2", "demo-1"), None);
        assert_eq!(among("podium-ultra@nano-1demo-1", "demo-1"), None);
        assert_eq!(among("podium-ultra", "demo-1"), Some(None));
    }

    #[test]
    fn podium_max_gets_the_head_of_the_workflows_and_nothing_else() {
        let of = |served: &ServedModels, name: &str| {
            let conductor = served.conductor_of(&name.parse().unwrap());
            conductor.map(|id| id.map(ToOwned::to_owned)).map_err(|error| error.to_string())
        };
        let with = served(&["nano-1"], Some("mine-1"), "demo-1");
        assert_eq!(of(&with, "podium-max"), Ok(Some("mine-1".to_owned())));
        assert_eq!(of(&with, "podium-max@mine-1.demo-1"), Ok(Some("mine-1".to_owned())));
        assert!(of(&with, "podium-max@nano-1").unwrap_err().contains("it runs `mine-1` with pool `demo-1`"));
        assert!(of(&with, "podium-ultra@mine-1").unwrap_err().contains("it runs `nano-1` with"));
        let without = served(&["nano-1"], None, "demo-1");
        assert!(of(&without, "podium-max").unwrap_err().contains("has no workflows to choose from"));
    }

    #[test]
    fn a_name_pinned_to_another_conductor_is_not_served() {
        let pinned: ModelName = "podium-ultra@nano-1".parse().unwrap();
        assert!(served(&["nano-2", "nano-3"], None, "demo-1").conductor_of(&pinned).is_err());
    }

    #[test]
    fn other_names_are_rejected() {
        for name in ["", "gpt-5", "podium", "podium-ultra@", "Podium-mini", "@nano-1"] {
            assert_eq!(name.parse::<ModelName>(), Err(UnknownModel { name: name.to_owned() }));
        }
    }
}
