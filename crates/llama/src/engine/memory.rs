//! The memory of weights and contexts, for messages to people. llama.cpp computes its own allocation.

use std::fmt;
use std::path::Path;

use llama_cpp_2::gguf::GgufContext;
use podium_bundle::hardware::KvCache;

use super::{EngineOptions, HiddenStates};

/// Bytes by use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Memory {
    /// Size of the weights and adapter files.
    weights: u64,
    /// Size of the key-value cache, if the file contains the dimensions.
    text: Option<u64>,
    /// Bytes that llama.cpp's memory check does not count: the context for hidden states, and the adapter.
    pub(super) uncounted: u64,
    /// Number of contexts, and tokens of each.
    texts: (u64, u32),
    cache: KvCache,
}

impl Memory {
    /// The memory that these options need with a decoding context of `cells` tokens.
    pub(super) fn of(options: &EngineOptions, cells: u32) -> Self {
        let cache = options.hardware.kv_cache;
        let values = values_of_token(&options.weights);
        let of = |cache: KvCache, tokens: u32| {
            values.map(|values| cache.bytes(values.saturating_mul(u64::from(tokens))))
        };
        let readable = options.hidden_states == HiddenStates::Readable;
        let reading = if readable { of(KvCache::F16, options.context_tokens).unwrap_or_default() } else { 0 };
        let size = |path: &Path| std::fs::metadata(path).map_or(0, |file| file.len());
        let adapter = options.adapter.as_ref().map_or(0, |adapter| size(&adapter.path));
        Self {
            weights: size(&options.weights).saturating_add(adapter),
            text: of(cache, cells).map(|bytes| bytes.saturating_add(reading)),
            uncounted: reading.saturating_add(adapter),
            texts: (u64::from(options.sequences_max.get()) + 1 + u64::from(readable), options.context_tokens),
            cache,
        }
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (texts, tokens) = self.texts;
        write!(f, "weights ({}) and {texts} texts of {tokens} tokens", gigabytes(self.weights))?;
        self.text.map_or(Ok(()), |text| write!(f, " ({} as {})", gigabytes(text), self.cache))?;
        f.write_str(" plus compute buffers")
    }
}

/// Formats bytes.
pub(super) fn gigabytes(bytes: u64) -> String {
    // In tenths, rounded up because this is a requirement.
    let tenths = bytes.div_ceil(100_000_000);
    format!("{}.{} GB", tenths / 10, tenths % 10)
}

/// Values of one token's keys and values, over all layers.
fn values_of_token(weights: &Path) -> Option<u64> {
    let file = GgufContext::from_file(weights)?;
    let text = |key: &str| {
        let index = file.find_key(key);
        let is_text = index >= 0 && file.kv_type(index) == llama_cpp_sys_2::GGUF_TYPE_STRING;
        is_text.then(|| file.val_str(index).map(str::to_owned)).flatten()
    };
    let architecture = text("general.architecture")?;
    let number = |key: &str| {
        let index = file.find_key(&format!("{architecture}.{key}"));
        let is_number = index >= 0 && file.kv_type(index) == llama_cpp_sys_2::GGUF_TYPE_UINT32;
        is_number.then(|| u64::from(file.val_u32(index)))
    };
    let heads = number("attention.head_count")?;
    let heads_kept = number("attention.head_count_kv").unwrap_or(heads);
    let of_head = || number("embedding_length")?.checked_div(heads);
    let key = number("attention.key_length").or_else(of_head)?;
    let value = number("attention.value_length").or_else(of_head)?;
    number("block_count")?.checked_mul(heads_kept.checked_mul(key.checked_add(value)?)?)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn the_width_of_a_token_is_read_from_the_weights() {
        let tiny = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tiny.gguf");
        // 2 layers, and 2 of 4 heads with 16 dimensions each, for keys and for values.
        assert_eq!(values_of_token(&tiny), Some(2 * 2 * 16 * 2));
        assert_eq!(values_of_token(Path::new("nothing.gguf")), None);
    }

    #[test]
    fn sizes_are_rounded_up() {
        assert_eq!(gigabytes(0), "0.0 GB");
        assert_eq!(gigabytes(1), "0.1 GB");
        assert_eq!(gigabytes(4_680_000_000), "4.7 GB");
    }
}
