//! `LoRA` adapters: which ones fit which weights.
//!
//! llama.cpp refuses most adapters that do not fit, and aborts on some, at once or when it computes: those whose metadata have
//! other types, whose tensors have other dimensions than two or a type that it does not multiply, that change the table of
//! tokens where it is the output as well. Others it passes over in part, and it computes with numbers that are none. So all that
//! it does not check is checked here.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use podium_bundle::gguf::{Gguf, GgufError, Tensor, Value};

/// An adapter of the `LoRA` kind: a low-rank change that is applied to the weights in all that an engine computes.
#[derive(Clone, Debug, PartialEq)]
pub struct AdapterFile {
    /// The GGUF file.
    pub path: PathBuf,
    /// How strongly it is applied; 1 is as it was trained, 0 not at all.
    pub scale: f32,
}

/// Why an adapter is not applied to weights.
#[derive(Debug, thiserror::Error)]
pub enum AdapterError {
    /// The file is missing, or not a file.
    #[error("it cannot be read")]
    Unreadable(#[source] io::Error),
    /// The file is damaged or of another kind.
    #[error("it is no adapter: {problem}")]
    Damaged {
        /// What is wrong.
        problem: String,
    },
    /// What the file says of itself is not what it must be.
    #[error("its {key} is {found}, it must be {expected}")]
    Metadata {
        /// The key of the file's metadata.
        key: &'static str,
        /// Its value.
        found: String,
        /// The value that would do.
        expected: String,
    },
    /// It would be multiplied with a number that is none.
    #[error("scale is {scale} at alpha {alpha}, the adapter cannot be multiplied with that")]
    Scale {
        /// How strongly it was to be applied.
        scale: f32,
        /// What the file says that it was trained with.
        alpha: f32,
    },
    /// It has no tensors.
    #[error("it changes nothing")]
    Empty,
    /// A tensor of it does not fit the weights.
    #[error("its `{tensor}` does not fit: {problem}")]
    Tensor {
        /// The tensor of the weights that it is to change, or its own name.
        tensor: String,
        /// Why.
        problem: String,
    },
    /// A number of it is none, or has no end: so would be all that is computed with it.
    #[error("its `{tensor}` has a number that is not finite, at {at}")]
    NotFinite {
        /// Its own tensor.
        tensor: String,
        /// Which of its numbers, from 0; with `Q8_0`, the first of the block whose scale it is.
        at: u64,
    },
    /// llama.cpp does not take it.
    #[error("llama.cpp refuses it: {reason}")]
    Refused {
        /// What llama.cpp says.
        reason: String,
    },
}

/// Types of numbers that adapters have, as GGUF counts them: F32, F16, `Q8_0`, BF16.
const KINDS: [u32; 4] = [0, 1, 8, 30];
/// The type of weights that llama.cpp cannot change.
const NVFP4: u32 = 40;
/// The tensors of a layer to which llama.cpp applies adapters. It does to those of experts, too, by rules that nobody has
/// tried here.
const OF_LAYER: [&str; 8] =
    ["attn_q", "attn_k", "attn_v", "attn_qkv", "attn_output", "ffn_gate", "ffn_up", "ffn_down"];

const ALPHA: &str = "adapter.lora.alpha";
const INVOCATION: &str = "adapter.alora.invocation_tokens";

/// Whether llama.cpp may be given the adapter for these weights, which it has loaded.
pub(crate) fn check(adapter: &AdapterFile, weights: &Path) -> Result<(), AdapterError> {
    // The system's own words for what is not there; a folder can be opened like a file.
    let file = std::fs::metadata(&adapter.path).map_err(AdapterError::Unreadable)?;
    if !file.is_file() {
        return Err(AdapterError::Unreadable(io::Error::other("not a file")));
    }
    let damaged = |error: GgufError| AdapterError::Damaged { problem: error.to_string() };
    let head = Gguf::read(&adapter.path).map_err(damaged)?;
    // llama.cpp has read them, so this can too.
    let weights = Gguf::read(weights).map_err(damaged)?;
    check_metadata(&head, &weights)?;
    let alpha = match head.values.get(ALPHA) {
        Some(Value::Float(alpha)) => *alpha,
        _ => 0.0,
    };
    // The rank divides it, so the product is the most that can come of it.
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
            let found = found.map_or_else(|| "missing or no short text".to_owned(), |it| format!("`{it}`"));
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
        return other(INVOCATION, "there", "left out: an adapter is applied to all tokens or to none");
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
        let parts = (part("lora_a"), part("lora_b"));
        let checked = check_change(&tensor, parts, weights.tensors.get(&tensor));
        checked.map_err(|problem| AdapterError::Tensor { tensor, problem })
    })
}

fn check_change(
    name: &str,
    parts: (Option<&Tensor>, Option<&Tensor>),
    of_weights: Option<&Tensor>,
) -> Result<(), String> {
    if !is_applied(name) {
        return Err(format!("only output and, of layers, {} can be changed", OF_LAYER.join(", ")));
    }
    let Some(of_weights) = of_weights else { return Err("the weights have no such tensor".to_owned()) };
    let (Some(a), Some(b)) = parts else { return Err("its other half is missing".to_owned()) };
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

/// Its first two dimensions.
fn two(tensor: &Tensor) -> [u64; 2] {
    [0, 1].map(|at| tensor.shape.get(at).copied().unwrap_or(1))
}

fn is_applied(name: &str) -> bool {
    let Some(name) = name.strip_suffix(".weight") else { return false };
    let of_layer = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
    name == "output"
        || of_layer.is_some_and(|(layer, tensor)| layer.parse::<u32>().is_ok() && OF_LAYER.contains(&tensor))
}
