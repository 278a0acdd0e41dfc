//! The pool: an ordered, versioned set of workers, read from a TOML file and checked as a whole.

mod extras;
mod fallbacks;
mod features;
mod file;
mod limits;
mod price_file;
mod retired;
mod secret;
mod slots;
mod waits;
mod wire_format;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::ids::{VendorId, WorkerId};
use crate::policy::{Effort, Policy};
use crate::prices::PriceLists;
use crate::time::Timestamp;

pub use extras::{Extras, HeaderText};
pub use features::Feature;
pub use file::PoolError;
pub use secret::SecretRef;
pub use slots::slots_hash;
pub use waits::Waits;
pub use wire_format::{KeyHeader, TokenLimitField, WireFormat};

/// Most workers of a pool.
pub const WORKERS_MAX: usize = 64;

/// A service that serves workers, with its address and keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vendor {
    /// Its id in the pool.
    pub id: VendorId,
    /// The base address of the API, such as `https://api.openai.com/v1`; without a trailing slash.
    pub base_url: String,
    /// A PEM file of the only authorities that may sign its servers' certificates. Absent: those that this machine trusts.
    pub root_certificates: Option<String>,
    /// Where its keys are stored, if it needs any. Calls are spread over them; all of them share the account's limits.
    pub keys: Vec<SecretRef>,
    /// Where a request carries the key, if that differs from the wire formats' default.
    pub key_header: Option<KeyHeader>,
    /// The field that bounds a completion in the format `openai-chat`; absent: chosen by its host name.
    pub token_limit_field: Option<TokenLimitField>,
    /// Additional headers and body fields of all its workers' calls.
    pub extras: Extras,
    /// The limits of the account, shared by all of its workers.
    pub limits: AccountLimits,
}

impl Vendor {
    /// Where a request in that format carries the key.
    pub fn key_header(&self, format: WireFormat) -> KeyHeader {
        self.key_header.clone().unwrap_or_else(|| format.key_header())
    }
}

/// A kind of input that a worker supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Modality {
    /// Text.
    Text,
    /// Images.
    Image,
    /// PDF files.
    Pdf,
}

/// The limits of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most concurrent calls.
    pub in_flight_max: u32,
    /// Longest duration of a call, in milliseconds.
    pub call_ms_max: u64,
    /// Longest silences within a call.
    pub waits: Waits,
    /// The limits per minute.
    pub rates: Rates,
    /// The limits that all workers of its vendor share.
    pub account: AccountLimits,
}

/// The limits of a vendor's account, shared by all its workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccountLimits {
    /// Most concurrent calls.
    pub in_flight_max: Option<u32>,
    /// The limits per minute.
    pub rates: Rates,
}

/// Most of each amount per minute. Vendors count tokens together, or prompt and completion separately, or both.
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
    /// Its id in the pool.
    pub id: WorkerId,
    /// The vendor that serves it.
    pub vendor: VendorId,
    /// Its wire format.
    pub api: WireFormat,
    /// The vendor's name for the model.
    pub model: String,
    /// A one-sentence description, for the conductor and for people.
    pub description: String,
    /// Its strengths, in a few words each.
    pub strengths: Vec<String>,
    /// The kinds of input that it supports.
    pub modalities: Vec<Modality>,
    /// Most tokens of prompt and completion together.
    pub context_tokens: u32,
    /// Most tokens of one completion.
    pub output_tokens_max: u32,
    /// The optional features that it supports, images and PDFs aside.
    pub features: BTreeSet<Feature>,
    /// The effort levels that the model accepts. Other levels are replaced by the nearest.
    pub efforts: BTreeSet<Effort>,
    /// Its prices, by date.
    pub prices: PriceLists,
    /// Its limits.
    pub limits: Limits,
    /// Additional headers and body fields of its calls; they override its vendor's.
    pub extras: Extras,
    /// Its fallbacks, the best first. `None`: the pool names none, so any other worker may be used.
    pub fallbacks: Option<Vec<WorkerId>>,
    /// Whether its calls carry the header `traceparent`, so that the vendor's spans join the trace of the run. For vendors of one's
    /// own only: the header names the client's trace.
    pub trace: bool,
}

impl Worker {
    /// Whether it supports the feature.
    pub fn takes(&self, feature: Feature) -> bool {
        match feature {
            Feature::Image => self.modalities.contains(&Modality::Image),
            Feature::Pdf => self.modalities.contains(&Modality::Pdf),
            Feature::PdfUrl => self.takes(Feature::Pdf) && self.api.carries(Feature::PdfUrl),
            feature => self.features.contains(&feature),
        }
    }

    /// The highest effort that the model accepts and that is not above `wanted`; its lowest one if all are above.
    pub fn nearest_effort(&self, wanted: Effort) -> Effort {
        let known = || self.efforts.iter().copied();
        known().filter(|effort| *effort <= wanted).max().or_else(|| known().min()).unwrap_or(wanted)
    }

    /// Whether it accepts an effort; most models reject a request that has one.
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
    /// Workers of earlier versions of the pool, the last removed first.
    retired: Vec<Worker>,
}

impl Pool {
    /// Parses and checks a pool file. Reports all problems at once.
    pub fn parse(toml: &str) -> Result<Self, PoolError> {
        file::parse(toml)
    }

    /// Its name, such as `demo`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Name and version, as runs record them.
    pub fn version(&self) -> String {
        format!("{}-{}", self.name, self.version)
    }

    /// The workers, in order; never empty.
    pub fn workers(&self) -> &[Worker] {
        &self.workers
    }

    /// The vendors that serve them, and those of retired workers.
    pub fn vendors(&self) -> &[Vendor] {
        &self.vendors
    }

    /// The worker with that id, unless it is retired.
    pub fn worker(&self, id: &WorkerId) -> Option<&Worker> {
        self.workers.iter().find(|worker| worker.id == *id)
    }

    /// The same pool with only these workers, in this order, as a conductor with pinned slots numbers them.
    pub fn arranged(&self, order: &[WorkerId]) -> Result<Self, UnknownWorker> {
        let find = |id: &WorkerId| self.worker(id).cloned().ok_or_else(|| UnknownWorker { id: id.clone() });
        let workers = order.iter().map(find).collect::<Result<_, _>>()?;
        Ok(Self { workers, ..self.clone() })
    }

    /// The same pool with other workers of the same vendors.
    #[must_use]
    pub fn with_workers(self, workers: Vec<Worker>) -> Self {
        Self { workers, ..self }
    }

    /// The worker for a whole question if nothing better is known: the one with the most expensive completion that the policy
    /// allows, because vendors price by ability; the first of equals.
    pub fn safest(&self, policy: &Policy) -> Option<&Worker> {
        let allowed = self.workers.iter().filter(|worker| policy.allows(&worker.id));
        allowed.rev().max_by_key(|worker| worker.prices.latest().prices.output)
    }

    /// The workers without a price list that is valid at `at`; they cannot be called.
    pub fn unpriced_at(&self, at: Timestamp) -> impl Iterator<Item = &Worker> {
        self.workers.iter().filter(move |worker| !worker.prices.is_valid_at(at))
    }

    /// The vendor with that id.
    pub fn vendor(&self, id: &VendorId) -> Option<&Vendor> {
        self.vendors.iter().find(|vendor| vendor.id == *id)
    }
}

/// The pool has no worker with that id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the pool has no worker `{id}`")]
pub struct UnknownWorker {
    /// The unknown id.
    pub id: WorkerId,
}

#[cfg(test)]
mod tests;
