//! llama.cpp's process-wide state: initialised once, never freed, with its log sent to `tracing`.
//!
//! The log lines have the target `llama-cpp-2`. There are many at `info`, so programs filter that target at `warn`.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use llama_cpp_2::llama_backend::LlamaBackend;
use llama_cpp_2::{LogOptions, send_logs_to_tracing};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::modules::{self, Modules, NoModules};

/// The `tracing` target of llama.cpp's log lines.
const LOG_TARGET: &str = "llama-cpp-2";

/// Why llama.cpp is unavailable in this process.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BackendError {
    /// Another part of the process initialised it.
    #[error("llama.cpp was initialised by another part of this process")]
    Foreign,
    /// No module for this processor was found.
    #[error(transparent)]
    NoModules(#[from] NoModules),
}

/// llama.cpp in this process.
#[derive(Debug)]
pub(crate) struct LlamaCpp {
    pub(crate) backend: LlamaBackend,
    /// The loaded compute modules.
    pub(crate) modules: Modules,
}

/// The process's backend; the first call initialises it.
pub(crate) fn backend() -> Result<&'static LlamaCpp, BackendError> {
    static BACKEND: OnceLock<Result<LlamaCpp, BackendError>> = OnceLock::new();
    let backend = BACKEND.get_or_init(|| {
        send_logs_to_tracing(LogOptions::default());
        // Load the modules first: the backend would otherwise search for them itself, also in the working directory.
        let modules = modules::load()?;
        let backend = LlamaBackend::init().map_err(|_| BackendError::Foreign)?;
        Ok(LlamaCpp { backend, modules })
    });
    backend.as_ref().map_err(Clone::clone)
}

/// Runs `work` and returns the last error that llama.cpp logged meanwhile. Its own error values contain no reason.
pub(crate) fn with_last_error<T>(work: impl FnOnce() -> T) -> (T, Option<String>) {
    let (result, mut errors) = with_errors(work);
    (result, errors.pop())
}

/// Like [`with_last_error`], with all recent errors in order.
pub(crate) fn with_errors<T>(work: impl FnOnce() -> T) -> (T, Vec<String>) {
    let listener = ErrorCollector::default();
    let collected = Arc::clone(&listener.errors);
    let result = tracing::subscriber::with_default(listener, work);
    let errors = std::mem::take(&mut *collected.lock().unwrap_or_else(PoisonError::into_inner));
    (result, errors.into())
}

/// Most lines that are kept, and most characters per line.
const LINES_MAX: usize = 16;
const LINE_CHARS_MAX: usize = 400;

/// Collects the last error lines and forwards nothing.
#[derive(Default)]
struct ErrorCollector {
    errors: Arc<Mutex<VecDeque<String>>>,
}

impl Subscriber for ErrorCollector {
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
