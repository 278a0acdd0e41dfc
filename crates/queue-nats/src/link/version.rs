//! Parses server versions, and defines the oldest supported one.

use std::fmt;

/// The version of a NATS server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerVersion {
    major: u32,
    minor: u32,
    patch: u32,
}

impl ServerVersion {
    /// The oldest supported version, that of Debian 12. It has limits per subject that reject new messages, and consumers
    /// that are named in the request that creates them.
    pub const MIN: Self = Self { major: 2, minor: 9, patch: 10 };

    /// Parses `2.10.27` or `2.12.0-RC.1`; `None` if the text is not a version.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let numbers = text.strip_prefix('v').unwrap_or(text);
        let numbers = numbers.split(['-', '+']).next()?;
        let mut numbers = numbers.split('.').map(|number| number.parse().ok());
        let version = Self { major: numbers.next()??, minor: numbers.next()??, patch: numbers.next()?? };
        numbers.next().is_none().then_some(version)
    }
}

impl fmt::Display for ServerVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        let version = |text| ServerVersion::read(text).unwrap();
        assert!(version("2.9.9") < ServerVersion::MIN && version("1.99.99") < ServerVersion::MIN);
        for new_enough in ["2.9.10", "v2.9.11", "2.10.27", "2.15.1", "2.12.0-RC.1", "3.0.0"] {
            assert!(version(new_enough) >= ServerVersion::MIN, "{new_enough}");
        }
        assert_eq!(version("2.10.27").to_string(), "2.10.27");
    }

    #[test]
    fn an_invalid_version_is_none() {
        for text in ["", "2", "2.9", "2.9.x", "2.9.10.1", "latest"] {
            assert_eq!(ServerVersion::read(text), None, "{text}");
        }
    }
}
