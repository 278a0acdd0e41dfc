//! A safetensors file with matrices of 32-bit floats and a JSON document.
//!
//! The document is the value of a single metadata key: several keys are written in no fixed order, but equal contents must
//! give equal bytes.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use safetensors::tensor::{Dtype, TensorView};
use safetensors::{SafeTensorError, SafeTensors};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It is missing or cannot be read.
    #[error("file `{path}` cannot be read", path = path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The I/O error.
        #[source]
        source: io::Error,
    },
    /// It is too large.
    #[error("file `{path}` is over {bytes_max} bytes, the limit", path = path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The limit.
        bytes_max: u64,
    },
    /// It is not a safetensors file, or damaged.
    #[error("file `{path}` is not safetensors", path = path.display())]
    NotSafetensors {
        /// The file.
        path: PathBuf,
        /// The parser's error.
        #[source]
        source: SafeTensorError,
    },
    /// Its contents are invalid.
    #[error("file `{path}` is refused: {problem}", path = path.display())]
    Wrong {
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// It cannot be serialised.
    #[error("the file cannot be serialised: {problem}")]
    Unwritable {
        /// The cause.
        problem: String,
    },
}

/// A matrix in row order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Matrix {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) values: Vec<f32>,
}

/// Reads a whole file of at most `bytes_max` bytes.
pub(crate) fn read(path: &Path, bytes_max: u64) -> Result<Vec<u8>, FileError> {
    let unreadable = |source| FileError::Unreadable { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    let read = file.take(bytes_max + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if read as u64 > bytes_max {
        return Err(FileError::TooLarge { path: path.to_owned(), bytes_max });
    }
    Ok(bytes)
}

/// A parsed file: its document, and its matrices by name.
#[derive(Debug)]
pub(crate) struct Parsed<'a, T> {
    pub(crate) document: T,
    tensors: SafeTensors<'a>,
    path: &'a Path,
}

/// Parses a file's bytes. The document is the value of metadata key `key`.
pub(crate) fn parse<'a, T: DeserializeOwned>(
    bytes: &'a [u8],
    path: &'a Path,
    key: &str,
) -> Result<Parsed<'a, T>, FileError> {
    let not_safetensors = |source| FileError::NotSafetensors { path: path.to_owned(), source };
    let wrong = |problem: String| FileError::Wrong { path: path.to_owned(), problem };
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(not_safetensors)?;
    let document = header.metadata().as_ref().and_then(|metadata| metadata.get(key));
    let document = document.ok_or_else(|| wrong(format!("its metadata has no key `{key}`")))?;
    let document = serde_json::from_str(document).map_err(|e| wrong(format!("metadata `{key}`: {e}")))?;
    let tensors = SafeTensors::deserialize(bytes).map_err(not_safetensors)?;
    Ok(Parsed { document, tensors, path })
}

impl<T> Parsed<'_, T> {
    /// The error for invalid contents of this file.
    pub(crate) fn wrong(&self, problem: String) -> FileError {
        FileError::Wrong { path: self.path.to_owned(), problem }
    }

    /// The matrix of this name.
    pub(crate) fn matrix(&self, name: &str) -> Result<Matrix, FileError> {
        let found =
            self.tensors.tensor(name).map_err(|_| self.wrong(format!("it has no tensor `{name}`")))?;
        let (Dtype::F32, &[rows, columns]) = (found.dtype(), found.shape()) else {
            let (dtype, shape) = (found.dtype(), found.shape());
            return Err(self.wrong(format!(
                "tensor `{name}` is {dtype:?} {shape:?}, it must be F32 with two dimensions"
            )));
        };
        let (numbers, _) = found.data().as_chunks::<4>();
        let values = numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        Ok(Matrix { rows, columns, values })
    }
}

/// Serialises a file with these matrices.
pub(crate) fn serialise<T: Serialize>(
    document: &T,
    key: &str,
    matrices: &[(&str, &Matrix)],
) -> Result<Vec<u8>, FileError> {
    let unwritable = |problem: String| FileError::Unwritable { problem };
    let document = serde_json::to_string(document).map_err(|e| unwritable(e.to_string()))?;
    let data: Vec<Vec<u8>> = matrices
        .iter()
        .map(|(_, matrix)| matrix.values.iter().flat_map(|value| value.to_le_bytes()).collect())
        .collect();
    let views = matrices.iter().zip(&data).map(|((name, matrix), data)| {
        let view = TensorView::new(Dtype::F32, vec![matrix.rows, matrix.columns], data);
        view.map(|view| (*name, view)).map_err(|e| unwritable(e.to_string()))
    });
    let views: Vec<_> = views.collect::<Result<_, _>>()?;
    let metadata = HashMap::from([(key.to_owned(), document)]);
    safetensors::serialize(views, Some(metadata)).map_err(|e| unwritable(e.to_string()))
}
