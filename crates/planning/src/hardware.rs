//! The settings of the hardware that a local model may use.

use std::num::NonZeroU32;

use podium_bundle::hardware::{
    GPU_LAYERS_MAX, GPUS_MAX, GpuLack, GpuLayers, GpuSplit, Gpus, Hardware, KvCache,
};
use podium_setup::settings::{Checker, Group, Setting, Values};

const GPU_LAYERS: Setting<GpuLayers> = Setting::parsed(
    "gpu_layers",
    Values::Form("all, or a number of layers"),
    |_, text| gpu_layers(text),
    "Layers of a model in this process that GPUs compute. The processor computes the rest.",
)
.default("0");

const GPUS: Setting<Gpus> = Setting::parsed(
    "gpus",
    Values::Form("all, or numbers such as 0,1"),
    |_, text| gpus(text),
    "The GPUs to use, numbered as llama.cpp finds them.",
)
.default("all");

const GPU_SPLIT: Setting<GpuSplit> = Setting::words(
    "gpu_split",
    &["none", "layer", "row"],
    |key, word| match word {
        "none" => Ok(GpuSplit::None),
        "layer" => Ok(GpuSplit::Layer),
        "row" => Ok(GpuSplit::Row),
        _ => Err(key.must_be(word)),
    },
    "How the model is split over several GPUs: by layers, by rows, or not at all (the first GPU has all of it).",
)
.default("layer");

const GPU_REQUIRED: Setting<bool> = Setting::switch(
    "gpu_required",
    "Whether a missing GPU is an error: `podium serve` does not start, a planner stays unready. If false, the processor \
     computes instead.",
)
.optional("false", "true if gpu_layers is not 0");

const KV_CACHE: Setting<KvCache> = Setting::words(
    "kv_cache",
    &["f16", "bf16", "q8_0", "q4_0"],
    |key, word| {
        let kinds = [KvCache::F16, KvCache::Bf16, KvCache::Q8_0, KvCache::Q4_0];
        kinds.into_iter().find(|kind| kind.to_string() == word).ok_or_else(|| key.must_be(word))
    },
    "The number format of the model's key-value cache.",
)
.default("f16");

/// The hardware of a model in this process.
pub const HARDWARE: Group =
    Group { title: "GPU", keys: &[GPU_LAYERS.key, GPUS.key, GPU_SPLIT.key, GPU_REQUIRED.key, KV_CACHE.key] };

/// Reads these settings. Problems are added to the checker.
pub(crate) fn hardware(checker: &mut Checker) -> Option<Hardware> {
    let gpu_layers = checker.read(&GPU_LAYERS);
    let gpus = checker.read(&GPUS);
    let gpu_split = checker.read(&GPU_SPLIT);
    let is_required = checker.read_if_given(&GPU_REQUIRED);
    let kv_cache = checker.read(&KV_CACHE);
    if is_required == Some(true) && gpu_layers == Some(GpuLayers::None) {
        checker.problem("gpu_required", "is true, but gpu_layers is 0: no GPU would be used");
    }
    // Setting gpu_layers implies that a GPU is required.
    let gpu_lack = if is_required == Some(false) { GpuLack::Borne } else { GpuLack::Refused };
    Some(Hardware {
        gpu_layers: gpu_layers?,
        gpus: gpus?,
        gpu_split: gpu_split?,
        gpu_lack,
        kv_cache: kv_cache?,
    })
}

fn gpu_layers(text: &str) -> Result<GpuLayers, String> {
    if text == "all" {
        return Ok(GpuLayers::All);
    }
    let layers = text.parse::<u32>().ok().filter(|layers| *layers <= GPU_LAYERS_MAX);
    let layers = layers.ok_or_else(|| format!("is `{text}`, it must be all, or 0 to {GPU_LAYERS_MAX}"))?;
    Ok(NonZeroU32::new(layers).map_or(GpuLayers::None, GpuLayers::Some))
}

fn gpus(text: &str) -> Result<Gpus, String> {
    if text == "all" {
        return Ok(Gpus::ALL);
    }
    let numbers: Option<Vec<u8>> = text.split(',').map(|number| number.trim().parse().ok()).collect();
    numbers.and_then(Gpus::of).ok_or_else(|| {
        format!("is `{text}`, it must be all, or numbers from 0 to {} such as 0,1", GPUS_MAX - 1)
    })
}

#[cfg(test)]
mod tests {
    use podium_setup::settings::{ProgramKeys, Sources};

    use super::*;

    fn read(flags: &[(&'static str, &str)]) -> Result<Hardware, Vec<String>> {
        let mut sources = Sources::new(&ProgramKeys::new("planner", &[HARDWARE]));
        for (key, value) in flags {
            sources.flag(key, Some(value));
        }
        let mut checker = sources.into_checker();
        let hardware = hardware(&mut checker);
        checker.finish(hardware).map_err(|error| error.0)
    }

    #[test]
    fn by_default_no_gpu_is_used() {
        assert_eq!(read(&[]), Ok(Hardware::default()));
    }

    #[test]
    fn setting_layers_requires_a_gpu_by_default() {
        let all =
            read(&[("gpu_layers", "all"), ("gpus", "2, 0"), ("gpu_split", "row"), ("kv_cache", "q8_0")]);
        let expected = Hardware {
            gpu_layers: GpuLayers::All,
            gpus: Gpus::of([0, 2]).unwrap(),
            gpu_split: GpuSplit::Row,
            gpu_lack: GpuLack::Refused,
            kv_cache: KvCache::Q8_0,
        };
        assert_eq!(all, Ok(expected));
        let some = read(&[("gpu_layers", "20"), ("gpu_required", "false")]).unwrap();
        assert_eq!(some.gpu_layers, GpuLayers::Some(NonZeroU32::new(20).unwrap()));
        assert_eq!(some.gpu_lack, GpuLack::Borne);
    }

    #[test]
    fn a_gpu_cannot_be_required_without_layers() {
        assert_eq!(read(&[("gpu_required", "true")]).unwrap_err().len(), 1);
        assert!(read(&[("gpu_required", "true"), ("gpu_layers", "1")]).is_ok());
    }

    #[test]
    fn invalid_hardware_settings_are_reported() {
        for wrong in [
            ("gpu_layers", "-1"),
            ("gpu_layers", "1001"),
            ("gpus", "16"),
            ("gpus", ""),
            ("gpus", "0;1"),
            ("gpu_split", "tensor"),
            ("gpu_required", "yes"),
            ("kv_cache", "Q8_0"),
        ] {
            let problems = read(&[wrong]).unwrap_err();
            assert!(problems.len() == 1 && problems[0].contains(wrong.0), "{wrong:?}: {problems:?}");
        }
    }
}
