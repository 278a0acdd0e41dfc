//! Reads the settings of the hardware that a local model may use.

use std::num::NonZeroU32;

use podium_bundle::hardware::{
    GPU_LAYERS_MAX, GPUS_MAX, GpuLack, GpuLayers, GpuSplit, Gpus, Hardware, KvCache,
};

use super::{Checker, values};

/// Reads the keys `gpu_layers`, `gpus`, `gpu_split`, `gpu_required` and `kv_cache`. Problems are added to the checker.
pub fn hardware(checker: &mut Checker) -> Option<Hardware> {
    let gpu_layers = checker.read("gpu_layers", gpu_layers);
    let gpus = checker.read("gpus", gpus);
    let gpu_split = checker.read("gpu_split", gpu_split);
    let is_required = checker.read_if_given("gpu_required", values::yes_or_no);
    let kv_cache = checker.read("kv_cache", kv_cache);
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

fn gpu_split(text: &str) -> Result<GpuSplit, String> {
    match text {
        "none" => Ok(GpuSplit::None),
        "layer" => Ok(GpuSplit::Layer),
        "row" => Ok(GpuSplit::Row),
        _ => Err(format!("is `{text}`, it must be none, layer or row")),
    }
}

fn kv_cache(text: &str) -> Result<KvCache, String> {
    let kinds = [KvCache::F16, KvCache::Bf16, KvCache::Q8_0, KvCache::Q4_0];
    let known = kinds.into_iter().find(|kind| kind.to_string() == text);
    known.ok_or_else(|| format!("is `{text}`, it must be f16, bf16, q8_0 or q4_0"))
}

#[cfg(test)]
mod tests {
    use super::super::{Key, Sources};
    use super::*;

    const KEYS: &[Key] = &[
        Key::new("gpu_layers", "0", ""),
        Key::new("gpus", "all", ""),
        Key::new("gpu_split", "layer", ""),
        Key::optional("gpu_required", "", ""),
        Key::new("kv_cache", "f16", ""),
    ];

    fn read(flags: &[(&'static str, &str)]) -> Result<Hardware, Vec<String>> {
        let mut sources = Sources::new(KEYS);
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
