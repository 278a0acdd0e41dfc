//! The pool: an ordered, versioned set of workers, read from a TOML file and checked as a whole.

mod file;

use serde::{Deserialize, Serialize};

use crate::ids::{VendorId, WorkerId};
use crate::money::Prices;
use crate::policy::Policy;

pub use file::PoolError;

/// Most workers of a pool.
pub const WORKERS_MAX: usize = 64;

/// Wire format that a vendor speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VendorKind {
    /// OpenAI Chat Completions, as OpenAI, vLLM, Ollama and many others serve it.
    OpenaiCompatible,
}

/// Who serves workers, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vendor {
    /// Its name in the pool.
    pub id: VendorId,
    /// The wire format.
    pub kind: VendorKind,
    /// Where the API begins, such as `https://api.openai.com/v1`; without a slash at the end.
    pub base_url: String,
    /// The environment variable that holds the key. The key itself is never in the pool.
    pub api_key_env: Option<String>,
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
}

/// A vendor model that may be called.
#[derive(Clone, Debug, PartialEq)]
pub struct Worker {
    /// Its name in the pool.
    pub id: WorkerId,
    /// Who serves it.
    pub vendor: VendorId,
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
    /// Whether it takes a reasoning effort; most models refuse a request with one.
    pub takes_effort: bool,
    /// What it charges.
    pub prices: Prices,
    /// How hard it may be used.
    pub limits: Limits,
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

    /// The worker to hand a whole question to when nothing better is known: the dearest completion that the policy allows,
    /// since vendors price by ability; the first of equals.
    pub fn safest(&self, policy: &Policy) -> Option<&Worker> {
        let allowed = self.workers.iter().filter(|worker| policy.allows(worker));
        allowed.rev().max_by_key(|worker| worker.prices.output)
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
