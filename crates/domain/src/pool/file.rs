//! The pool file: its keys, their defaults and bounds, and the list of all its problems.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Deserialize;

use super::features::features;
use super::limits::{AccountLimitsEntry, LimitsEntry};
use super::price_file::{PriceEntries, prices};
use super::{
    AccountLimits, Extras, Feature, KeyHeader, Modality, Pool, SecretRef, TokenLimitField, Vendor,
    WORKERS_MAX, WireFormat, Worker, extras,
};
use crate::ids::{VendorId, WorkerId};
use crate::policy::Effort;

/// The version of the file's schema that this version reads.
const SCHEMA: u32 = 1;
/// Most keys of a vendor.
const KEYS_MAX: usize = 64;
/// Longest name of the header that carries a key.
const KEY_HEADER_BYTES_MAX: usize = 64;

/// A pool file is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// It is not TOML, has an unknown key, or a value of the wrong type.
    #[error("the pool file cannot be parsed: {0}")]
    Syntax(String),
    /// It has invalid values; all of them are listed.
    #[error("the pool file is invalid:{}", Lines(.0))]
    Invalid(Vec<String>),
}

struct Lines<'a>(&'a [String]);

impl fmt::Display for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|line| write!(f, "\n  - {line}"))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PoolFile {
    schema: u32,
    name: String,
    version: String,
    #[serde(default)]
    vendors: Vec<VendorEntry>,
    #[serde(default)]
    workers: Vec<WorkerEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VendorEntry {
    id: String,
    /// The wire format of workers that do not set their own.
    #[serde(alias = "kind")]
    api: WireFormat,
    base_url: String,
    /// A file of PEM certificates.
    root_certificates: Option<String>,
    /// One key, in an environment variable.
    api_key_env: Option<String>,
    /// Several keys, each in an environment variable.
    api_keys_env: Option<Vec<String>>,
    /// A file with one key per line, read again for every call.
    api_key_file: Option<String>,
    key_header: Option<String>,
    token_limit_field: Option<TokenLimitField>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    body: toml::Table,
    #[serde(default)]
    limits: AccountLimitsEntry,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WorkerEntry {
    id: String,
    vendor: String,
    api: Option<WireFormat>,
    model: String,
    description: String,
    #[serde(default)]
    strengths: Vec<String>,
    #[serde(default = "text_only")]
    modalities: Vec<Modality>,
    context_tokens: u32,
    #[serde(default = "default_output_tokens_max")]
    output_tokens_max: u32,
    features: Option<Vec<Feature>>,
    /// The effort levels that the model accepts.
    efforts: Option<BTreeSet<Effort>>,
    usd_per_million_tokens: PriceEntries,
    #[serde(default)]
    limits: LimitsEntry,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    body: toml::Table,
    fallbacks: Option<Vec<String>>,
    /// Whether calls carry the header `traceparent`.
    #[serde(default)]
    trace: bool,
}

fn text_only() -> Vec<Modality> {
    vec![Modality::Text]
}

fn default_output_tokens_max() -> u32 {
    4096
}

pub(super) fn parse(toml: &str) -> Result<Pool, PoolError> {
    let file: PoolFile = toml::from_str(toml).map_err(|e| PoolError::Syntax(e.to_string()))?;
    let mut problems = Vec::new();
    if file.schema != SCHEMA {
        problems.push(format!("schema is {}, this version reads {SCHEMA}", file.schema));
    }
    if let Err(e) = VendorId::new(format!("{}-{}", file.name, file.version)) {
        problems.push(format!("name and version: {e}"));
    }
    let apis: BTreeMap<_, _> = file.vendors.iter().map(|entry| (entry.id.clone(), entry.api)).collect();
    let vendors: Vec<_> = file.vendors.into_iter().filter_map(|entry| vendor(entry, &mut problems)).collect();
    let accounts = vendors.iter().map(|vendor| (vendor.id.to_string(), vendor.limits)).collect();
    let workers: Vec<_> =
        file.workers.into_iter().filter_map(|entry| worker(entry, &apis, &accounts, &mut problems)).collect();
    check_references(&vendors, &workers, &mut problems);
    if problems.is_empty() {
        Ok(Pool { name: file.name, version: file.version, vendors, workers, retired: Vec::new() })
    } else {
        Err(PoolError::Invalid(problems))
    }
}

fn vendor(entry: VendorEntry, problems: &mut Vec<String>) -> Option<Vendor> {
    let known = problems.len();
    let at = format!("vendors `{}`", entry.id);
    let id = VendorId::new(&*entry.id).map_err(|e| problems.push(format!("{at}: id: {e}"))).ok();
    if !(entry.base_url.starts_with("http://") || entry.base_url.starts_with("https://")) {
        problems.push(format!("{at}: base_url `{}` must begin with http:// or https://", entry.base_url));
    }
    if let Some(path) = &entry.root_certificates {
        if path.is_empty() {
            problems.push(format!("{at}: root_certificates is empty, it must be the path of a PEM file"));
        } else if !entry.base_url.starts_with("https://") {
            problems.push(format!("{at}: root_certificates needs a base_url that begins with https://"));
        }
    }
    let keys = keys(&entry, &at, problems);
    let extras = Extras::check(entry.headers, entry.body, &at, problems);
    let key_header = entry.key_header.and_then(|name| key_header(&name, &at, problems));
    let limits = entry.limits.check(&at, problems);
    let id = id.filter(|_| problems.len() == known)?;
    let base_url = entry.base_url.trim_end_matches('/').to_owned();
    let (token_limit_field, root_certificates) = (entry.token_limit_field, entry.root_certificates);
    Some(Vendor { id, base_url, root_certificates, keys, key_header, token_limit_field, extras, limits })
}

/// The references to the vendor's keys, in any of the three forms.
fn keys(entry: &VendorEntry, at: &str, problems: &mut Vec<String>) -> Vec<SecretRef> {
    let one = entry.api_key_env.iter().map(|name| ("api_key_env", SecretRef::env(name)));
    let several = entry.api_keys_env.iter().flatten().map(|name| ("api_keys_env", SecretRef::env(name)));
    let file = entry.api_key_file.iter().map(|path| ("api_key_file", SecretRef::file(path)));
    let mut keys = Vec::new();
    for (field, key) in one.chain(several).chain(file) {
        match key {
            Ok(key) if keys.contains(&key) => problems.push(format!("{at}: {field}: {key} occurs twice")),
            Ok(key) => keys.push(key),
            Err(problem) => problems.push(format!("{at}: {field} {problem}")),
        }
    }
    let said = usize::from(entry.api_key_env.is_some())
        + usize::from(entry.api_keys_env.is_some())
        + usize::from(entry.api_key_file.is_some());
    if said > 1 {
        problems.push(format!("{at}: use one of api_key_env, api_keys_env and api_key_file"));
    }
    if entry.api_keys_env.as_ref().is_some_and(|names| !(1..=KEYS_MAX).contains(&names.len())) {
        problems.push(format!("{at}: api_keys_env must have 1 to {KEYS_MAX} entries"));
    }
    keys
}

fn key_header(name: &str, at: &str, problems: &mut Vec<String>) -> Option<KeyHeader> {
    let name = name.to_ascii_lowercase();
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-';
    if name.is_empty() || name.len() > KEY_HEADER_BYTES_MAX || !name.chars().all(allowed) {
        problems.push(format!(
            "{at}: key_header must be 1 to {KEY_HEADER_BYTES_MAX} letters, digits and hyphens, such as `api-key`"
        ));
        return None;
    }
    Some(if name == "authorization" { KeyHeader::Bearer } else { KeyHeader::Named(name) })
}

fn worker(
    entry: WorkerEntry,
    apis: &BTreeMap<String, WireFormat>,
    accounts: &BTreeMap<String, AccountLimits>,
    problems: &mut Vec<String>,
) -> Option<Worker> {
    let known = problems.len();
    let at = format!("workers `{}`", entry.id);
    // A vendor that is not defined is reported elsewhere.
    let api = entry.api.or_else(|| apis.get(&entry.vendor).copied()).unwrap_or(WireFormat::OpenaiChat);
    let account = accounts.get(&entry.vendor).copied().unwrap_or_default();
    let id = WorkerId::new(&*entry.id).map_err(|e| problems.push(format!("{at}: id: {e}"))).ok();
    let vendor = VendorId::new(entry.vendor).map_err(|e| problems.push(format!("{at}: vendor: {e}"))).ok();
    let mut bound = |field: &str, value: u64, max: u64| {
        if !(1..=max).contains(&value) {
            problems.push(format!("{at}: {field} is {value}, it must be 1 to {max}"));
        }
    };
    bound("model length", entry.model.len() as u64, 256);
    bound("description length", entry.description.len() as u64, 2000);
    bound("context_tokens", entry.context_tokens.into(), 100_000_000);
    bound("output_tokens_max", entry.output_tokens_max.into(), entry.context_tokens.into());
    bound("modalities count", entry.modalities.len() as u64, 3);
    let features = features(entry.features, api, &at, problems);
    let efforts = entry.efforts.unwrap_or_else(|| api.usual_efforts().iter().copied().collect());
    if efforts.is_empty() {
        problems.push(format!("{at}: efforts must have at least one entry"));
    }
    let limits = entry.limits.check(account, &features, &at, problems);
    let prices = prices(&entry.usd_per_million_tokens, &at, problems);
    let fallbacks = entry.fallbacks.map(|ids| fallbacks(ids, &at, problems));
    let extras = Extras::check(entry.headers, entry.body, &at, problems);
    let (id, vendor, prices) = (id?, vendor?, prices?);
    (problems.len() == known).then_some(Worker {
        id,
        vendor,
        api,
        model: entry.model,
        description: entry.description,
        strengths: entry.strengths,
        modalities: entry.modalities,
        context_tokens: entry.context_tokens,
        output_tokens_max: entry.output_tokens_max,
        features,
        efforts,
        prices,
        limits,
        extras,
        fallbacks,
        trace: entry.trace,
    })
}

fn fallbacks(ids: Vec<String>, at: &str, problems: &mut Vec<String>) -> Vec<WorkerId> {
    let mut known = Vec::new();
    for id in ids {
        match WorkerId::new(id) {
            Ok(id) => known.push(id),
            Err(e) => problems.push(format!("{at}: fallbacks: {e}")),
        }
    }
    known
}

fn check_references(vendors: &[Vendor], workers: &[Worker], problems: &mut Vec<String>) {
    if workers.is_empty() && problems.is_empty() {
        problems.push("workers must have at least one entry".to_owned());
    }
    if workers.len() > WORKERS_MAX {
        problems.push(format!("workers has {} entries, the limit is {WORKERS_MAX}", workers.len()));
    }
    let mut seen = BTreeSet::new();
    for vendor in vendors {
        if !seen.insert(vendor.id.as_str()) {
            problems.push(format!("vendors `{}` occurs twice", vendor.id));
        }
    }
    let mut seen = BTreeSet::new();
    for worker in workers {
        if !seen.insert(worker.id.as_str()) {
            problems.push(format!("workers `{}` occurs twice", worker.id));
        }
        match vendors.iter().find(|vendor| vendor.id == worker.vendor) {
            Some(vendor) => {
                for problem in extras::contradictions(vendor, worker) {
                    // A problem of a vendor's entry is reported once, not for each of its workers.
                    if !problems.contains(&problem) {
                        problems.push(problem);
                    }
                }
            }
            None => {
                problems.push(format!("workers `{}`: vendor `{}` is not defined", worker.id, worker.vendor));
            }
        }
        for named in worker.fallbacks.iter().flatten() {
            if *named == worker.id || !workers.iter().any(|other| other.id == *named) {
                problems.push(format!(
                    "workers `{}`: fallbacks: `{named}` must be another worker of the pool",
                    worker.id
                ));
            }
        }
    }
}
