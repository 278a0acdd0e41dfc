//! Bounds on a conductor whose model runs in this process.

use std::num::{NonZeroU16, NonZeroUsize};

use crate::hardware::Hardware;

/// Most plans that a model in this process writes concurrently: llama.cpp supports 256 sequences, and each needs memory for a
/// whole text.
pub const SEQUENCES_MAX: u16 = 64;
/// Most requests that may wait for a model in this process.
pub const WAITING_MAX: usize = 100_000;

/// Bounds on the resources of a conductor whose model runs in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalLimits {
    /// Most plans that are written concurrently, in one batch; at most [`SEQUENCES_MAX`]. The memory for text grows with it.
    pub sequences_max: NonZeroU16,
    /// Most requests that wait while the model is busy; at most [`WAITING_MAX`]. Further ones are refused.
    pub waiting_max: NonZeroUsize,
    /// The GPUs and memory formats that it may use.
    pub hardware: Hardware,
}

impl Default for LocalLimits {
    fn default() -> Self {
        const SEQUENCES_MAX: NonZeroU16 = NonZeroU16::new(8).expect("8 is not 0");
        const WAITING_MAX: NonZeroUsize = NonZeroUsize::new(256).expect("256 is not 0");
        Self { sequences_max: SEQUENCES_MAX, waiting_max: WAITING_MAX, hardware: Hardware::default() }
    }
}
