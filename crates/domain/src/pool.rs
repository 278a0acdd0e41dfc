//! The pool: an ordered, versioned set of workers, read from a TOML file and checked as a whole.

mod extras;
mod fallbacks;
mod features;
mod file;
mod limits;
mod price_file;
mod secret;
mod waits;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::ids::{VendorId, WorkerId};
use crate::policy::{Effort, Policy};
use crate::prices::PriceLists;
use crate::time::Timestamp;

pub use extras::{Extras, HeaderText};
pub use features::{Feature, KeyHeader, TokenLimitField, WireFormat};
pub use file::PoolError;
pub use secret::SecretRef;
pub use waits::Waits;

/// Most workers of a pool.
pub const WORKERS_MAX: usize = 64;

/// Who serves workers, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vendor {
    /// Its name in the pool.
    pub id: VendorId,
    /// Where the API begins, such as `https://api.openai.com/v1`; without a slash at the end.
    pub base_url: String,
    /// A file of PEM certificates: the only authorities that its servers' certificates may be signed by. Absent: those that this
    /// machine trusts.
    pub root_certificates: Option<String>,
    /// Where its keys are, if it asks for any. Calls are spread over them; all of them share the account's limits.
    pub keys: Vec<SecretRef>,
    /// Where a request carries the key, if the vendor wants it elsewhere than its workers' wire formats have it.
    pub key_header: Option<KeyHeader>,
    /// The field that bounds a completion in the format `openai-chat`; absent: as its host name suggests.
    pub token_limit_field: Option<TokenLimitField>,
    /// What the calls of all its workers have in addition.
    pub extras: Extras,
    /// What the account allows all of its workers together.
    pub limits: AccountLimits,
}

impl Vendor {
    /// Where a request in that format carries the key.
    pub fn key_header(&self, format: WireFormat) -> KeyHeader {
        self.key_header.clone().unwrap_or_else(|| format.key_header())
    }
}

/// What a worker can take in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Modality {
    /// Text.
    Text,
    /// Pictures.
    Image,
}

/// How hard a worker may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most calls at the same time.
    pub in_flight_max: u32,
    /// Longest wait for a whole answer, in milliseconds.
    pub call_ms_max: u64,
    /// Longest silences within it.
    pub waits: Waits,
    /// How much of it may be used in a minute.
    pub rates: Rates,
    /// What its vendor allows all of its workers together.
    pub account: AccountLimits,
}

/// How hard all workers of a vendor may be used together: what the account allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccountLimits {
    /// Most calls at the same time.
    pub in_flight_max: Option<u32>,
    /// How much may be used in a minute.
    pub rates: Rates,
}

/// Most of something in a minute. Vendors count tokens together, or apart by prompt and completion, or both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// Calls.
    pub requests_per_minute: Option<u64>,
    /// Tokens of prompts and completions together.
    pub tokens_per_minute: Option<u64>,
    /// Tokens of prompts.
    pub input_tokens_per_minute: Option<u64>,
    /// Tokens of completions.
    pub output_tokens_per_minute: Option<u64>,
}

/// A vendor model that may be called.
#[derive(Clone, Debug, PartialEq)]
pub struct Worker {
    /// Its name in the pool.
    pub id: WorkerId,
    /// Who serves it.
    pub vendor: VendorId,
    /// How it is spoken to.
    pub api: WireFormat,
    /// The vendor's name for the model.
    pub model: String,
    /// What it is, in a sentence, for the conductor and for people.
    pub description: String,
    /// What it is good at, in a few words each.
    pub strengths: Vec<String>,
    /// What it can take in.
    pub modalities: Vec<Modality>,
    /// Most tokens of prompt and completion together.
    pub context_tokens: u32,
    /// Most tokens of one completion.
    pub output_tokens_max: u32,
    /// What it takes of what a request may ask for, pictures aside.
    pub features: BTreeSet<Feature>,
    /// The efforts that it knows by name. A request with another one gets the nearest.
    pub efforts: BTreeSet<Effort>,
    /// What it charges, and from when.
    pub prices: PriceLists,
    /// How hard it may be used.
    pub limits: Limits,
    /// What its calls have in addition to its vendor's, which they win over.
    pub extras: Extras,
    /// Who may stand in for it, the best first; none: the pool does not say, so any other worker.
    pub fallbacks: Option<Vec<WorkerId>>,
}

impl Worker {
    /// Whether a request may ask it for that.
    pub fn takes(&self, feature: Feature) -> bool {
        match feature {
            Feature::Image => self.modalities.contains(&Modality::Image),
            feature => self.features.contains(&feature),
        }
    }

    /// The highest effort that the model knows and that is not above `wanted`; its lowest if all are above.
    pub fn nearest_effort(&self, wanted: Effort) -> Effort {
        let known = || self.efforts.iter().copied();
        known().filter(|effort| *effort <= wanted).max().or_else(|| known().min()).unwrap_or(wanted)
    }

    /// Whether it can be told how hard to reason; most models refuse a request that does.
    pub fn takes_effort(&self) -> bool {
        self.takes(Feature::Effort) || self.takes(Feature::ThinkingBudget)
    }
}

/// An ordered set of workers. The order is part of its identity: a conductor may have been trained on it.
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    name: String,
    version: String,
    vendors: Vec<Vendor>,
    workers: Vec<Worker>,
}

impl Pool {
    /// Reads a pool file. All that is wrong with it is reported at once.
    pub fn parse(toml: &str) -> Result<Self, PoolError> {
        file::parse(toml)
    }

    /// Its name, such as `demo`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Name and version: what a run records as the pool that it used.
    pub fn version(&self) -> String {
        format!("{}-{}", self.name, self.version)
    }

    /// The workers, in order; never empty.
    pub fn workers(&self) -> &[Worker] {
        &self.workers
    }

    /// The vendors that serve them.
    pub fn vendors(&self) -> &[Vendor] {
        &self.vendors
    }

    /// The worker of that name.
    pub fn worker(&self, id: &WorkerId) -> Option<&Worker> {
        self.workers.iter().find(|worker| worker.id == *id)
    }

    /// The same pool with just these workers, in this order: how a conductor with pinned slots sees it.
    pub fn arranged(&self, order: &[WorkerId]) -> Result<Self, UnknownWorker> {
        let find = |id: &WorkerId| self.worker(id).cloned().ok_or_else(|| UnknownWorker { id: id.clone() });
        let workers = order.iter().map(find).collect::<Result<_, _>>()?;
        Ok(Self { workers, ..self.clone() })
    }

    /// The same pool with other workers, of the same vendors.
    #[must_use]
    pub fn with_workers(self, workers: Vec<Worker>) -> Self {
        Self { workers, ..self }
    }

    /// The worker to hand a whole question to when nothing better is known: the dearest completion that the policy allows,
    /// since vendors price by ability; the first of equals.
    pub fn safest(&self, policy: &Policy) -> Option<&Worker> {
        let allowed = self.workers.iter().filter(|worker| policy.allows(worker));
        allowed.rev().max_by_key(|worker| worker.prices.latest().prices.output)
    }

    /// The workers that have no price list yet that is valid at `at`: they cannot be called.
    pub fn unpriced_at(&self, at: Timestamp) -> impl Iterator<Item = &Worker> {
        self.workers.iter().filter(move |worker| !worker.prices.is_valid_at(at))
    }

    /// The vendor of that name.
    pub fn vendor(&self, id: &VendorId) -> Option<&Vendor> {
        self.vendors.iter().find(|vendor| vendor.id == *id)
    }
}

/// The pool has no worker of that name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the pool has no worker `{id}`")]
pub struct UnknownWorker {
    /// The name.
    pub id: WorkerId,
}

#[cfg(test)]
mod tests;
