//! What of a machine a model in this process may use beside its processor, and what is said when that is not there.

use std::fmt;
use std::num::NonZeroU32;

/// Most GPUs that one model is spread over, as llama.cpp's binding has it.
pub const GPUS_MAX: u8 = 16;
/// Most layers that may be named one by one; no model has so many.
pub const GPU_LAYERS_MAX: u32 = 1000;

/// What of a machine a model in this process may use. By default the processor alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hardware {
    /// Layers that GPUs compute.
    pub gpu_layers: GpuLayers,
    /// Which GPUs.
    pub gpus: Gpus,
    /// How a model is spread over them.
    pub gpu_split: GpuSplit,
    /// What becomes of a promise that is not kept.
    pub gpu_lack: GpuLack,
    /// How keys and values of the text so far are kept.
    pub kv_cache: KvCache,
}

/// How many of a model's layers GPUs compute; the processor computes the rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GpuLayers {
    /// None: no GPU is touched.
    #[default]
    None,
    /// So many, the last ones first, at most [`GPU_LAYERS_MAX`].
    Some(NonZeroU32),
    /// All, whatever the model.
    All,
}

/// As it is written in settings.
impl fmt::Display for GpuLayers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("0"),
            Self::Some(layers) => layers.fmt(f),
            Self::All => f.write_str("all"),
        }
    }
}

/// Which of the GPUs that there are, numbered from 0 as llama.cpp finds them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gpus {
    /// A bit for each number; none set stands for all GPUs.
    numbers: u16,
}

impl Gpus {
    /// All that there are.
    pub const ALL: Self = Self { numbers: 0 };

    /// These; none of them may be [`GPUS_MAX`] or more, and none at all stands for all.
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

    /// Their numbers in rising order; nothing where all are meant.
    pub fn numbers(self) -> Option<impl Iterator<Item = u8>> {
        (self.numbers != 0).then(|| (0..GPUS_MAX).filter(move |number| self.numbers & (1 << number) != 0))
    }
}

/// How a model is spread over several GPUs. Each gets a share by the memory that it has free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GpuSplit {
    /// It is not: the first of them computes everything.
    None,
    /// By layers: one GPU after the other.
    #[default]
    Layer,
    /// By rows of each matrix: all at the same time, where the GPUs' link is fast.
    Row,
}

/// What becomes of a promised GPU that is not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GpuLack {
    /// The model is not loaded.
    #[default]
    Refused,
    /// The processor computes instead, many times slower.
    Borne,
}

/// How keys and values of the text so far are kept. Smaller ones make room for more text and cost some precision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KvCache {
    /// 16 bits a value, as llama.cpp does.
    #[default]
    F16,
    /// 16 bits a value with the range of 32.
    Bf16,
    /// 8.5 bits a value.
    Q8_0,
    /// 4.5 bits a value.
    Q4_0,
}

impl KvCache {
    /// Bytes that so many values take.
    pub const fn bytes(self, values: u64) -> u64 {
        // The quantised ones have a scale of 2 bytes for each 32 values.
        match self {
            Self::F16 | Self::Bf16 => values.saturating_mul(2),
            Self::Q8_0 => values.div_ceil(32).saturating_mul(34),
            Self::Q4_0 => values.div_ceil(32).saturating_mul(18),
        }
    }
}

/// As it is written in settings.
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

/// A GPU was promised, and cannot be had. Starting again does not help before the machine or the settings are others.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GpuError {
    /// There is none, or not the one that was named.
    #[error("gpu_layers is {gpu_layers}, but {missing}; {found}")]
    Missing {
        /// What was promised.
        gpu_layers: GpuLayers,
        /// What is missing.
        missing: String,
        /// What there is instead, and where it was looked for.
        found: String,
    },
    /// The model does not fit into it.
    #[error("gpu_layers is {gpu_layers}, but {needed} do not fit into {free}")]
    TooSmall {
        /// What was promised.
        gpu_layers: GpuLayers,
        /// What takes how much.
        needed: String,
        /// How much each GPU has free.
        free: String,
    },
}

impl GpuError {
    /// The one among an error and its causes, if there is one.
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
    fn a_cache_takes_what_llama_cpp_says() {
        // Of Qwen2.5-7B, 28 layers of 4 heads of 128, a token has keys and values of 56 KiB.
        assert_eq!(KvCache::F16.bytes(2 * 28 * 4 * 128), 56 << 10);
        assert_eq!(KvCache::Q8_0.bytes(2 * 28 * 4 * 128), (56 << 10) / 64 * 34);
        assert_eq!(KvCache::Q4_0.bytes(33), 36);
    }

    #[test]
    fn a_lack_is_known_below_other_errors() {
        #[derive(Debug, thiserror::Error)]
        #[error("outer")]
        struct Outer(#[source] GpuError);
        let gpu_layers = GpuLayers::All;
        let lack = GpuError::Missing { gpu_layers, missing: "none".into(), found: "nothing".into() };
        assert_eq!(GpuError::among(&Outer(lack.clone())), Some(&lack));
        assert_eq!(GpuError::among(&fmt::Error), None);
    }
}
