//! Reads the metadata of a GGUF file and the types and shapes of its tensors, and checks that its values are finite.
//!
//! llama.cpp aborts on some files with unexpected types or shapes, and computes with NaN and infinity. So a file's header is
//! parsed here, within bounds, before llama.cpp reads it.

mod numbers;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Take};
use std::path::Path;

/// Longest header in bytes; a vocabulary takes a few million.
const BYTES_MAX: u64 = 256 << 20;
/// Longest name in bytes.
const NAME_BYTES_MAX: u64 = 4 << 10;
/// Longest text that is kept, in bytes.
const TEXT_BYTES_MAX: u64 = 256;
/// Most dimensions of a tensor.
const DIMENSIONS_MAX: u32 = 4;
/// Default alignment of the tensor data in bytes.
const ALIGNMENT: u32 = 32;

/// The header of a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gguf {
    /// The metadata.
    pub values: BTreeMap<String, Value>,
    /// The tensors by name.
    pub tensors: BTreeMap<String, Tensor>,
    /// Offset of the tensor data in the file.
    numbers_at: u64,
}

/// A value of the metadata.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A text of at most 256 bytes.
    Text(String),
    /// A 32-bit float.
    Float(f32),
    /// An unsigned 32-bit number.
    Number(u32),
    /// A value of another type, or a longer text.
    Other,
}

/// A tensor without its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// GGUF's number of its data type.
    pub kind: u32,
    /// The fastest dimension first; trailing dimensions of size 1 are omitted.
    pub shape: Vec<u64>,
    /// Offset of its data in bytes, relative to the start of all tensor data.
    at: u64,
}

/// Most layers that llama.cpp supports.
const LAYERS_MAX: u32 = 512;

/// Why a file's header or data is rejected.
#[derive(Debug, thiserror::Error)]
pub enum GgufError {
    /// It ends too early, or reading fails.
    #[error("it cannot be read to the end of its header")]
    Unreadable(#[from] io::Error),
    /// It has another format.
    #[error("it is no GGUF file that this version reads: {problem}")]
    Wrong {
        /// The problem.
        problem: String,
    },
    /// llama.cpp would abort on a metadata value.
    #[error("its metadata has {key} = {value}, it must be {allowed}")]
    Metadata {
        /// The key.
        key: String,
        /// Its value.
        value: String,
        /// The allowed values.
        allowed: String,
    },
    /// The data type is not supported.
    #[error("`{tensor}` has numbers of type {kind}, they must be F32, F16, BF16 or Q8_0")]
    Kind {
        /// The tensor.
        tensor: String,
        /// GGUF's number of the type.
        kind: u32,
    },
    /// A value is NaN or infinite, which would spread to everything computed with it.
    #[error("`{tensor}` has a number that is not finite, at {at}")]
    NotFinite {
        /// The tensor.
        tensor: String,
        /// Index of the value, from 0; for `Q8_0` the first of the block with that scale.
        at: u64,
    },
}

fn is_norm_bound(key: &str) -> bool {
    key.ends_with(".layer_norm_rms_epsilon") || key.ends_with(".layer_norm_epsilon")
}

fn wrong(problem: impl Into<String>) -> GgufError {
    GgufError::Wrong { problem: problem.into() }
}

impl Gguf {
    /// Reads the header of a file.
    pub fn read(path: &Path) -> Result<Self, GgufError> {
        Self::of(File::open(path)?)
    }

    fn of(file: impl Read) -> Result<Self, GgufError> {
        let mut bytes = Bytes(BufReader::new(file).take(BYTES_MAX));
        if bytes.array()? != *b"GGUF" {
            return Err(wrong("it does not begin with GGUF"));
        }
        match bytes.u32()? {
            2 | 3 => {}
            version => return Err(wrong(format!("its version is {version}"))),
        }
        let (tensors, values) = (bytes.u64()?, bytes.u64()?);
        let mut gguf = Self::default();
        for _ in 0..values {
            let key = bytes.name()?;
            let kind = bytes.u32()?;
            gguf.values.insert(key, bytes.value(kind)?);
        }
        for _ in 0..tensors {
            let name = bytes.name()?;
            gguf.tensors.insert(name, bytes.tensor()?);
        }
        let alignment = match gguf.values.get("general.alignment") {
            Some(Value::Number(alignment)) => *alignment,
            _ => ALIGNMENT,
        };
        let head = BYTES_MAX - bytes.0.limit();
        gguf.numbers_at =
            head.checked_next_multiple_of(alignment.into()).ok_or_else(|| wrong("its alignment is 0"))?;
        Ok(gguf)
    }

    /// Rejects metadata on which llama.cpp aborts the process: an unsupported number of layers, and a normalisation epsilon
    /// that is negative, NaN or infinite.
    pub fn check_metadata(&self) -> Result<(), GgufError> {
        for (key, value) in &self.values {
            match value {
                Value::Number(layers)
                    if key.ends_with(".block_count") && !(1..=LAYERS_MAX).contains(layers) =>
                {
                    return Err(GgufError::Metadata {
                        key: key.clone(),
                        value: layers.to_string(),
                        allowed: format!("1 to {LAYERS_MAX}"),
                    });
                }
                Value::Float(bound) if is_norm_bound(key) && !(bound.is_finite() && *bound >= 0.0) => {
                    return Err(GgufError::Metadata {
                        key: key.clone(),
                        value: bound.to_string(),
                        allowed: "a number of 0 or more".to_owned(),
                    });
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// A metadata value that is a short text.
    pub fn text(&self, key: &str) -> Option<&str> {
        match self.values.get(key)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }
}

/// The rest of the header.
struct Bytes<R>(Take<R>);

impl<R: Read> Bytes<R> {
    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.0.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn u32(&mut self) -> io::Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> io::Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn name(&mut self) -> Result<String, GgufError> {
        let length = self.u64()?;
        if length > NAME_BYTES_MAX {
            return Err(wrong(format!("a name has {length} bytes, at most {NAME_BYTES_MAX} are allowed")));
        }
        self.text(length)
    }

    fn text(&mut self, length: u64) -> Result<String, GgufError> {
        let mut bytes = Vec::new();
        if self.0.by_ref().take(length).read_to_end(&mut bytes)? as u64 != length {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        String::from_utf8(bytes).map_err(|_| wrong("a text is not UTF-8"))
    }

    fn skip(&mut self, length: u64) -> io::Result<()> {
        let skipped = io::copy(&mut self.0.by_ref().take(length), &mut io::sink())?;
        if skipped == length { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    fn value(&mut self, kind: u32) -> Result<Value, GgufError> {
        const NUMBER: u32 = 4;
        const FLOAT: u32 = 6;
        const TEXT: u32 = 8;
        const ARRAY: u32 = 9;
        match kind {
            NUMBER => return Ok(Value::Number(self.u32()?)),
            FLOAT => return Ok(Value::Float(self.array().map(f32::from_le_bytes)?)),
            TEXT => match self.u64()? {
                length @ 0..=TEXT_BYTES_MAX => return self.text(length).map(Value::Text),
                length => self.skip(length)?,
            },
            ARRAY => match (self.u32()?, self.u64()?) {
                (TEXT, elements) => {
                    for _ in 0..elements {
                        let length = self.u64()?;
                        self.skip(length)?;
                    }
                }
                (kind, elements) => self.skip(elements.saturating_mul(width(kind)?))?,
            },
            kind => self.skip(width(kind)?)?,
        }
        Ok(Value::Other)
    }

    fn tensor(&mut self) -> Result<Tensor, GgufError> {
        let dimensions = self.u32()?;
        if dimensions > DIMENSIONS_MAX {
            return Err(wrong(format!("a tensor has {dimensions} dimensions")));
        }
        let mut shape = (0..dimensions).map(|_| self.u64()).collect::<io::Result<Vec<_>>>()?;
        while shape.pop_if(|last| *last == 1).is_some() {}
        let kind = self.u32()?;
        Ok(Tensor { kind, shape, at: self.u64()? })
    }
}

/// Size in bytes of a value with a fixed-size type.
fn width(kind: u32) -> Result<u64, GgufError> {
    match kind {
        0 | 1 | 7 => Ok(1),
        2 | 3 => Ok(2),
        4..=6 => Ok(4),
        10..=12 => Ok(8),
        kind => Err(wrong(format!("a value has the type {kind}"))),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn tiny() -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../llama/tests/fixtures/tiny.gguf")
    }

    #[test]
    fn the_header_is_read_without_tensor_data() {
        let gguf = Gguf::read(&tiny()).unwrap();
        assert_eq!(gguf.text("general.architecture"), Some("qwen2"));
        assert_eq!(gguf.values.get("tokenizer.ggml.tokens"), Some(&Value::Other));
        // 4 heads with 16 dimensions each.
        assert_eq!(gguf.tensors["blk.0.attn_q.weight"].shape, [64, 64]);
        assert_eq!(gguf.tensors["output_norm.weight"].shape, [64]);
    }

    #[test]
    fn truncated_and_modified_files_never_panic() {
        let good = std::fs::read(tiny()).unwrap();
        let head = good.len().min(40_000);
        for end in (0..head).step_by(97) {
            assert!(matches!(Gguf::of(&good[..end.min(200)]), Err(GgufError::Unreadable(_))), "{end}");
            let mut changed = good[..head].to_vec();
            changed[end] ^= 0x80;
            let _ = Gguf::of(&changed[..]);
        }
        let refused = Gguf::of(&b"GGML\x03\0\0\0"[..]).unwrap_err().to_string();
        assert!(refused.contains("does not begin with GGUF"), "{refused}");
        let refused = Gguf::of(&b"GGUF\x01\0\0\0"[..]).unwrap_err().to_string();
        assert!(refused.contains("version is 1"), "{refused}");
    }

    /// The file with another four-byte value for `key`.
    fn with(key: &str, value: [u8; 4]) -> Gguf {
        let mut bytes = std::fs::read(tiny()).unwrap();
        let at = bytes.windows(key.len()).position(|window| window == key.as_bytes()).unwrap();
        // The key is followed by the four-byte type.
        let at = at + key.len() + 4;
        bytes[at..at + 4].copy_from_slice(&value);
        Gguf::of(&bytes[..]).unwrap()
    }

    #[test]
    fn metadata_on_which_llama_cpp_aborts_is_rejected() {
        Gguf::read(&tiny()).unwrap().check_metadata().unwrap();
        let (layers, epsilon) = ("qwen2.block_count", "qwen2.attention.layer_norm_rms_epsilon");
        for (key, value, said) in [
            (layers, 0_u32.to_le_bytes(), "qwen2.block_count = 0, it must be 1 to 512"),
            (layers, 513_u32.to_le_bytes(), "qwen2.block_count = 513"),
            (layers, u32::MAX.to_le_bytes(), "qwen2.block_count = 4294967295"),
            (epsilon, f32::NAN.to_le_bytes(), "epsilon = NaN, it must be a number of 0 or more"),
            (epsilon, (-1e-6_f32).to_le_bytes(), "epsilon = -0.000001"),
            (epsilon, f32::INFINITY.to_le_bytes(), "epsilon = inf"),
        ] {
            let refused = with(key, value).check_metadata().unwrap_err().to_string();
            assert!(refused.contains(said), "{refused}");
        }
        with(layers, 512_u32.to_le_bytes()).check_metadata().unwrap();
        with(epsilon, 0_f32.to_le_bytes()).check_metadata().unwrap();
    }
}
