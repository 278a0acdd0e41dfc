//! OpenAI Responses, without any state at the vendor: each request carries the whole conversation.

mod answer;
mod request;

use podium_domain::pool::{TokenLimitField, Worker};
use podium_ports::vendor::{AnswerForm, ChatRequest};
use reqwest::Url;

use self::answer::Commentary;
use super::Format;
use crate::answer::Decoder;
use crate::shared_fields::below;

pub(super) struct OpenaiResponses;

impl Format for OpenaiResponses {
    fn url(&self, base: &Url, _worker: &Worker) -> Url {
        below(base, &["responses"])
    }

    fn body(
        &self,
        worker: &Worker,
        request: &ChatRequest,
        _limit: TokenLimitField,
    ) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(&request::body(worker, request))
    }

    fn decoder(&self, worker: &Worker, request: &ChatRequest) -> Box<dyn Decoder> {
        let commentary = match request.answer {
            AnswerForm::Text => Commentary::Answer,
            AnswerForm::JsonObject | AnswerForm::JsonSchema(_) | AnswerForm::Regex(_) => {
                Commentary::Reasoning
            }
        };
        Box::new(answer::ResponsesDecoder::new(worker.id.clone(), commentary))
    }
}
