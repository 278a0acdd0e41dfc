//! Reads a question for the mini head: the prompt, and which hidden state is used.
//!
//! A bundle with an [`Encoder`] uses the encoder's vector of the question. Without one, the prompt is the question alone in the conductor's template, without instructions and workers. So it costs no more than
//! the question and does not depend on the policy. The mini head gets the hidden state at the penultimate token, as in
//! TRINITY (arXiv 2512.04695), where the last token was worse.

use std::num::{NonZeroU16, NonZeroUsize};
use std::path::Path;
use std::time::{Duration, Instant};

use podium_bundle::hardware::Hardware;
use podium_domain::conversation::{Message, Role};
use podium_head::Source;
use podium_ports::BoxError;
use tokio_util::sync::CancellationToken;

use crate::adapter::AdapterFile;
use crate::bundle::Bundle;
use crate::encoder::{self, Encoder};
use crate::engine::{Engine, EngineError, EngineOptions, HiddenStates, ReadRequest};
use crate::prompt::{Prompt, Template};

/// The mini head's prompt for a question.
pub(crate) fn prompt(template: Template, question: &str) -> Prompt {
    Prompt::new(template, &[Message::new(Role::User, question)], "")
}

/// The bundle's adapter, if any; the manifest allows at most one.
pub(crate) fn adapter(bundle: &Bundle) -> Option<AdapterFile> {
    let adapter = bundle.manifest().adapters.first()?;
    Some(AdapterFile { path: bundle.path(&adapter.file), scale: adapter.scale })
}

/// The origin of a bundle's hidden states. Raise the number in the name when [`prompt`] or the token changes.
pub(crate) fn source(bundle: &Bundle) -> Source {
    let manifest = bundle.manifest();
    if let Some(encoder) = &manifest.encoder {
        return of_encoder(encoder.sha256.clone());
    }
    Source {
        weights_sha256: manifest.weights.sha256.clone(),
        adapter: manifest.adapters.first().map(|adapter| format!("{}*{}", adapter.sha256, adapter.scale)),
        reading: format!("{}-question-1", manifest.prompt.template),
    }
}

/// The origin of an encoder's vectors.
fn of_encoder(weights_sha256: String) -> Source {
    Source { weights_sha256, adapter: None, reading: encoder::READING.to_owned() }
}

/// Reads questions with a bundle's weights or an encoder, for training a mini head.
#[derive(Debug)]
pub struct QuestionReader {
    model: Model,
    source: Source,
}

#[derive(Debug)]
enum Model {
    Bundle { engine: Engine, template: Template },
    Encoder(Encoder),
}

/// Time limit per question; a long one on a slow machine takes minutes.
const READ_MAX: Duration = Duration::from_mins(30);

impl QuestionReader {
    /// Loads the bundle in a folder, or its encoder if it has one. Blocks while it loads.
    pub fn open(folder: &Path) -> Result<Self, BoxError> {
        let bundle = Bundle::open(folder)?;
        if let Some(encoder) = &bundle.manifest().encoder {
            return Self::open_encoder(&bundle.path(&encoder.file));
        }
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
        Ok(Self { model: Model::Bundle { engine, template }, source: source(&bundle) })
    }

    /// Loads a sentence encoder, a GGUF file. Blocks while it loads.
    pub fn open_encoder(file: &Path) -> Result<Self, BoxError> {
        let encoder = Encoder::load(file, NonZeroUsize::MIN, None)?;
        Ok(Self { model: Model::Encoder(encoder), source: of_encoder(podium_bundle::sha256_of_file(file)?) })
    }

    /// The origin of the hidden states.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// The hidden state of a question.
    pub async fn read(&self, question: &str) -> Result<Vec<f32>, EngineError> {
        let (engine, template) = match &self.model {
            Model::Encoder(encoder) => return Ok(encoder.read(question).await?.values),
            Model::Bundle { engine, template } => (engine, *template),
        };
        let request = ReadRequest {
            prompt: prompt(template, question),
            deadline: Instant::now() + READ_MAX,
            stop: CancellationToken::new(),
        };
        Ok(engine.handle().read(request)?.finish().await?.values)
    }

    /// Frees the model. Programs must call this before they exit.
    pub async fn shut_down(&self) {
        match &self.model {
            Model::Bundle { engine, .. } => engine.shut_down().await,
            Model::Encoder(encoder) => encoder.shut_down().await,
        }
    }
}
