//! llama.cpp's state of the whole process: initialised once, never freed, its log sent to `tracing`.
//!
//! Its lines have the target `llama-cpp-2`; at `info` they are many, so a program filters that target at `warn`.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use llama_cpp_2::llama_backend::LlamaBackend;
use llama_cpp_2::{LogOptions, send_logs_to_tracing};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Under which target the binding logs llama.cpp's lines.
const LOG_TARGET: &str = "llama-cpp-2";

/// Another part of the process has initialised llama.cpp by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("llama.cpp was initialised by another part of this process")]
pub struct ForeignBackend;

/// The process's one backend. The first call takes a moment.
pub(crate) fn backend() -> Result<&'static LlamaBackend, ForeignBackend> {
    static BACKEND: OnceLock<Option<LlamaBackend>> = OnceLock::new();
    let backend = BACKEND.get_or_init(|| {
        send_logs_to_tracing(LogOptions::default());
        LlamaBackend::init().ok()
    });
    backend.as_ref().ok_or(ForeignBackend)
}

/// Does work that makes llama.cpp talk, and gives the last error that it logged: its own error values say nothing.
pub(crate) fn overheard<T>(work: impl FnOnce() -> T) -> (T, Option<String>) {
    let listener = Listener::default();
    let heard = Arc::clone(&listener.last_error);
    let result = tracing::subscriber::with_default(listener, work);
    let last_error = heard.lock().unwrap_or_else(PoisonError::into_inner).take();
    (result, last_error)
}

/// Keeps the last error line, passes nothing on.
#[derive(Default)]
struct Listener {
    last_error: Arc<Mutex<Option<String>>>,
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == LOG_TARGET && *metadata.level() == Level::ERROR
    }

    fn event(&self, event: &Event<'_>) {
        event.record(&mut Message(&self.last_error));
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

struct Message<'a>(&'a Mutex<Option<String>>);

impl Visit for Message<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            let line = format!("{value:?}");
            let line = line.trim_matches('"').trim().to_owned();
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(line);
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(value.trim().to_owned());
        }
    }
}
