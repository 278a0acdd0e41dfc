//! The manifest of a conductor bundle: its files, prompt, pool and sampling.

mod check;
mod examples;
mod pinned;

use serde::{Deserialize, Serialize};

use podium_domain::ids::WorkerId;
use podium_domain::policy::ROUNDS_MAX;

pub use check::{ManifestError, is_plain_file_name};
pub use examples::{EXAMPLE_BYTES_MAX, EXAMPLES_MAX, Example};
pub use pinned::OtherPool;

/// The version of the manifest's schema that this version reads.
pub const SCHEMA: u32 = 1;
/// Most adapters of a bundle: llama.cpp's binding applies one at a time. Several adapters can be merged into one beforehand; its
/// rank is the sum of theirs.
pub const ADAPTERS_MAX: usize = 1;
/// The manifest's file name in a bundle.
pub const MANIFEST_FILE: &str = "conductor.toml";

/// How a conductor's prompt names the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkersInPrompt {
    /// Anonymous positions of a pinned pool; the weights have learned what each worker is good at.
    Slots,
    /// The prompt describes each worker of the pool.
    Described,
}

/// Where the text of a plan's subtasks comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SubtaskWords {
    /// The conductor writes it freely.
    #[default]
    Free,
    /// It is copied word for word from the question, around references to earlier results (`the result`, `result 2`). For a
    /// conductor too small to spell reliably: its subtasks are then parts of the question, never variations of it.
    Copied,
}

/// A file of the bundle.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BundleFile {
    /// A plain file name in the bundle's directory.
    pub file: String,
    /// SHA-256 of the file, in lower-case hexadecimal.
    pub sha256: String,
}

/// A low-rank change to the weights (`LoRA`), as a GGUF file.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adapter {
    /// A plain file name in the bundle's directory.
    pub file: String,
    /// SHA-256 of the file, in lower-case hexadecimal.
    pub sha256: String,
    /// The factor that it is applied with, over 0 and at most 16; 1 is as it was trained.
    #[serde(default = "whole")]
    pub scale: f32,
}

fn whole() -> f32 {
    1.0
}

/// The layout of the conductor's prompt.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PromptTemplate {
    /// How the prompt names the workers.
    pub workers: WorkersInPrompt,
    /// The name of the chat template.
    pub template: String,
    /// The system turn; none if absent.
    pub system: Option<String>,
    /// The user's turn, with `{{question}}`, `{{workers}}`, `{{steps_max}}` and `{{examples}}`.
    pub user: String,
    /// Appended to the user's turn in a follow-up round, with `{{earlier}}`: the steps and outputs of the previous round. Without
    /// it, described workers use [`FURTHER_ROUND`](crate::prompt::FURTHER_ROUND), and slots have no follow-up rounds.
    #[serde(default)]
    pub further: Option<String>,
    /// The beginning of the assistant's turn.
    #[serde(default)]
    pub assistant_prefix: String,
    /// Where the text of subtasks comes from.
    #[serde(default)]
    pub subtasks: SubtaskWords,
}

/// The pool that a conductor with anonymous slots was trained on. Empty if the prompt describes the workers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PinnedPool {
    /// The workers in the order of the slots.
    pub slots: Vec<WorkerId>,
    /// Name and version of the pool, for people.
    pub trained_on: String,
    /// [`slots_hash`](podium_domain::pool::slots_hash) of the workers in the slots.
    pub hash: String,
}

/// The conductor's sampling and token limits.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sampling {
    /// 0 always takes the most likely token.
    pub temperature: f32,
    /// Most tokens of free reasoning before the lists are forced.
    pub reasoning_tokens_max: u32,
    /// Most tokens of the three lists.
    pub plan_tokens_max: u32,
    /// Most tokens of prompt and completion together.
    pub context_tokens: u32,
}

/// The content of `conductor.toml`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    schema: u32,
    /// The bundle's name.
    pub name: String,
    /// The bundle's version.
    pub version: String,
    /// A one-sentence description.
    #[serde(default)]
    pub description: String,
    /// The weights, a GGUF file.
    pub weights: BundleFile,
    /// Changes to the weights, at most [`ADAPTERS_MAX`].
    #[serde(default)]
    pub adapters: Vec<Adapter>,
    /// The mini head, a safetensors file; absent if the bundle has none. It chooses a worker for the mini tier without a plan.
    #[serde(default)]
    pub head: Option<BundleFile>,
    /// The sentence encoder whose vectors the mini head reads, a GGUF file; absent if the head reads the hidden states of the
    /// weights.
    #[serde(default)]
    pub encoder: Option<BundleFile>,
    /// The layout of the prompt.
    pub prompt: PromptTemplate,
    /// The examples that replace `{{examples}}` in the prompt.
    #[serde(default)]
    pub examples: Vec<Example>,
    /// The pinned pool of a conductor with slots.
    #[serde(default)]
    pub pool: PinnedPool,
    /// The sampling and token limits.
    pub sampling: Sampling,
}

/// A file that the manifest names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedFile<'m> {
    /// The manifest's key, such as `weights` or `adapters[0]`.
    pub key: String,
    /// The file name in the bundle's directory.
    pub file: &'m str,
    /// The expected SHA-256.
    pub sha256: &'m str,
}

impl<'m> NamedFile<'m> {
    fn of(key: &str, BundleFile { file, sha256 }: &'m BundleFile) -> Self {
        Self { key: key.to_owned(), file, sha256 }
    }
}

impl Manifest {
    /// Parses and checks a manifest. Reports all problems at once.
    pub fn parse(toml: &str) -> Result<Self, ManifestError> {
        check::parse(toml)
    }

    /// Name and version, as runs record them and as the suffix of a pinned model id.
    pub fn id(&self) -> String {
        format!("{}-{}", self.name, self.version)
    }

    /// The schema version of the manifest.
    pub const fn schema(&self) -> u32 {
        self.schema
    }

    /// Most rounds that it can plan. Slots mean trained weights; they can judge answers only if the manifest has the text of the
    /// follow-up prompt.
    pub const fn rounds_max(&self) -> u16 {
        match (self.prompt.workers, &self.prompt.further) {
            (WorkersInPrompt::Slots, None) => 1,
            (WorkersInPrompt::Slots, Some(_)) | (WorkersInPrompt::Described, _) => ROUNDS_MAX,
        }
    }

    /// All files that it names, the weights first.
    pub fn files(&self) -> Vec<NamedFile<'_>> {
        let mut files = vec![NamedFile::of("weights", &self.weights)];
        files.extend(self.adapters.iter().enumerate().map(|(number, Adapter { file, sha256, .. })| {
            NamedFile { key: format!("adapters[{number}]"), file, sha256 }
        }));
        files.extend(self.head.iter().map(|head| NamedFile::of("head", head)));
        files.extend(self.encoder.iter().map(|encoder| NamedFile::of("encoder", encoder)));
        files
    }
}

#[cfg(test)]
mod tests;
