//! Tests of choosing GPUs (on invented devices) and of the memory check (on the CPU).

use std::num::{NonZeroU16, NonZeroU32, NonZeroUsize};
use std::path::PathBuf;

use llama_cpp_2::LlamaBackendDeviceType;
use podium_bundle::hardware::Gpus;

use super::super::decoder::context_params;
use super::super::{EngineOptions, HiddenStates};
use super::*;

fn device(index: usize, name: &str, device_type: LlamaBackendDeviceType) -> LlamaBackendDevice {
    LlamaBackendDevice {
        index,
        name: name.to_owned(),
        description: "a device".to_owned(),
        backend: "CUDA".to_owned(),
        memory_total: 8_000_000_000,
        memory_free: 7_900_000_000,
        device_type,
    }
}

/// Two GPUs, a CPU and an accelerator.
fn devices() -> [LlamaBackendDevice; 4] {
    [
        device(0, "BLAS", LlamaBackendDeviceType::Accelerator),
        device(1, "CUDA0", LlamaBackendDeviceType::Gpu),
        device(2, "CUDA1", LlamaBackendDeviceType::Gpu),
        device(3, "CPU", LlamaBackendDeviceType::Cpu),
    ]
}

fn all() -> Hardware {
    Hardware { gpu_layers: GpuLayers::All, ..Hardware::default() }
}

fn modules() -> Modules {
    Modules {
        folder: Some("/usr/lib/podium".into()),
        accelerators: vec!["libggml-cuda.so".to_owned()],
        errors: vec!["libcuda.so.1: cannot open shared object file".to_owned()],
    }
}

fn chosen(hardware: Hardware) -> Result<Vec<usize>, GpuError> {
    let placement = Placement::among(hardware, &devices(), &modules())?;
    Ok(placement.gpus.iter().map(|gpu| gpu.index).collect())
}

#[test]
fn gpus_are_numbered_among_themselves() {
    assert_eq!(chosen(Hardware::default()), Ok(vec![]));
    assert_eq!(chosen(all()), Ok(vec![1, 2]));
    assert_eq!(chosen(Hardware { gpus: Gpus::of([1]).unwrap(), ..all() }), Ok(vec![2]));
    assert_eq!(chosen(Hardware { gpu_split: GpuSplit::None, ..all() }), Ok(vec![1]));
}

#[test]
fn a_missing_gpu_is_reported_by_its_number() {
    let text = chosen(Hardware { gpus: Gpus::of([0, 2]).unwrap(), ..all() }).unwrap_err().to_string();
    assert!(text.starts_with("gpu_layers is all, but gpus names 2, which does not exist; "), "{text}");
}

#[test]
fn a_missing_gpu_is_reported_with_the_existing_devices() {
    let processor = [device(0, "CPU", LlamaBackendDeviceType::Cpu)];
    let layers = GpuLayers::Some(NonZeroU32::new(7).unwrap());
    let hardware = Hardware { gpu_layers: layers, ..Hardware::default() };
    let text = Placement::among(hardware, &processor, &modules()).unwrap_err().to_string();
    assert_eq!(
        text,
        "gpu_layers is 7, but llama.cpp finds no GPU; /usr/lib/podium has libggml-cuda.so; libcuda.so.1: cannot open \
         shared object file; devices: CPU (a device)"
    );
    let borne = Hardware { gpu_lack: GpuLack::Borne, ..hardware };
    assert!(!Placement::among(borne, &processor, &modules()).unwrap().has_gpu());
}

fn options() -> EngineOptions {
    EngineOptions {
        name: "test".to_owned(),
        weights: PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tiny.gguf"),
        adapter: None,
        context_tokens: 1000,
        sequences_max: NonZeroU16::new(7).unwrap(),
        waiting_max: NonZeroUsize::MIN,
        threads: None,
        hardware: all(),
        hidden_states: HiddenStates::Readable,
    }
}

#[test]
fn llama_cpp_checks_whether_a_model_fits() {
    crate::backend::backend().unwrap();
    // Without GPUs the check applies to main memory.
    let placement = Placement::among(Hardware::default(), &[], &Modules::default()).unwrap();
    let there = crate::modules::devices();
    let processor = there.iter().find(|device| device.device_type == LlamaBackendDeviceType::Cpu).unwrap();
    let room = processor.memory_total as u64 - RESERVE_BYTES;
    let (weights, mut context) = (options().weights, context_params(4096, 4, 1));
    assert_eq!(placement.memory_check(&weights, &mut context, 0), Fit::Enough);
    // The weights take half a megabyte, the context another one, plus compute buffers.
    assert_eq!(placement.memory_check(&weights, &mut context, room - (1 << 20)), Fit::Lacking);
    assert_eq!(placement.memory_check(&weights, &mut context, room - (1 << 28)), Fit::Enough);
    assert_eq!(placement.memory_check(Path::new("nothing.gguf"), &mut context, 0), Fit::Unknown);
}

#[test]
fn a_model_that_does_not_fit_is_reported_with_its_size() {
    let memory = Memory::of(&options(), 8000);
    let text = memory.to_string();
    assert_eq!(text, "weights (0.1 GB) and 9 texts of 1000 tokens (0.1 GB as f16) plus compute buffers");
    // The context for hidden states: 1000 tokens of 128 values of 2 bytes.
    assert_eq!(memory.uncounted, 256_000);
}
