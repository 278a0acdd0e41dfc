//! llama.cpp's state of the whole process: initialised once, never freed, its log sent to `tracing`.
//!
//! Its lines have the target `llama-cpp-2`; at `info` they are many, so a program filters that target at `warn`.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use llama_cpp_2::llama_backend::LlamaBackend;
use llama_cpp_2::{LogOptions, send_logs_to_tracing};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::modules::{self, Modules, NoModules};

/// Under which target the binding logs llama.cpp's lines.
const LOG_TARGET: &str = "llama-cpp-2";

/// Why this process has no llama.cpp.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BackendError {
    /// Another part of the process has initialised it by itself.
    #[error("llama.cpp was initialised by another part of this process")]
    Foreign,
    /// What computes is not there.
    #[error(transparent)]
    NoModules(#[from] NoModules),
}

/// llama.cpp in this process.
#[derive(Debug)]
pub(crate) struct LlamaCpp {
    pub(crate) backend: LlamaBackend,
    /// What it computes with.
    pub(crate) modules: Modules,
}

/// The process's one backend. The first call takes a moment.
pub(crate) fn backend() -> Result<&'static LlamaCpp, BackendError> {
    static BACKEND: OnceLock<Result<LlamaCpp, BackendError>> = OnceLock::new();
    let backend = BACKEND.get_or_init(|| {
        send_logs_to_tracing(LogOptions::default());
        // Before the backend: it would load modules by itself, from the working directory too.
        let modules = modules::load()?;
        let backend = LlamaBackend::init().map_err(|_| BackendError::Foreign)?;
        Ok(LlamaCpp { backend, modules })
    });
    backend.as_ref().map_err(Clone::clone)
}

/// Does work that makes llama.cpp talk, and gives the last error that it logged: its own error values say nothing.
pub(crate) fn overheard<T>(work: impl FnOnce() -> T) -> (T, Option<String>) {
    let (result, mut errors) = all_overheard(work);
    (result, errors.pop())
}

/// The same with the last errors in the order of their coming.
pub(crate) fn all_overheard<T>(work: impl FnOnce() -> T) -> (T, Vec<String>) {
    let listener = Listener::default();
    let heard = Arc::clone(&listener.errors);
    let result = tracing::subscriber::with_default(listener, work);
    let errors = std::mem::take(&mut *heard.lock().unwrap_or_else(PoisonError::into_inner));
    (result, errors.into())
}

/// Most lines that are kept, and most characters of each.
const LINES_MAX: usize = 16;
const LINE_CHARS_MAX: usize = 400;

/// Keeps the last error lines, passes nothing on.
#[derive(Default)]
struct Listener {
    errors: Arc<Mutex<VecDeque<String>>>,
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == LOG_TARGET && *metadata.level() == Level::ERROR
    }

    fn event(&self, event: &Event<'_>) {
        event.record(&mut Message(&self.errors));
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

struct Message<'a>(&'a Mutex<VecDeque<String>>);

impl Message<'_> {
    fn keep(&self, line: &str) {
        let mut errors = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if errors.len() == LINES_MAX {
            errors.pop_front();
        }
        errors.push_back(line.trim().chars().take(LINE_CHARS_MAX).collect());
    }
}

impl Visit for Message<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.keep(format!("{value:?}").trim_matches('"'));
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.keep(value);
        }
    }
}
