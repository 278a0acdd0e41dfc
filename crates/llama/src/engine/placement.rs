//! Chooses the GPUs for a model and checks that it fits into them.

use std::ffi::CString;
use std::fmt;
use std::path::Path;
use std::pin::pin;

use llama_cpp_2::context::params::{KvCacheType, LlamaContextParams};
use llama_cpp_2::model::params::{FitError, LlamaModelParams, LlamaSplitMode};
use llama_cpp_2::{LlamaBackendDevice, LlamaCppError, max_devices};
use podium_bundle::hardware::{GPU_LAYERS_MAX, GpuError, GpuLack, GpuLayers, GpuSplit, Hardware, KvCache};

use super::load::LoadError;
use super::memory::{Memory, gigabytes};
use crate::backend::backend;
use crate::modules::{Modules, devices, is_gpu};

/// Memory that stays free on each GPU, because CUDA allocates more later.
const RESERVE_BYTES: u64 = 128 << 20;

/// The devices of a model.
#[derive(Debug)]
pub(crate) struct Placement {
    hardware: Hardware,
    /// Empty: the CPU computes everything.
    gpus: Vec<LlamaBackendDevice>,
}

impl Placement {
    /// Finds the configured devices among the existing ones.
    pub(crate) fn find(hardware: Hardware, modules: &Modules) -> Result<Self, GpuError> {
        Self::among(hardware, &devices(), modules)
    }

    fn among(
        hardware: Hardware,
        devices: &[LlamaBackendDevice],
        modules: &Modules,
    ) -> Result<Self, GpuError> {
        if hardware.gpu_layers == GpuLayers::None {
            return Ok(Self { hardware, gpus: Vec::new() });
        }
        let there: Vec<_> = devices.iter().filter(|device| is_gpu(device)).collect();
        let chosen: Result<Vec<_>, String> = match hardware.gpus.numbers() {
            _ if there.is_empty() => Err("llama.cpp finds no GPU".to_owned()),
            None => Ok(there),
            Some(numbers) => numbers
                .map(|number| {
                    let gpu = there.get(usize::from(number)).copied();
                    gpu.ok_or_else(|| format!("gpus names {number}, which does not exist"))
                })
                .collect(),
        };
        let mut gpus: Vec<_> = match chosen {
            Ok(gpus) => gpus.into_iter().cloned().collect(),
            Err(missing) => {
                let found = found(devices, modules);
                let lack = GpuError::Missing { gpu_layers: hardware.gpu_layers, missing, found };
                if hardware.gpu_lack == GpuLack::Refused {
                    return Err(lack);
                }
                tracing::warn!(reason = %lack, "no GPU is used: the CPU computes all layers");
                Vec::new()
            }
        };
        if hardware.gpu_split == GpuSplit::None {
            gpus.truncate(1);
        }
        Ok(Self { hardware, gpus })
    }

    /// Whether a GPU is used.
    pub(super) fn has_gpu(&self) -> bool {
        !self.gpus.is_empty()
    }

    /// Model parameters for this placement.
    pub(super) fn model_params(&self) -> Result<LlamaModelParams, LlamaCppError> {
        let layers = match self.hardware.gpu_layers {
            _ if self.gpus.is_empty() => 0,
            GpuLayers::None => 0,
            GpuLayers::Some(layers) => layers.get(),
            GpuLayers::All => GPU_LAYERS_MAX,
        };
        let split = match self.hardware.gpu_split {
            GpuSplit::None => LlamaSplitMode::None,
            GpuSplit::Layer => LlamaSplitMode::Layer,
            GpuSplit::Row => LlamaSplitMode::Row,
        };
        // An empty list means no device except the CPU.
        let indices: Vec<_> = self.gpus.iter().map(|gpu| gpu.index).collect();
        let params = LlamaModelParams::default().with_n_gpu_layers(layers).with_split_mode(split);
        params.with_devices(&indices)
    }

    /// Sets the configured cache type.
    pub(super) fn with_cache(&self, params: LlamaContextParams) -> LlamaContextParams {
        let kind = match self.hardware.kv_cache {
            KvCache::F16 => return params,
            KvCache::Bf16 => KvCacheType::BF16,
            KvCache::Q8_0 => KvCacheType::Q8_0,
            KvCache::Q4_0 => KvCacheType::Q4_0,
        };
        params.with_type_k(kind).with_type_v(kind)
    }

    /// Rejects weights that do not fit into the GPUs together with this context and `memory.uncounted` bytes. llama.cpp
    /// computes its layout without allocating memory. If it cannot tell, loading will report the problem.
    ///
    /// This redirects llama.cpp's log, so nothing else may be loaded at the same time.
    pub(super) fn check_memory(
        &self,
        weights: &Path,
        context: &mut LlamaContextParams,
        memory: &Memory,
    ) -> Result<(), GpuError> {
        if !self.has_gpu() || self.memory_check(weights, context, memory.uncounted) != Fit::Lacking {
            return Ok(());
        }
        let (gpu_layers, free) = (self.hardware.gpu_layers, self.to_string());
        Err(GpuError::TooSmall { gpu_layers, needed: memory.to_string(), free })
    }

    fn memory_check(&self, weights: &Path, context: &mut LlamaContextParams, uncounted: u64) -> Fit {
        let path = weights.to_str().and_then(|path| CString::new(path).ok());
        let (Some(path), Ok(params)) = (path, self.model_params()) else { return Fit::Unknown };
        let margin = usize::try_from(RESERVE_BYTES.saturating_add(uncounted)).unwrap_or(usize::MAX / 2);
        let mut margins = vec![margin; max_devices().max(1)];
        let log_level = llama_cpp_sys_2::GGML_LOG_LEVEL_ERROR;
        // The number of layers and the context size are given, so this call only checks and changes nothing.
        let fits = pin!(params).fit_params(&path, context, &mut margins, 0, log_level);
        match fits {
            Ok(_) => Fit::Enough,
            Err(FitError::Failure) => Fit::Lacking,
            Err(FitError::Error) => Fit::Unknown,
        }
    }

    /// Logs the GPUs in use and their free memory after loading.
    pub(super) fn log(&self, memory: &Memory) {
        let after = if self.has_gpu() { devices() } else { Vec::new() };
        for gpu in &self.gpus {
            let now = after.iter().find(|device| device.index == gpu.index).unwrap_or(gpu);
            tracing::info!(
                gpu = gpu.name,
                kind = gpu.description,
                layers = %self.hardware.gpu_layers,
                split = ?self.hardware.gpu_split,
                kv_cache = %self.hardware.kv_cache,
                total = gigabytes(gpu.memory_total as u64),
                free_before = gigabytes(gpu.memory_free as u64),
                free = gigabytes(now.memory_free as u64),
                %memory,
                "a GPU computes the conductor's weights"
            );
        }
    }
}

/// Lists the devices and their free memory, for messages to people.
impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.gpus.is_empty() {
            return f.write_str("the processor");
        }
        for (number, gpu) in self.gpus.iter().enumerate() {
            let (free, total) = (gigabytes(gpu.memory_free as u64), gigabytes(gpu.memory_total as u64));
            let comma = if number == 0 { "" } else { ", " };
            write!(f, "{comma}{} ({}: {free} of {total} free)", gpu.name, gpu.description)?;
        }
        Ok(())
    }
}

/// Describes the devices that would be used here, without loading a model.
pub fn inspect(hardware: Hardware) -> Result<String, LoadError> {
    let placement = Placement::find(hardware, &backend()?.modules)?;
    Ok(format!("{} layers on GPUs; computes on {placement}", hardware.gpu_layers))
}

/// The result of the memory check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fit {
    Enough,
    Lacking,
    Unknown,
}

/// The existing devices and modules, for the message about a missing GPU.
fn found(devices: &[LlamaBackendDevice], modules: &Modules) -> String {
    let devices = devices.iter().map(|device| format!("{} ({})", device.name, device.description.trim()));
    format!("{modules}; devices: {}", devices.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests;
