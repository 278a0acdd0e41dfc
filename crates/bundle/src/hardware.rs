//! The hardware that a model in this process may use besides the processor, and the errors if it is missing.

use std::fmt;
use std::num::NonZeroU32;

/// Most GPUs that one model is split over; a limit of llama.cpp's binding.
pub const GPUS_MAX: u8 = 16;
/// Highest number of layers in the settings; no model has as many.
pub const GPU_LAYERS_MAX: u32 = 1000;

/// The hardware that a model in this process may use; by default the processor alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hardware {
    /// The layers that GPUs compute.
    pub gpu_layers: GpuLayers,
    /// The GPUs that may be used.
    pub gpus: Gpus,
    /// How the model is split over them.
    pub gpu_split: GpuSplit,
    /// The reaction to GPUs that are missing or too small.
    pub gpu_lack: GpuLack,
    /// The format of the key-value cache.
    pub kv_cache: KvCache,
}

/// How many of a model's layers GPUs compute; the processor computes the rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GpuLayers {
    /// None: no GPU is touched.
    #[default]
    None,
    /// This many, counted from the last layer; at most [`GPU_LAYERS_MAX`].
    Some(NonZeroU32),
    /// All layers of any model.
    All,
}

/// The form used in settings.
impl fmt::Display for GpuLayers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("0"),
            Self::Some(layers) => layers.fmt(f),
            Self::All => f.write_str("all"),
        }
    }
}

/// A set of GPUs, numbered from 0 in the order in which llama.cpp finds them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gpus {
    /// A bit for each number; zero means all GPUs.
    numbers: u16,
}

impl Gpus {
    /// All GPUs of the machine.
    pub const ALL: Self = Self { numbers: 0 };

    /// These GPUs; an empty set means all. `None` if a number is [`GPUS_MAX`] or more.
    pub fn of(numbers: impl IntoIterator<Item = u8>) -> Option<Self> {
        let mut bits = 0;
        for number in numbers {
            if number >= GPUS_MAX {
                return None;
            }
            bits |= 1 << number;
        }
        Some(Self { numbers: bits })
    }

    /// Their numbers in ascending order; `None` if all are meant.
    pub fn numbers(self) -> Option<impl Iterator<Item = u8>> {
        (self.numbers != 0).then(|| (0..GPUS_MAX).filter(move |number| self.numbers & (1 << number) != 0))
    }
}

/// How a model is split over several GPUs. Each gets a share in proportion to its free memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GpuSplit {
    /// No split: the first GPU computes everything.
    None,
    /// By layers: one GPU after the other.
    #[default]
    Layer,
    /// By rows of each matrix: all GPUs compute concurrently, which needs a fast link between them.
    Row,
}

/// The reaction to a configured GPU that is missing or too small.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GpuLack {
    /// The model is not loaded; the program reports the error.
    #[default]
    Refused,
    /// The processor computes instead, many times slower.
    Borne,
}

/// The format of the key-value cache. Smaller ones leave memory for more text and cost some precision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KvCache {
    /// 16 bits a value, the default of llama.cpp.
    #[default]
    F16,
    /// 16 bits a value, with the range of 32-bit numbers.
    Bf16,
    /// 8.5 bits a value.
    Q8_0,
    /// 4.5 bits a value.
    Q4_0,
}

impl KvCache {
    /// Bytes that this many values need.
    pub const fn bytes(self, values: u64) -> u64 {
        // The quantised formats have a 2-byte scale for each 32 values.
        match self {
            Self::F16 | Self::Bf16 => values.saturating_mul(2),
            Self::Q8_0 => values.div_ceil(32).saturating_mul(34),
            Self::Q4_0 => values.div_ceil(32).saturating_mul(18),
        }
    }
}

/// The form used in settings.
impl fmt::Display for KvCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Q8_0 => "q8_0",
            Self::Q4_0 => "q4_0",
        })
    }
}

/// A configured GPU is unavailable. Restarting does not help until the machine or the settings change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GpuError {
    /// There is no GPU, or not the configured one.
    #[error("gpu_layers is {gpu_layers}, but {missing}; {found}")]
    Missing {
        /// The setting.
        gpu_layers: GpuLayers,
        /// What is missing.
        missing: String,
        /// Which GPUs were found instead, and where they were looked for.
        found: String,
    },
    /// The model does not fit into the GPUs' memory.
    #[error("gpu_layers is {gpu_layers}, but {needed} do not fit into {free}")]
    TooSmall {
        /// The setting.
        gpu_layers: GpuLayers,
        /// The memory that each part of the model needs.
        needed: String,
        /// The free memory of each GPU.
        free: String,
    },
}

impl GpuError {
    /// The first `GpuError` in an error's chain of causes, if there is one.
    pub fn among<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a Self> {
        std::iter::successors(Some(error), |error| error.source())
            .find_map(<dyn std::error::Error>::downcast_ref)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_are_a_set_of_numbers() {
        assert!(Gpus::ALL.numbers().is_none());
        let some = Gpus::of([15, 0, 2, 0]).unwrap();
        assert_eq!(some.numbers().unwrap().collect::<Vec<_>>(), [0, 2, 15]);
        assert_eq!(Gpus::of([16]), None);
    }

    #[test]
    fn the_size_of_the_cache_is_that_of_llama_cpp() {
        // In Qwen2.5-7B (28 layers, 4 heads of 128), keys and values of a token take 56 KiB.
        assert_eq!(KvCache::F16.bytes(2 * 28 * 4 * 128), 56 << 10);
        assert_eq!(KvCache::Q8_0.bytes(2 * 28 * 4 * 128), (56 << 10) / 64 * 34);
        assert_eq!(KvCache::Q4_0.bytes(33), 36);
    }

    #[test]
    fn a_gpu_error_is_found_among_the_causes_of_another() {
        #[derive(Debug, thiserror::Error)]
        #[error("outer")]
        struct Outer(#[source] GpuError);
        let gpu_layers = GpuLayers::All;
        let lack = GpuError::Missing { gpu_layers, missing: "none".into(), found: "nothing".into() };
        assert_eq!(GpuError::among(&Outer(lack.clone())), Some(&lack));
        assert_eq!(GpuError::among(&fmt::Error), None);
    }
}
