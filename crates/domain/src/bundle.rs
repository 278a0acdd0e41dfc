//! The manifest of a conductor bundle: which files, which prompt, which pool, which sampling.

mod check;
mod examples;
mod pinned;

use serde::{Deserialize, Serialize};

use crate::ids::WorkerId;
use crate::policy::ROUNDS_MAX;

pub use check::{ManifestError, is_plain_file_name};
pub use examples::{EXAMPLE_BYTES_MAX, EXAMPLES_MAX, Example};
pub use pinned::{OtherPool, slots_hash};

/// The schema of the manifest that this version reads.
pub const SCHEMA: u32 = 1;
/// Most adapters of a bundle: the binding of llama.cpp applies one at a time. Several can be made one before, whose rank is the
/// sum of theirs.
pub const ADAPTERS_MAX: usize = 1;
/// The manifest's name in a bundle.
pub const MANIFEST_FILE: &str = "conductor.toml";

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

/// A file of the bundle.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BundleFile {
    /// A plain name in the bundle's directory.
    pub file: String,
    /// SHA-256 of the file, in lower-case hexadecimal.
    pub sha256: String,
}

/// A low-rank change to the weights (`LoRA`), as a GGUF file.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adapter {
    /// A plain name in the bundle's directory.
    pub file: String,
    /// SHA-256 of the file, in lower-case hexadecimal.
    pub sha256: String,
    /// How strongly it is applied, over 0 and at most 16; 1 is as it was trained.
    #[serde(default = "whole")]
    pub scale: f32,
}

fn whole() -> f32 {
    1.0
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
    /// The user's turn, with `{{question}}`, `{{workers}}`, `{{steps_max}}` and `{{examples}}`.
    pub user: String,
    /// What the user's turn goes on with in a further round, with `{{earlier}}`: the steps and outputs of the round before.
    /// Without it, workers that are described have [`FURTHER_ROUND`](crate::prompt::FURTHER_ROUND), and slots have no further
    /// rounds.
    #[serde(default)]
    pub further: Option<String>,
    /// What the assistant's turn is begun with.
    #[serde(default)]
    pub assistant_prefix: String,
    /// Where the words of subtasks come from.
    #[serde(default)]
    pub subtasks: SubtaskWords,
}

/// The pool that a conductor with anonymous slots was trained on. Empty for one whose workers are described.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PinnedPool {
    /// The workers in the order of the slots.
    pub slots: Vec<WorkerId>,
    /// Name and version of the pool, for people.
    pub trained_on: String,
    /// [`slots_hash`] of the workers in the slots.
    pub hash: String,
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
    /// The weights, a GGUF file.
    pub weights: BundleFile,
    /// What changes the weights, at most [`ADAPTERS_MAX`].
    #[serde(default)]
    pub adapters: Vec<Adapter>,
    /// The mini head, a safetensors file, if it has one: chooses a worker for the mini tier without writing a plan.
    #[serde(default)]
    pub head: Option<BundleFile>,
    /// The prompt.
    pub prompt: PromptTemplate,
    /// What stands where the prompt says `{{examples}}`.
    #[serde(default)]
    pub examples: Vec<Example>,
    /// The pinned pool of a conductor with slots.
    #[serde(default)]
    pub pool: PinnedPool,
    /// The sampling.
    pub sampling: Sampling,
}

/// A file as the manifest names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedFile<'m> {
    /// The manifest's key, such as `weights` or `adapters[0]`.
    pub key: String,
    /// The name in the bundle's directory.
    pub file: &'m str,
    /// What its SHA-256 must be.
    pub sha256: &'m str,
}

impl<'m> NamedFile<'m> {
    fn of(key: &str, BundleFile { file, sha256 }: &'m BundleFile) -> Self {
        Self { key: key.to_owned(), file, sha256 }
    }
}

impl Manifest {
    /// Reads and checks a manifest. All that is wrong with it is reported at once.
    pub fn parse(toml: &str) -> Result<Self, ManifestError> {
        check::parse(toml)
    }

    /// Name and version: what runs record, and what a pinned model id ends with.
    pub fn id(&self) -> String {
        format!("{}-{}", self.name, self.version)
    }

    /// The schema that it is written in.
    pub const fn schema(&self) -> u32 {
        self.schema
    }

    /// Most rounds that it can plan. Slots mean weights that were trained: to judge answers only if the manifest says in which
    /// words they were asked to.
    pub const fn rounds_max(&self) -> u16 {
        match (self.prompt.workers, &self.prompt.further) {
            (WorkersInPrompt::Slots, None) => 1,
            (WorkersInPrompt::Slots, Some(_)) | (WorkersInPrompt::Described, _) => ROUNDS_MAX,
        }
    }

    /// Every file that it names, the weights first.
    pub fn files(&self) -> Vec<NamedFile<'_>> {
        let mut files = vec![NamedFile::of("weights", &self.weights)];
        files.extend(self.adapters.iter().enumerate().map(|(number, Adapter { file, sha256, .. })| {
            NamedFile { key: format!("adapters[{number}]"), file, sha256 }
        }));
        files.extend(self.head.iter().map(|head| NamedFile::of("head", head)));
        files
    }
}

#[cfg(test)]
mod tests;
