//! The manifest of a conductor bundle: which weights, which prompt, which pool, which sampling.

use serde::{Deserialize, Serialize};

use crate::ids::WorkerId;
use crate::policy::ROUNDS_MAX;

/// The schema of the manifest that this version reads.
const SCHEMA: u32 = 1;

/// How a conductor's prompt speaks of the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkersInPrompt {
    /// Anonymous positions of a pinned pool: what each is good at lives in the weights.
    Slots,
    /// The pool is described in the prompt.
    Described,
}

/// Where the words of a plan's subtasks come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SubtaskWords {
    /// The conductor's own.
    #[default]
    Free,
    /// The question's, word for word, around references to earlier results (`the result`, `result 2`). For a conductor that
    /// is too small to be trusted with spelling: what it writes is then a part of the question, never a variation of it.
    Copied,
}

/// The weights' file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Weights {
    /// Name of a GGUF file in the bundle's directory.
    pub file: String,
    /// SHA-256 of the file, in lower-case hexadecimal.
    pub sha256: String,
}

/// The mini head's file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MiniHead {
    /// Name of a safetensors file in the bundle's directory.
    pub file: String,
    /// SHA-256 of the file, in lower-case hexadecimal.
    pub sha256: String,
}

/// How the conductor is spoken to.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PromptTemplate {
    /// How the workers appear.
    pub workers: WorkersInPrompt,
    /// The chat template by name.
    pub template: String,
    /// The system turn, if there is one.
    pub system: Option<String>,
    /// The user's turn, with `{{question}}`, `{{workers}}` and `{{steps_max}}`.
    pub user: String,
    /// What the assistant's turn is begun with.
    #[serde(default)]
    pub assistant_prefix: String,
    /// Where the words of subtasks come from.
    #[serde(default)]
    pub subtasks: SubtaskWords,
}

/// The pool that a conductor with anonymous slots was trained on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PinnedPool {
    /// The workers in the order of the slots.
    pub slots: Vec<WorkerId>,
}

/// How the conductor's tokens are chosen, and how many.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sampling {
    /// 0 takes the likeliest token.
    pub temperature: f32,
    /// Most tokens of free reasoning before the lists are forced.
    pub reasoning_tokens_max: u32,
    /// Most tokens of the three lists.
    pub plan_tokens_max: u32,
    /// Most tokens of prompt and completion together.
    pub context_tokens: u32,
}

/// What `conductor.toml` says.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    schema: u32,
    /// The bundle's name.
    pub name: String,
    /// The bundle's version.
    pub version: String,
    /// What it is, in a sentence.
    #[serde(default)]
    pub description: String,
    /// The weights.
    pub weights: Weights,
    /// The mini head, if it has one: chooses a worker for the mini tier without writing a plan.
    #[serde(default)]
    pub head: Option<MiniHead>,
    /// The prompt.
    pub prompt: PromptTemplate,
    /// The pinned pool of a conductor with slots.
    #[serde(default)]
    pub pool: PinnedPool,
    /// The sampling.
    pub sampling: Sampling,
}

/// Why a manifest is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// Not TOML, an unknown key, or a value of the wrong type.
    #[error("conductor.toml does not read: {0}")]
    Syntax(String),
    /// A value out of its bounds.
    #[error("conductor.toml: {key} {problem}")]
    Invalid {
        /// Which key.
        key: &'static str,
        /// What is wrong with it.
        problem: String,
    },
}

impl Manifest {
    /// Reads and checks a manifest.
    pub fn parse(toml: &str) -> Result<Self, ManifestError> {
        let manifest: Self = toml::from_str(toml).map_err(|e| ManifestError::Syntax(e.to_string()))?;
        manifest.check()?;
        Ok(manifest)
    }

    /// Name and version: what runs record, and what a pinned model id ends with.
    pub fn id(&self) -> String {
        format!("{}-{}", self.name, self.version)
    }

    /// Most rounds that it can plan. Slots mean weights that were trained to split questions, not to judge answers.
    pub const fn rounds_max(&self) -> u16 {
        match self.prompt.workers {
            WorkersInPrompt::Slots => 1,
            WorkersInPrompt::Described => ROUNDS_MAX,
        }
    }

    fn check(&self) -> Result<(), ManifestError> {
        let refuse = |key, problem: String| Err(ManifestError::Invalid { key, problem });
        if self.schema != SCHEMA {
            return refuse("schema", format!("is {}, this version reads {SCHEMA}", self.schema));
        }
        if WorkerId::new(self.id()).is_err() {
            return refuse("name and version", "must be of a-z, A-Z, 0-9, `.`, `_`, `-`".to_owned());
        }
        let weights = ("weights.file", &self.weights.file, "weights.sha256", &self.weights.sha256);
        let head = self.head.as_ref().map(|head| ("head.file", &head.file, "head.sha256", &head.sha256));
        for (file_key, file, sha256_key, sha256) in std::iter::once(weights).chain(head) {
            if file.is_empty() || file.contains(['/', '\\', '\0']) || file.starts_with('.') {
                return refuse(file_key, format!("`{file}` must be a plain file name in the bundle"));
            }
            if sha256.len() != 64 || !sha256.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
                return refuse(sha256_key, "must be 64 lower-case hexadecimal digits".to_owned());
            }
        }
        if !self.prompt.user.contains("{{question}}") {
            return refuse("prompt.user", "must contain {{question}}".to_owned());
        }
        if (self.prompt.workers == WorkersInPrompt::Slots) == self.pool.slots.is_empty() {
            return refuse("pool.slots", "must be given exactly when prompt.workers is `slots`".to_owned());
        }
        self.check_sampling()
    }

    fn check_sampling(&self) -> Result<(), ManifestError> {
        let refuse = |key, problem: String| Err(ManifestError::Invalid { key, problem });
        let sampling = &self.sampling;
        if !(0.0..=2.0).contains(&sampling.temperature) {
            return refuse("sampling.temperature", format!("is {}, it must be 0 to 2", sampling.temperature));
        }
        if !(64..=1 << 20).contains(&sampling.context_tokens) {
            return refuse(
                "sampling.context_tokens",
                format!("is {}, it must be 64 to 1048576", sampling.context_tokens),
            );
        }
        if sampling.plan_tokens_max == 0
            || u64::from(sampling.reasoning_tokens_max) + u64::from(sampling.plan_tokens_max)
                >= u64::from(sampling.context_tokens)
        {
            return refuse(
                "sampling",
                "reasoning_tokens_max and plan_tokens_max must fit in context_tokens".to_owned(),
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> String {
        format!(
            "schema = 1\nname = \"nano\"\nversion = \"1\"\n[weights]\nfile = \"nano.gguf\"\nsha256 = \"{}\"\n\
             [prompt]\nworkers = \"slots\"\ntemplate = \"chatml\"\nuser = \"{{{{question}}}}\"\n\
             [pool]\nslots = [\"a\", \"b\"]\n\
             [sampling]\ntemperature = 0.0\nreasoning_tokens_max = 64\nplan_tokens_max = 400\ncontext_tokens = 1024\n",
            "a".repeat(64)
        )
    }

    #[test]
    fn a_good_manifest_reads() {
        assert_eq!(Manifest::parse(&good()).unwrap().id(), "nano-1");
    }

    #[test]
    fn a_bad_manifest_is_refused_by_the_name_of_the_key() {
        for (from, to, key) in [
            ("nano.gguf", "../nano.gguf", "weights.file"),
            ("aaaa", "AAAA", "weights.sha256"),
            ("{{question}}", "hello", "prompt.user"),
            ("[\"a\", \"b\"]", "[]", "pool.slots"),
            ("= 1024", "= 128", "sampling"),
            ("schema = 1", "schema = 2", "schema"),
            ("[prompt]", "[head]\nfile = \"a/b\"\nsha256 = \"\"\n[prompt]", "head.file"),
            ("[prompt]", "[head]\nfile = \"b\"\nsha256 = \"0\"\n[prompt]", "head.sha256"),
        ] {
            let text = Manifest::parse(&good().replace(from, to)).unwrap_err().to_string();
            assert!(text.contains(key), "{text}");
        }
    }
}
