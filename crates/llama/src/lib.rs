//! The local conductor, which runs under llama.cpp.
//!
//! [`bundle`] opens a folder with a manifest and weights, [`LlamaConductor`] makes it a conductor, and [`engine`] runs it:
//! one thread owns the model, requests queue for it, and plans are written under a [`grammar`].
//!
//! llama.cpp **aborts the process** when one of its assertions fails. This crate's interface cannot trigger that, but
//! damaged weights, a driver or a bug may: programs with this crate must tolerate being killed and restarted. They set
//! `GGML_NO_BACKTRACE=1` from outside (a process cannot safely set its own environment), or an abort first runs a debugger
//! on itself. They call [`Conductor::shut_down`](podium_ports::conductor::Conductor::shut_down) before they exit.
//!
//! This is the only crate that links C++. It does not render unknown templates, run architectures that cannot drop the end
//! of a text, or use llama.cpp's own grammars, which are slow and abort.

mod adapter;
mod backend;
mod conductor;
mod encoder;
pub mod engine;
pub mod grammar;
mod modules;
pub mod prompt;
mod reading;
mod reasoning;
mod sampler;
mod transcript;
mod vocabulary;

pub use podium_bundle as bundle;

pub use adapter::{AdapterError, AdapterFile};
pub use backend::BackendError;
pub use conductor::{LlamaConductor, LlamaOptions, OpenError, open};
pub use encoder::{ENCODER_TOKENS_MAX, Encoder};
pub use engine::inspect;
pub use modules::{MODULES_VARIABLE, NoModules, load_modules};
pub use reading::QuestionReader;
pub use sampler::Sampling;
