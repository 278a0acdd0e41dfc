//! The file of results: one JSON object per line, first what was asked, then each answer as it came. An evaluation that was
//! interrupted continues from it.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::eval::Outcome;
use crate::error::Error;

/// A system's answer to a question.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    system: String,
    #[serde(flatten)]
    outcome: Outcome,
}

/// The outcomes of each system by question.
pub(super) type Outcomes = BTreeMap<String, BTreeMap<String, Outcome>>;

/// The open file, or none if nothing is kept.
#[derive(Debug)]
pub(super) struct Results(Option<(PathBuf, File)>);

impl Results {
    /// Opens the file of an evaluation that `header` describes, and reads the outcomes that it has already. A last line that was not
    /// written completely is removed.
    pub(super) fn open(path: Option<&Path>, header: &Value) -> Result<(Self, Outcomes), Error> {
        let Some(path) = path else { return Ok((Self(None), Outcomes::new())) };
        let unreadable = |source| Error::Unreadable { path: path.to_owned(), source };
        let file = OpenOptions::new().read(true).append(true).create(true).open(path);
        let mut file = file.map_err(|source| Error::Unwritable { path: path.to_owned(), source })?;
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(unreadable)?;
        let complete = text.rfind('\n').map_or(0, |end| end + 1);
        let mut results = Self(None);
        if complete < text.len() {
            let length = u64::try_from(complete).unwrap_or(u64::MAX);
            file.set_len(length).and_then(|()| file.seek(SeekFrom::End(0))).map_err(unreadable)?;
        }
        results.0 = Some((path.to_owned(), file));
        let mut outcomes = Outcomes::new();
        let bad = |line: usize, problem: String| Error::BadLine { path: path.to_owned(), line, problem };
        let mut lines = text[..complete].lines().zip(1..);
        match lines.next() {
            None => results.write(header)?,
            Some((first, number)) => {
                let found: Value = serde_json::from_str(first).map_err(|e| bad(number, e.to_string()))?;
                if found != *header {
                    let problem = format!(
                        "it has results of another evaluation ({found}), and this one is {header}; name another file"
                    );
                    return Err(bad(number, problem));
                }
            }
        }
        for (text, number) in lines {
            let Line { system, outcome } =
                serde_json::from_str(text).map_err(|e| bad(number, e.to_string()))?;
            outcomes.entry(system).or_default().insert(outcome.id.clone(), outcome);
        }
        Ok((results, outcomes))
    }

    /// Appends an outcome.
    pub(super) fn add(&mut self, system: &str, outcome: &Outcome) -> Result<(), Error> {
        self.write(&Line { system: system.to_owned(), outcome: outcome.clone() })
    }

    fn write(&mut self, line: &impl Serialize) -> Result<(), Error> {
        let Some((path, file)) = &mut self.0 else { return Ok(()) };
        let text = serde_json::to_string(line).map_err(std::io::Error::other);
        let written = text.and_then(|text| file.write_all((text + "\n").as_bytes()));
        written.map_err(|source| Error::Unwritable { path: path.clone(), source })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_interrupted_evaluation_continues() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.jsonl");
        let header = json!({ "seed": 1 });
        let (mut results, outcomes) = Results::open(Some(&path), &header).unwrap();
        assert!(outcomes.is_empty());
        results.add("nano", &Outcome::failed("q1", "42", "broken")).unwrap();
        drop(results);
        // The process died while it wrote the second line.
        let text = std::fs::read_to_string(&path).unwrap() + "{\"system\":\"na";
        std::fs::write(&path, text).unwrap();
        let (mut results, outcomes) = Results::open(Some(&path), &header).unwrap();
        assert_eq!(outcomes["nano"].keys().collect::<Vec<_>>(), ["q1"]);
        results.add("nano", &Outcome::failed("q2", "43", "broken")).unwrap();
        let (_, outcomes) = Results::open(Some(&path), &header).unwrap();
        assert_eq!(outcomes["nano"].len(), 2);
        let other = Results::open(Some(&path), &json!({ "seed": 2 })).unwrap_err();
        assert!(other.to_string().contains("name another file"), "{other}");
    }
}
