//! Texts that end an answer.

use serde::{Deserialize, Serialize};

/// Most of them: what every vendor that knows them takes.
pub const STOPS_MAX: usize = 4;
/// Longest of them, in bytes.
pub const STOP_BYTES_MAX: usize = 64;

/// Texts before any of which an answer ends. None of them is part of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Stops(Vec<String>);

/// Texts that no answer can be asked to end before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StopsError {
    /// More than [`STOPS_MAX`].
    #[error("stop has {count} texts, the limit is {STOPS_MAX}")]
    TooMany {
        /// How many there are.
        count: usize,
    },
    /// One is empty, or longer than [`STOP_BYTES_MAX`].
    #[error("stop {number} has {bytes} bytes, it must have 1 to {STOP_BYTES_MAX}")]
    Length {
        /// Which of them, from 1.
        number: usize,
        /// How long it is.
        bytes: usize,
    },
}

impl Stops {
    /// These texts; none is fine.
    pub fn new(texts: Vec<String>) -> Result<Self, StopsError> {
        if texts.len() > STOPS_MAX {
            return Err(StopsError::TooMany { count: texts.len() });
        }
        let is_wrong = |text: &&String| !(1..=STOP_BYTES_MAX).contains(&text.len());
        match (1..).zip(&texts).find(|(_, text)| is_wrong(text)) {
            Some((number, text)) => Err(StopsError::Length { number, bytes: text.len() }),
            None => Ok(Self(texts)),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them, in the client's order.
    pub fn as_slice(&self) -> &[String] {
        &self.0
    }

    /// Whether one of them is nothing but blanks, which not every vendor takes.
    pub fn has_blank(&self) -> bool {
        self.0.iter().any(|text| text.trim().is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stops(texts: &[&str]) -> Result<Stops, String> {
        Stops::new(texts.iter().map(ToString::to_string).collect()).map_err(|e| e.to_string())
    }

    #[test]
    fn a_bound_that_is_passed_is_named() {
        let longest = "x".repeat(STOP_BYTES_MAX);
        assert!(stops(&[]).unwrap().is_empty());
        assert!(stops(&["\n", &longest, "a", "b"]).unwrap().has_blank());
        assert_eq!(stops(&["a"; 5]), Err("stop has 5 texts, the limit is 4".to_owned()));
        assert_eq!(stops(&["a", ""]), Err("stop 2 has 0 bytes, it must have 1 to 64".to_owned()));
        assert_eq!(stops(&[&(longest + "x")]), Err("stop 1 has 65 bytes, it must have 1 to 64".to_owned()));
    }

    #[test]
    fn what_is_stored_is_a_list_of_texts() {
        assert_eq!(serde_json::to_string(&stops(&["\n\n"]).unwrap()).unwrap(), r#"["\n\n"]"#);
    }
}
