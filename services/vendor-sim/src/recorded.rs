//! Recorded answers of real models, from files that the user has. The model `recorded/NAME` answers with them, so that real answers,
//! tokens and prices can be compared without a call of any vendor.

use std::{
    collections::HashMap,
    io::{self, BufRead as _, BufReader},
    path::{Path, PathBuf},
};

use serde::Deserialize;

/// The beginning of the names of recorded models in requests.
pub(crate) const PREFIX: &str = "recorded/";
/// Most answers of all files together.
pub const RECORDED_MAX: usize = 5_000_000;

/// An answer that a model gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) text: String,
    /// The tokens of prompt and answer; those of the simulator's counting where the file has none.
    pub(crate) prompt_tokens: Option<usize>,
    pub(crate) completion_tokens: Option<usize>,
}

/// The answers by model and question.
#[derive(Debug, Clone, Default)]
pub struct Recorded(HashMap<String, HashMap<String, Answer>>);

/// A line of a file. Other members are ignored.
#[derive(Deserialize)]
struct Line {
    model: String,
    question: String,
    answer: String,
    prompt_tokens: Option<usize>,
    completion_tokens: Option<usize>,
}

/// Why a file of recorded answers cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RecordedFile {
    /// It cannot be read.
    #[error("cannot read the recorded answers `{}`", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The I/O error.
        #[source]
        source: io::Error,
    },
    /// A line is invalid.
    #[error("the recorded answers `{}`, line {line}: {problem}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// The problem.
        problem: String,
    },
}

impl Recorded {
    /// Adds the answers of a file: a JSON object per line with `model`, `question`, `answer`, and perhaps `prompt_tokens` and
    /// `completion_tokens`.
    pub fn read(&mut self, path: &Path) -> Result<(), RecordedFile> {
        let unreadable = |source| RecordedFile::Unreadable { path: path.to_owned(), source };
        let file = std::fs::File::open(path).map_err(unreadable)?;
        for (text, line) in BufReader::new(file).lines().zip(1..) {
            let text = text.map_err(unreadable)?;
            if !text.trim().is_empty() {
                self.add(&text).map_err(|problem| RecordedFile::Invalid {
                    path: path.to_owned(),
                    line,
                    problem,
                })?;
            }
        }
        Ok(())
    }

    fn add(&mut self, text: &str) -> Result<(), String> {
        let line: Line = serde_json::from_str(text).map_err(|error| error.to_string())?;
        for (name, value) in [("model", &line.model), ("question", &line.question)] {
            if value.trim().is_empty() {
                return Err(format!("{name} must not be blank"));
            }
        }
        if self.0.values().map(HashMap::len).sum::<usize>() >= RECORDED_MAX {
            return Err(format!("there are more than {RECORDED_MAX} answers"));
        }
        let answer = Answer {
            text: line.answer,
            prompt_tokens: line.prompt_tokens,
            completion_tokens: line.completion_tokens,
        };
        let question = line.question.trim().to_owned();
        match self.0.entry(line.model.clone()).or_default().insert(question, answer) {
            None => Ok(()),
            Some(_) => Err(format!("{} has a second answer to the same question", line.model)),
        }
    }

    /// Whether there are answers of this model.
    pub(crate) fn has_model(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// The model's answer to a question.
    pub(crate) fn answer(&self, name: &str, question: &str) -> Option<&Answer> {
        self.0.get(name)?.get(question.trim())
    }

    /// The names of the models, in order.
    pub(crate) fn models(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.0.keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_found_by_model_and_question() {
        let mut recorded = Recorded::default();
        recorded
            .add(r#"{"model":"m","question":" why? ","answer":"so","completion_tokens":7,"score":1}"#)
            .unwrap();
        let answer = recorded.answer("m", "why?").unwrap();
        assert_eq!(
            (answer.text.as_str(), answer.prompt_tokens, answer.completion_tokens),
            ("so", None, Some(7))
        );
        assert_eq!((recorded.answer("m", "what?"), recorded.answer("n", "why?")), (None, None));
        assert_eq!((recorded.has_model("m"), recorded.models()), (true, vec!["m"]));
        for (line, problem) in [
            (r#"{"model":"m","question":"why?","answer":"no"}"#, "second answer"),
            (r#"{"model":" ","question":"why?","answer":"no"}"#, "model must not be blank"),
            (r#"{"model":"m","question":"why?"}"#, "missing field `answer`"),
        ] {
            let said = recorded.add(line).unwrap_err();
            assert!(said.contains(problem), "{said}");
        }
    }
}
