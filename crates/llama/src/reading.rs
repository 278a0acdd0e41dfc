//! How a question is read for the mini head: which prompt, and what is taken of it.
//!
//! The prompt is the question alone, in the conductor's template, without instructions or workers: it costs no more than the
//! question, and is the same whatever the policy allows. The hidden state at its penultimate token is what the mini head sees,
//! as in TRINITY (arXiv 2512.04695), where the last one did worse.

use std::num::{NonZeroU16, NonZeroUsize};
use std::path::Path;
use std::time::{Duration, Instant};

use podium_domain::conversation::{Message, Role};
use podium_head::Source;
use podium_ports::BoxError;
use podium_ports::hardware::Hardware;
use tokio_util::sync::CancellationToken;

use crate::adapter::AdapterFile;
use crate::bundle::Bundle;
use crate::engine::{Engine, EngineError, EngineOptions, HiddenStates, ReadRequest};
use crate::prompt::{Prompt, Template};

/// What the mini head is told of a question.
pub(crate) fn prompt(template: Template, question: &str) -> Prompt {
    Prompt::new(template, &[Message::new(Role::User, question)], "")
}

/// The bundle's adapter, if it has one; its manifest's check allows no second one.
pub(crate) fn adapter(bundle: &Bundle) -> Option<AdapterFile> {
    let adapter = bundle.manifest().adapters.first()?;
    Some(AdapterFile { path: bundle.path(&adapter.file), scale: adapter.scale })
}

/// Where the hidden states of a bundle come from. Whoever changes [`prompt`] or the token that is read counts the name up.
pub(crate) fn source(bundle: &Bundle) -> Source {
    let manifest = bundle.manifest();
    Source {
        weights_sha256: manifest.weights.sha256.clone(),
        adapter: manifest.adapters.first().map(|adapter| format!("{}*{}", adapter.sha256, adapter.scale)),
        reading: format!("{}-question-1", manifest.prompt.template),
    }
}

/// Reads questions with a bundle's weights, for training a mini head.
#[derive(Debug)]
pub struct QuestionReader {
    engine: Engine,
    template: Template,
    source: Source,
}

/// Longest that a question may take; a long one on a slow machine takes minutes.
const READ_MAX: Duration = Duration::from_mins(30);

impl QuestionReader {
    /// Loads the bundle in a folder. Blocks while it loads.
    pub fn open(folder: &Path) -> Result<Self, BoxError> {
        let bundle = Bundle::open(folder)?;
        let template = Template::from_name(&bundle.manifest().prompt.template)?;
        let engine = Engine::load(EngineOptions {
            name: bundle.manifest().id(),
            weights: bundle.weights().to_owned(),
            adapter: adapter(&bundle),
            context_tokens: bundle.manifest().sampling.context_tokens,
            sequences_max: NonZeroU16::MIN,
            waiting_max: NonZeroUsize::MIN,
            threads: None,
            hardware: Hardware::default(),
            hidden_states: HiddenStates::Readable,
        })?;
        Ok(Self { engine, template, source: source(&bundle) })
    }

    /// Where the hidden states come from.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// The hidden state of a question.
    pub async fn read(&self, question: &str) -> Result<Vec<f32>, EngineError> {
        let request = ReadRequest {
            prompt: prompt(self.template, question),
            deadline: Instant::now() + READ_MAX,
            stop: CancellationToken::new(),
        };
        Ok(self.engine.handle().read(request)?.finish().await?.values)
    }

    /// Frees the model. A program does this before it exits.
    pub async fn shut_down(&self) {
        self.engine.shut_down().await;
    }
}
