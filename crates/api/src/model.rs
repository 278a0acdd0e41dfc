//! The model names that clients use: a tier, optionally pinned to a conductor.

use std::fmt;
use std::str::FromStr;

use podium_domain::policy::Tier;

use crate::field::Field;
use crate::{ApiError, ErrorCode};

/// `podium-mini` or `podium-ultra`, optionally with `@` and the id of a conductor, which `.` and the version of a pool may follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelName {
    /// The tier.
    pub tier: Tier,
    /// The conductor, or the conductor and the pool, that the name is pinned to.
    pub pin: Option<String>,
}

impl ModelName {
    /// The unpinned name of a tier.
    pub const fn of_tier(tier: Tier) -> Self {
        Self { tier, pin: None }
    }

    /// Whether a process with these conductors and this pool serves this model.
    pub fn is_served_by<'c>(&self, conductors: impl Iterator<Item = &'c str>, pool: &str) -> bool {
        self.pin.is_none() || self.conductor_among(conductors, pool).is_some()
    }

    /// The conductor that the name is pinned to, if it is one of these and the name is not pinned to another pool.
    pub fn conductor_among<'c>(
        &self,
        mut conductors: impl Iterator<Item = &'c str>,
        pool: &str,
    ) -> Option<&'c str> {
        let pin = self.pin.as_deref()?;
        conductors.find(|conductor| match pin.strip_prefix(*conductor) {
            Some("") => true,
            Some(rest) => rest.strip_prefix('.') == Some(pool),
            None => false,
        })
    }

    /// Every model name that a process with these conductors serves.
    pub fn served_by<'c>(conductors: impl Iterator<Item = &'c str>) -> Vec<Self> {
        let tiers = [Tier::Mini, Tier::Ultra];
        let pinned =
            conductors.flat_map(|conductor| tiers.map(|tier| Self { tier, pin: Some(conductor.to_owned()) }));
        tiers.map(Self::of_tier).into_iter().chain(pinned).collect()
    }
}

impl fmt::Display for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.tier.model())?;
        self.pin.iter().try_for_each(|pin| write!(f, "@{pin}"))
    }
}

/// The model name is unknown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown model `{name}`; use `podium-mini` or `podium-ultra`, optionally pinned as `podium-ultra@<conductor>` or \
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
        let (tier, pin) = match name.split_once('@') {
            Some((_, "")) => return Err(unknown()),
            Some((tier, pin)) => (tier, Some(pin.to_owned())),
            None => (name, None),
        };
        let tier = match tier {
            "podium-mini" => Tier::Mini,
            "podium-ultra" => Tier::Ultra,
            _ => return Err(unknown()),
        };
        Ok(Self { tier, pin })
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

    #[test]
    fn every_served_name_parses_and_is_served() {
        let conductors = || ["nano-1", "nano-2"].into_iter();
        assert_eq!(ModelName::served_by(conductors()).len(), 6);
        for model in ModelName::served_by(conductors()) {
            assert_eq!(model.to_string().parse(), Ok(model.clone()));
            assert!(model.is_served_by(conductors(), "demo-1"));
        }
    }

    #[test]
    fn a_name_may_be_pinned_to_a_pool_as_well() {
        let among = |name: &str, pool| {
            let name: ModelName = name.parse().unwrap();
            name.conductor_among(["nano-1", "nano-1.5"].into_iter(), pool)
        };
        assert_eq!(among("podium-ultra@nano-1.demo-1", "demo-1"), Some("nano-1"));
        assert_eq!(among("podium-ultra@nano-1.5.demo-1.2", "demo-1.2"), Some("nano-1.5"));
        assert_eq!(among("podium-ultra@nano-1.5", "demo-1"), Some("nano-1.5"));
        assert_eq!(among("podium-ultra@nano-1.demo-2", "demo-1"), None);
        assert_eq!(among("podium-ultra@nano-1demo-1", "demo-1"), None);
        assert_eq!(among("podium-ultra", "demo-1"), None);
    }

    #[test]
    fn a_name_pinned_to_another_conductor_is_not_served() {
        let pinned: ModelName = "podium-ultra@nano-1".parse().unwrap();
        assert!(!pinned.is_served_by(["nano-2", "nano-3"].into_iter(), "demo-1"));
    }

    #[test]
    fn other_names_are_rejected() {
        for name in ["", "gpt-5", "podium", "podium-ultra@", "Podium-mini", "@nano-1"] {
            assert_eq!(name.parse::<ModelName>(), Err(UnknownModel { name: name.to_owned() }));
        }
    }
}
