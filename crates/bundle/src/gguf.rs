//! What a GGUF file says of itself before its numbers: texts, and its tensors' types and shapes; and whether its numbers are
//! finite.
//!
//! llama.cpp aborts on some files whose types or shapes it does not expect, and computes with whatever numbers it finds. So the
//! head of a file is read here, within bounds, before llama.cpp sees it.

mod numbers;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Take};
use std::path::Path;

/// Most bytes before the numbers; a vocabulary takes a few million.
const BYTES_MAX: u64 = 256 << 20;
/// Most bytes of a name.
const NAME_BYTES_MAX: u64 = 4 << 10;
/// Most bytes of a text that is kept.
const TEXT_BYTES_MAX: u64 = 256;
/// Most dimensions of a tensor.
const DIMENSIONS_MAX: u32 = 4;
/// Where numbers begin, a multiple of so many bytes, unless the file says otherwise.
const ALIGNMENT: u32 = 32;

/// The head of a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gguf {
    /// The metadata.
    pub values: BTreeMap<String, Value>,
    /// The tensors by their names.
    pub tensors: BTreeMap<String, Tensor>,
    /// How many bytes there are before the numbers.
    numbers_at: u64,
}

/// A value of the metadata.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A text of at most 256 bytes.
    Text(String),
    /// A 32-bit float.
    Float(f32),
    /// A 32-bit number without a sign.
    Number(u32),
    /// Of another type, or too long a text.
    Other,
}

/// A tensor, without its numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// The type of its numbers, as GGUF counts them.
    pub kind: u32,
    /// The fastest dimension first; those of one element that follow the last other one are left out.
    pub shape: Vec<u64>,
    /// Where its numbers begin, in bytes after the beginning of all numbers.
    at: u64,
}

/// Most layers that llama.cpp has room for.
const LAYERS_MAX: u32 = 512;

/// Why a file has no such head, or its numbers are refused.
#[derive(Debug, thiserror::Error)]
pub enum GgufError {
    /// It ends too early, or the system does not read it.
    #[error("it cannot be read to the end of what it says of itself")]
    Unreadable(#[from] io::Error),
    /// It is something else.
    #[error("it is no GGUF file that this version reads: {problem}")]
    Wrong {
        /// What is wrong.
        problem: String,
    },
    /// llama.cpp would abort on a value of its metadata.
    #[error("its metadata has {key} = {value}, it must be {allowed}")]
    Metadata {
        /// The key.
        key: String,
        /// Its value.
        value: String,
        /// The values that are allowed.
        allowed: String,
    },
    /// Its numbers are of a type that is not looked into.
    #[error("`{tensor}` has numbers of type {kind}, they must be F32, F16, BF16 or Q8_0")]
    Kind {
        /// The tensor.
        tensor: String,
        /// The type, as GGUF counts them.
        kind: u32,
    },
    /// A number is none, or has no end. Whatever is computed with it is none either.
    #[error("`{tensor}` has a number that is not finite, at {at}")]
    NotFinite {
        /// The tensor.
        tensor: String,
        /// Which of its numbers, from 0; with `Q8_0`, the first of the block whose scale it is.
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
    /// Reads the head of a file.
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

    /// Refuses metadata on which llama.cpp aborts, which ends the whole process: a number of layers that it has no room for, and
    /// a bound of normalisation that is negative, NaN or infinite.
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

    /// A short text of the metadata.
    pub fn text(&self, key: &str) -> Option<&str> {
        match self.values.get(key)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }
}

/// What is still to be read.
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

/// Bytes of a value of a type of fixed size.
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
    fn the_head_of_a_file_is_read_without_its_numbers() {
        let gguf = Gguf::read(&tiny()).unwrap();
        assert_eq!(gguf.text("general.architecture"), Some("qwen2"));
        assert_eq!(gguf.values.get("tokenizer.ggml.tokens"), Some(&Value::Other));
        // 4 heads of 16 dimensions.
        assert_eq!(gguf.tensors["blk.0.attn_q.weight"].shape, [64, 64]);
        assert_eq!(gguf.tensors["output_norm.weight"].shape, [64]);
    }

    #[test]
    fn whatever_is_cut_or_changed_is_an_error_or_another_head_and_nothing_worse() {
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

    /// The file with another value of four bytes under `key`.
    fn with(key: &str, value: [u8; 4]) -> Gguf {
        let mut bytes = std::fs::read(tiny()).unwrap();
        let at = bytes.windows(key.len()).position(|window| window == key.as_bytes()).unwrap();
        // After the key stands the type, of four bytes.
        let at = at + key.len() + 4;
        bytes[at..at + 4].copy_from_slice(&value);
        Gguf::of(&bytes[..]).unwrap()
    }

    #[test]
    fn metadata_on_which_llama_cpp_aborts_is_refused_by_name() {
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
