//! Checks whether a `LoRA` adapter fits the weights.
//!
//! llama.cpp rejects most adapters that do not fit, but aborts on some while loading or computing: wrong types of metadata
//! values, tensors without exactly two dimensions or of a type that it cannot multiply, and changes of a token table that is
//! also the output layer. It silently skips parts of others, and it computes with NaN and infinity. This module checks what
//! llama.cpp does not.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use podium_bundle::gguf::{Gguf, GgufError, Tensor, Value};

/// A `LoRA` adapter: a low-rank change of the weights that applies to everything an engine computes.
#[derive(Clone, Debug, PartialEq)]
pub struct AdapterFile {
    /// The GGUF file.
    pub path: PathBuf,
    /// Scale: 1 as trained, 0 without effect.
    pub scale: f32,
}

/// Why an adapter cannot be applied.
#[derive(Debug, thiserror::Error)]
pub enum AdapterError {
    /// The file is missing or is not a regular file.
    #[error("it cannot be read")]
    Unreadable(#[source] io::Error),
    /// The file is damaged or has another format.
    #[error("it is not an adapter: {problem}")]
    Damaged {
        /// The problem.
        problem: String,
    },
    /// A metadata value is unsupported.
    #[error("its {key} is {found}, it must be {expected}")]
    Metadata {
        /// The key of the file's metadata.
        key: &'static str,
        /// Its value.
        found: String,
        /// The supported value.
        expected: String,
    },
    /// Its factor would be NaN or infinite.
    #[error("scale is {scale} at alpha {alpha}, their product must be finite")]
    Scale {
        /// The configured scale.
        scale: f32,
        /// The alpha that the file names.
        alpha: f32,
    },
    /// It has no tensors.
    #[error("it has no tensors")]
    Empty,
    /// A tensor does not fit the weights.
    #[error("its `{tensor}` does not fit: {problem}")]
    Tensor {
        /// The changed tensor of the weights, or the adapter's own tensor.
        tensor: String,
        /// The problem.
        problem: String,
    },
    /// A value is NaN or infinite, which would spread to everything computed with it.
    #[error("its `{tensor}` has a number that is not finite, at {at}")]
    NotFinite {
        /// The adapter's tensor.
        tensor: String,
        /// Index of the value, from 0; for `Q8_0` the first of the block with that scale.
        at: u64,
    },
    /// llama.cpp rejected it.
    #[error("llama.cpp rejected it: {reason}")]
    Refused {
        /// llama.cpp's error.
        reason: String,
    },
}

/// Supported tensor types by their GGUF numbers: F32, F16, `Q8_0`, BF16.
const KINDS: [u32; 4] = [0, 1, 8, 30];
/// A type of weights to which llama.cpp cannot apply adapters.
const NVFP4: u32 = 40;
/// The layer tensors to which adapters may be applied. llama.cpp also applies adapters to experts' tensors, which is untested.
const OF_LAYER: [&str; 8] =
    ["attn_q", "attn_k", "attn_v", "attn_qkv", "attn_output", "ffn_gate", "ffn_up", "ffn_down"];

const ALPHA: &str = "adapter.lora.alpha";
const INVOCATION: &str = "adapter.alora.invocation_tokens";

/// Checks that llama.cpp can safely apply the adapter to these weights, which it has loaded.
pub(crate) fn check(adapter: &AdapterFile, weights: &Path) -> Result<(), AdapterError> {
    // Use the system's message for a missing file. A folder can be opened like a file, so it is checked separately.
    let file = std::fs::metadata(&adapter.path).map_err(AdapterError::Unreadable)?;
    if !file.is_file() {
        return Err(AdapterError::Unreadable(io::Error::other("not a file")));
    }
    let damaged = |error: GgufError| AdapterError::Damaged { problem: error.to_string() };
    let head = Gguf::read(&adapter.path).map_err(damaged)?;
    // llama.cpp has read the weights, so this parser can, too.
    let weights = Gguf::read(weights).map_err(damaged)?;
    check_metadata(&head, &weights)?;
    let alpha = match head.values.get(ALPHA) {
        Some(Value::Float(alpha)) => *alpha,
        _ => 0.0,
    };
    // llama.cpp divides by the rank, so this product is the largest factor.
    if !adapter.scale.is_finite() || !(adapter.scale * alpha).is_finite() {
        return Err(AdapterError::Scale { scale: adapter.scale, alpha });
    }
    check_tensors(&head, &weights)?;
    head.check_numbers(&adapter.path).map_err(|error| match error {
        GgufError::NotFinite { tensor, at } => AdapterError::NotFinite { tensor, at },
        error => damaged(error),
    })
}

fn check_metadata(head: &Gguf, weights: &Gguf) -> Result<(), AdapterError> {
    let architecture = weights.text("general.architecture").unwrap_or_default();
    for (key, expected) in
        [("general.type", "adapter"), ("adapter.type", "lora"), ("general.architecture", architecture)]
    {
        let found = head.text(key);
        if found != Some(expected) {
            let found =
                found.map_or_else(|| "missing or not a short text".to_owned(), |it| format!("`{it}`"));
            return Err(AdapterError::Metadata { key, found, expected: format!("`{expected}`") });
        }
    }
    let other = |key, found: &str, expected: &str| {
        Err(AdapterError::Metadata { key, found: found.to_owned(), expected: expected.to_owned() })
    };
    match head.values.get(ALPHA) {
        None | Some(Value::Float(_)) => {}
        Some(_) => return other(ALPHA, "of another type", "a 32-bit float"),
    }
    if head.values.contains_key(INVOCATION) {
        return other(INVOCATION, "present", "absent: an adapter applies to all tokens or to none");
    }
    Ok(())
}

fn check_tensors(head: &Gguf, weights: &Gguf) -> Result<(), AdapterError> {
    let stem = |name: &str| {
        let stem = name.strip_suffix(".lora_a").or_else(|| name.strip_suffix(".lora_b"));
        stem.map(str::to_owned).ok_or_else(|| AdapterError::Tensor {
            tensor: name.to_owned(),
            problem: "it is neither a lora_a nor a lora_b".to_owned(),
        })
    };
    let changed: BTreeSet<String> = head.tensors.keys().map(|name| stem(name)).collect::<Result<_, _>>()?;
    if changed.is_empty() {
        return Err(AdapterError::Empty);
    }
    changed.into_iter().try_for_each(|tensor| {
        let part = |part: &str| head.tensors.get(&format!("{tensor}.{part}"));
        let checked = check_change(&tensor, part("lora_a"), part("lora_b"), weights.tensors.get(&tensor));
        checked.map_err(|problem| AdapterError::Tensor { tensor, problem })
    })
}

fn check_change(
    name: &str,
    a: Option<&Tensor>,
    b: Option<&Tensor>,
    of_weights: Option<&Tensor>,
) -> Result<(), String> {
    if !is_applied(name) {
        return Err(format!(
            "only the output layer and the layer tensors {} can be changed",
            OF_LAYER.join(", ")
        ));
    }
    let Some(of_weights) = of_weights else { return Err("the weights have no such tensor".to_owned()) };
    let (Some(a), Some(b)) = (a, b) else { return Err("its other half is missing".to_owned()) };
    if let Some(kind) = [a, b].iter().map(|half| half.kind).find(|kind| !KINDS.contains(kind)) {
        return Err(format!("its numbers are of type {kind}, they must be F32, F16, BF16 or Q8_0"));
    }
    if of_weights.kind == NVFP4 {
        return Err("weights in NVFP4 cannot be changed".to_owned());
    }
    let ([input, output], [a_input, a_rank], [b_rank, b_output]) = (two(of_weights), two(a), two(b));
    let has_two = |tensor: &Tensor| tensor.shape.len() <= 2;
    if [of_weights, a, b].into_iter().all(has_two)
        && (a_input, b_output) == (input, output)
        && a_rank == b_rank
        && a_rank > 0
    {
        return Ok(());
    }
    let (a, b, of_weights) = (&a.shape, &b.shape, &of_weights.shape);
    Err(format!("it is of shape {a:?} by {b:?}, the weights' is {of_weights:?}"))
}

/// The tensor's first two dimensions; a missing one is 1.
fn two(tensor: &Tensor) -> [u64; 2] {
    [0, 1].map(|at| tensor.shape.get(at).copied().unwrap_or(1))
}

fn is_applied(name: &str) -> bool {
    let Some(name) = name.strip_suffix(".weight") else { return false };
    let of_layer = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
    name == "output"
        || of_layer.is_some_and(|(layer, tensor)| layer.parse::<u32>().is_ok() && OF_LAYER.contains(&tensor))
}
