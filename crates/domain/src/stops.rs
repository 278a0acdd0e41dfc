//! Stop sequences.

use serde::{Deserialize, Serialize};

/// Most stop sequences of a request; all vendors that support them accept as many.
pub const STOPS_MAX: usize = 4;
/// Most bytes of a stop sequence.
pub const STOP_BYTES_MAX: usize = 64;

/// Stop sequences: an answer ends before the first of them, which is not part of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Stops(Vec<String>);

/// Stop sequences are invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StopsError {
    /// More than [`STOPS_MAX`].
    #[error("stop has {count} sequences, the limit is {STOPS_MAX}")]
    TooMany {
        /// The number of sequences.
        count: usize,
    },
    /// A sequence is empty, or longer than [`STOP_BYTES_MAX`].
    #[error("stop {number} has {bytes} bytes, it must have 1 to {STOP_BYTES_MAX}")]
    Length {
        /// Its position, from 1.
        number: usize,
        /// Its size.
        bytes: usize,
    },
}

impl Stops {
    /// Checks the bounds; an empty list is valid.
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

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All sequences, in the client's order.
    pub fn as_slice(&self) -> &[String] {
        &self.0
    }

    /// Whether one consists of blanks only, which not every vendor accepts.
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
    fn an_exceeded_bound_is_named() {
        let longest = "x".repeat(STOP_BYTES_MAX);
        assert!(stops(&[]).unwrap().is_empty());
        assert!(stops(&["\n", &longest, "a", "b"]).unwrap().has_blank());
        assert_eq!(stops(&["a"; 5]), Err("stop has 5 sequences, the limit is 4".to_owned()));
        assert_eq!(stops(&["a", ""]), Err("stop 2 has 0 bytes, it must have 1 to 64".to_owned()));
        assert_eq!(stops(&[&(longest + "x")]), Err("stop 1 has 65 bytes, it must have 1 to 64".to_owned()));
    }

    #[test]
    fn the_stored_form_is_a_list_of_strings() {
        assert_eq!(serde_json::to_string(&stops(&["\n\n"]).unwrap()).unwrap(), r#"["\n\n"]"#);
    }
}
