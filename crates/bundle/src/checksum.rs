//! SHA-256 checksums in lower-case hexadecimal.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read as _, Write};
use std::path::Path;

use sha2::{Digest, Sha256};

/// The checksum of a file with these bytes.
pub fn of_bytes(bytes: &[u8]) -> String {
    hexadecimal(Sha256::digest(bytes).as_slice())
}

/// The checksum of a file's contents.
pub fn of_file(path: &Path) -> io::Result<String> {
    copied(path, &mut io::sink())
}

/// Copies a file and returns the checksum of the copied bytes.
pub(crate) fn copied(from: &Path, to: &mut dyn Write) -> io::Result<String> {
    let mut file = File::open(from)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok(hexadecimal(hash.finalize().as_slice()));
        }
        hash.update(&buffer[..read]);
        to.write_all(&buffer[..read])?;
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}
