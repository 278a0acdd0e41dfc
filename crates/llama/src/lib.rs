//! The conductor that runs on this machine, under llama.cpp.
//!
//! [`bundle`] opens a directory with a manifest and weights, [`LlamaConductor`] makes it a conductor, [`engine`] runs it: one
//! thread owns the model, requests queue to it, plans are written under a [`grammar`].
//!
//! llama.cpp **aborts the process** when one of its assertions fails. This crate's interface leaves no way to make it do so,
//! but damaged weights, a driver or a bug may: a program with this crate in it must be able to die and start again. It sets
//! `GGML_NO_BACKTRACE=1` in its environment (from outside: a process cannot safely set its own), or an abort first runs a
//! debugger on itself; and it calls [`Conductor::shut_down`](podium_ports::conductor::Conductor::shut_down) before it exits.
//!
//! This is the only crate that links C++. It refuses to: render templates that it does not know, run architectures that
//! cannot drop the end of a text, and use llama.cpp's own grammars, which are slow and abort.

mod adapter;
mod backend;
mod conductor;
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
pub use engine::inspect;
pub use modules::{MODULES_VARIABLE, NoModules, load_modules};
pub use reading::QuestionReader;
pub use sampler::Sampling;
