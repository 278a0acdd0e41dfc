//! Checks a manifest and lists everything that is wrong with it.

use std::collections::BTreeSet;
use std::fmt;

use super::{ADAPTERS_MAX, MANIFEST_FILE, Manifest, SCHEMA, WorkersInPrompt, examples};
use podium_domain::ids::WorkerId;
use podium_domain::pool::WORKERS_MAX;

/// The largest factor of an adapter.
const SCALE_MAX: f32 = 16.0;

/// Why a manifest is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// It is not TOML, has an unknown key, or a value of the wrong type.
    #[error("conductor.toml cannot be parsed: {0}")]
    Syntax(String),
    /// It has the schema of another version of Podium.
    #[error("conductor.toml: schema is {found}, this version reads {SCHEMA}")]
    OtherSchema {
        /// The schema version in the file.
        found: i64,
    },
    /// It has invalid values; all of them are listed, each with its key.
    #[error("conductor.toml is invalid:{}", Lines(.0))]
    Invalid(Vec<String>),
}

pub(super) struct Lines<'a>(pub(super) &'a [String]);

impl fmt::Display for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|line| write!(f, "\n  - {line}"))
    }
}

/// Whether it can be the name of a file directly in the bundle: no folder, not hidden, not the manifest.
pub fn is_plain_file_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(['/', '\\', '\0']) && !name.starts_with('.') && name != MANIFEST_FILE
}

pub(super) fn parse(toml: &str) -> Result<Manifest, ManifestError> {
    let syntax = |error: toml::de::Error| ManifestError::Syntax(error.to_string());
    let table: toml::Table = toml::from_str(toml).map_err(syntax)?;
    // Checked first, because even the keys of another schema are unknown.
    if let Some(found) = table.get("schema").and_then(toml::Value::as_integer)
        && found != i64::from(SCHEMA)
    {
        return Err(ManifestError::OtherSchema { found });
    }
    // Parsed from the text again, so that errors name the line.
    let manifest: Manifest = toml::from_str(toml).map_err(syntax)?;
    let mut problems = Vec::new();
    check_identity(&manifest, &mut problems);
    check_files(&manifest, &mut problems);
    check_pool(&manifest, &mut problems);
    examples::check(&manifest, &mut problems);
    check_sampling(&manifest, &mut problems);
    if problems.is_empty() { Ok(manifest) } else { Err(ManifestError::Invalid(problems)) }
}

fn check_identity(manifest: &Manifest, problems: &mut Vec<String>) {
    if WorkerId::new(manifest.id()).is_err() {
        problems.push("name and version must be of a-z, A-Z, 0-9, `.`, `_`, `-`".to_owned());
    }
    if !manifest.prompt.user.contains("{{question}}") {
        problems.push("prompt.user must contain {{question}}".to_owned());
    }
    if manifest.prompt.further.as_ref().is_some_and(|further| !further.contains("{{earlier}}")) {
        problems.push("prompt.further must contain {{earlier}}".to_owned());
    }
}

fn check_files(manifest: &Manifest, problems: &mut Vec<String>) {
    if manifest.adapters.len() > ADAPTERS_MAX {
        problems.push(format!(
            "adapters has {} entries, at most {ADAPTERS_MAX} are allowed",
            manifest.adapters.len()
        ));
    }
    if manifest.encoder.is_some() && manifest.head.is_none() {
        problems.push("encoder must be left out where there is no head, which alone reads it".to_owned());
    }
    let mut seen = BTreeSet::new();
    for named in manifest.files() {
        let (key, file) = (&named.key, named.file);
        if !is_plain_file_name(file) {
            problems.push(format!("{key}.file is `{file}`, it must be a plain file name in the bundle"));
        } else if !seen.insert(file) {
            problems.push(format!("{key}.file is `{file}`, which is named twice"));
        }
        if !is_sha256(named.sha256) {
            problems.push(format!("{key}.sha256 must be 64 lower-case hexadecimal digits"));
        }
    }
    for (number, adapter) in manifest.adapters.iter().enumerate() {
        if !(adapter.scale > 0.0 && adapter.scale <= SCALE_MAX) {
            let scale = adapter.scale;
            problems.push(format!(
                "adapters[{number}].scale is {scale}, it must be over 0 and at most {SCALE_MAX}"
            ));
        }
    }
}

fn check_pool(manifest: &Manifest, problems: &mut Vec<String>) {
    let pinned = &manifest.pool;
    if manifest.prompt.workers == WorkersInPrompt::Described {
        if *pinned != super::PinnedPool::default() {
            problems.push("pool must be left out where prompt.workers is `described`".to_owned());
        }
        return;
    }
    let slots = pinned.slots.len();
    if !(1..=WORKERS_MAX).contains(&slots) {
        problems.push(format!(
            "pool.slots has {slots} workers, it must have 1 to {WORKERS_MAX} where prompt.workers is `slots`"
        ));
    }
    if pinned.slots.iter().collect::<BTreeSet<_>>().len() < slots {
        problems.push("pool.slots has a worker twice".to_owned());
    }
    if pinned.trained_on.is_empty() {
        problems.push("pool.trained_on must be name and version of the pool, such as `demo-1`".to_owned());
    }
    if !is_sha256(&pinned.hash) {
        problems.push(
            "pool.hash must be 64 lower-case hexadecimal digits; `podium bundle pack --pool` fills it in"
                .to_owned(),
        );
    }
}

fn check_sampling(manifest: &Manifest, problems: &mut Vec<String>) {
    let sampling = &manifest.sampling;
    if !(0.0..=2.0).contains(&sampling.temperature) {
        problems.push(format!("sampling.temperature is {}, it must be 0 to 2", sampling.temperature));
    }
    if !(64..=1 << 20).contains(&sampling.context_tokens) {
        problems.push(format!(
            "sampling.context_tokens is {}, it must be 64 to 1048576",
            sampling.context_tokens
        ));
    }
    let written = u64::from(sampling.reasoning_tokens_max) + u64::from(sampling.plan_tokens_max);
    if sampling.plan_tokens_max == 0 || written >= u64::from(sampling.context_tokens) {
        problems.push(
            "sampling.plan_tokens_max must not be 0, and with reasoning_tokens_max fit in context_tokens"
                .to_owned(),
        );
    }
}

fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}
