//! OpenAI Responses, without any state at the vendor: each request carries the whole conversation.

mod answer;
mod request;

use podium_domain::ids::WorkerId;
use podium_domain::pool::Worker;
use podium_ports::vendor::{AnswerForm, ChatRequest};
use reqwest::Url;

use self::answer::Commentary;
use crate::answer::Decoder;
use crate::shared_fields::below;

pub(crate) fn url(base: &Url) -> Url {
    below(base, &["responses"])
}

pub(crate) fn body(worker: &Worker, request: &ChatRequest) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec(&request::body(worker, request))
}

pub(crate) fn decoder(worker: WorkerId, form: &AnswerForm) -> Box<dyn Decoder> {
    let commentary = match form {
        AnswerForm::Text => Commentary::Answer,
        AnswerForm::JsonObject | AnswerForm::JsonSchema(_) | AnswerForm::Regex(_) => Commentary::Reasoning,
    };
    Box::new(answer::ResponsesDecoder::new(worker, commentary))
}
