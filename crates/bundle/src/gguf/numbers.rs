//! Checks that the values of a file are finite.
//!
//! This is used for adapters, which are small and have few data types. Weights have many more types and take gigabytes, so
//! they are not checked.

use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom};
use std::path::Path;

use super::{Gguf, GgufError, Tensor, wrong};

/// Blocks per read.
const BLOCKS: u64 = 4096;

/// The layout of a data type: blocks, each with one float that is checked.
#[derive(Clone, Copy)]
struct Layout {
    block_bytes: usize,
    block_numbers: u64,
    is_finite: fn(&[u8]) -> bool,
}

impl Layout {
    fn of(kind: u32) -> Option<Self> {
        let float = |block_bytes, is_finite| Self { block_bytes, block_numbers: 1, is_finite };
        match kind {
            0 => Some(float(4, |bytes| high_bits(bytes, 2) & 0x7f80 != 0x7f80)),
            1 => Some(float(2, is_finite_half)),
            30 => Some(float(2, |bytes| high_bits(bytes, 0) & 0x7f80 != 0x7f80)),
            // Q8_0: a 16-bit scale for the 32 integers after it.
            8 => Some(Self { block_bytes: 34, block_numbers: 32, is_finite: is_finite_half }),
            _ => None,
        }
    }
}

/// 16 bits at this offset. A float of any size is finite if its exponent, in the upper bits, is not all ones.
fn high_bits(bytes: &[u8], from: usize) -> u16 {
    bytes.get(from..).and_then(<[u8]>::first_chunk).map_or(u16::MAX, |bytes| u16::from_le_bytes(*bytes))
}

fn is_finite_half(bytes: &[u8]) -> bool {
    high_bits(bytes, 0) & 0x7c00 != 0x7c00
}

impl Gguf {
    /// Reads all values of the file with this header and rejects the first that is NaN or infinite. Supports the types of
    /// adapters (F32, F16, BF16, and the scales of `Q8_0`) and rejects others.
    pub fn check_numbers(&self, path: &Path) -> Result<(), GgufError> {
        let mut file = File::open(path)?;
        self.tensors.iter().try_for_each(|(name, tensor)| self.check_tensor(&mut file, name, tensor))
    }

    fn check_tensor(&self, file: &mut File, name: &str, tensor: &Tensor) -> Result<(), GgufError> {
        let layout = Layout::of(tensor.kind)
            .ok_or_else(|| GgufError::Kind { tensor: name.to_owned(), kind: tensor.kind })?;
        let too_large = || wrong(format!("`{name}` is too large"));
        let numbers = tensor.shape.iter().try_fold(1_u64, |all, length| all.checked_mul(*length));
        let numbers = numbers.ok_or_else(too_large)?;
        file.seek(SeekFrom::Start(self.numbers_at.checked_add(tensor.at).ok_or_else(too_large)?))?;
        let mut blocks = numbers.div_ceil(layout.block_numbers);
        let (mut buffer, mut at) = (Vec::new(), 0);
        while blocks > 0 {
            let part = blocks.min(BLOCKS);
            let bytes = part * layout.block_bytes as u64;
            buffer.clear();
            if file.by_ref().take(bytes).read_to_end(&mut buffer)? as u64 != bytes {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
            let is_none = |block: &[u8]| !(layout.is_finite)(block);
            if let Some(block) = buffer.chunks_exact(layout.block_bytes).position(is_none) {
                let at = (at + block as u64) * layout.block_numbers;
                return Err(GgufError::NotFinite { tensor: name.to_owned(), at });
            }
            (blocks, at) = (blocks - part, at + part);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// A file with two tensors, the second with this type and these bytes.
    fn file(kind: u32, numbers: u64, bytes: &[u8]) -> tempfile::NamedTempFile {
        let text = |text: &str| [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat();
        let tensor = |name: &str, numbers: u64, kind: u32, at: u64| {
            let parts = [&text(name)[..], &1_u32.to_le_bytes(), &numbers.to_le_bytes(), &kind.to_le_bytes()];
            [&parts.concat()[..], &at.to_le_bytes()].concat()
        };
        let mut head =
            [b"GGUF", &3_u32.to_le_bytes()[..], &2_u64.to_le_bytes(), &1_u64.to_le_bytes()].concat();
        head.extend([&text("general.alignment")[..], &4_u32.to_le_bytes(), &64_u32.to_le_bytes()].concat());
        head.extend(tensor("first", 2, 0, 0));
        head.extend(tensor("second", numbers, kind, 64));
        head.resize(head.len().next_multiple_of(64), 0xff);
        head.extend([1.0_f32, -f32::MAX].map(f32::to_le_bytes).concat());
        head.resize(head.len().next_multiple_of(64), 0xff);
        head.extend(bytes);
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&head).unwrap();
        file
    }

    fn check(kind: u32, numbers: u64, bytes: &[u8]) -> Result<(), String> {
        let file = file(kind, numbers, bytes);
        let checked = Gguf::read(file.path()).unwrap().check_numbers(file.path());
        checked.map_err(|error| error.to_string())
    }

    fn refused(at: u64) -> Result<(), String> {
        Err(format!("`second` has a number that is not finite, at {at}"))
    }

    #[test]
    fn the_first_nan_or_infinity_is_reported_for_each_type() {
        let single = |numbers: [f32; 3]| numbers.map(f32::to_le_bytes).concat();
        let half = |numbers: [u16; 3]| numbers.map(u16::to_le_bytes).concat();
        for (kind, good, bad) in [
            (0, single([0.0, f32::MIN_POSITIVE, f32::MAX]), single([0.0, f32::NAN, f32::NAN])),
            (0, single([0.0, -0.0, 1.0]), single([0.0, f32::NEG_INFINITY, 0.0])),
            // 1, the largest, the smallest; then infinity and NaN.
            (1, half([0x3c00, 0x7bff, 0x8001]), half([0x3c00, 0xfc00, 0])),
            (1, half([0, 0, 0]), half([0, 0x7c01, 0])),
            (30, half([0x3f80, 0x7f7f, 0x8001]), half([0x3f80, 0x7f80, 0])),
            (30, half([0, 0x7c00, 0]), half([0, 0xffc0, 0])),
        ] {
            assert_eq!(check(kind, 3, &good), Ok(()), "{kind}");
            assert_eq!(check(kind, 3, &bad), refused(1), "{kind}");
        }
        let block = |scale: u16| [&scale.to_le_bytes()[..], &[0xff; 32]].concat();
        assert_eq!(check(8, 64, &[block(0x3c00), block(0x7bff)].concat()), Ok(()));
        assert_eq!(check(8, 64, &[block(0x3c00), block(0x7e00)].concat()), refused(32));
    }

    #[test]
    fn values_are_checked_across_block_boundaries() {
        let mut numbers = vec![0_u8; 4 * 10_000];
        assert_eq!(check(0, 10_000, &numbers), Ok(()));
        numbers[4 * 9_999 + 2..].copy_from_slice(&[0x80, 0x7f]);
        assert_eq!(check(0, 10_000, &numbers), refused(9_999));
    }

    #[test]
    fn truncated_and_unsupported_tensors_are_rejected() {
        assert_eq!(
            check(12, 3, &[0; 12]),
            Err("`second` has numbers of type 12, they must be F32, F16, BF16 or Q8_0".to_owned())
        );
        for (numbers, part) in [(4, "cannot be read to the end"), (u64::MAX, "cannot be read to the end")] {
            let refused = check(0, numbers, &[0; 12]).unwrap_err();
            assert!(refused.contains(part), "{refused}");
        }
    }
}
