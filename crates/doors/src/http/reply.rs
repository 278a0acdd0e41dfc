//! Errors in OpenAI's shape.

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use podium_api::ApiError;
use podium_api::openai::ErrorBody;
use podium_domain::ids::RunId;

/// The header that names the run behind a response.
pub(super) const RUN_ID: &str = "x-podium-run-id";
/// The header by which OpenAI's clients are told whether to repeat a request by themselves.
const SHOULD_RETRY: &str = "x-should-retry";
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// An error as a response.
#[derive(Debug)]
pub(super) struct Refusal {
    error: ApiError,
    run: Option<RunId>,
}

impl Refusal {
    /// The same, naming the run that it is about.
    pub(super) fn of_run(error: ApiError, run: RunId) -> Self {
        Self { error, run: Some(run) }
    }
}

impl From<ApiError> for Refusal {
    fn from(error: ApiError) -> Self {
        Self { error, run: None }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mapping = self.error.code.mapping();
        let status = StatusCode::from_u16(mapping.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, ErrorBody::new(&self.error).to_json()).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, JSON);
        headers.insert(SHOULD_RETRY, HeaderValue::from_static(if mapping.retry { "true" } else { "false" }));
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if let Some(run) = self.run {
            name_run(&mut response, run);
        }
        response
    }
}

/// A JSON body that is written already.
pub(super) fn json(body: String) -> Response {
    ([(CONTENT_TYPE, JSON)], body).into_response()
}

/// Adds the run's id to a response.
pub(super) fn name_run(response: &mut Response, run: RunId) {
    if let Ok(id) = HeaderValue::from_str(&run.to_string()) {
        response.headers_mut().insert(RUN_ID, id);
    }
}

#[cfg(test)]
mod tests {
    use podium_api::ErrorCode;

    use super::*;

    #[test]
    fn clients_are_told_not_to_pay_again_for_a_run_that_failed() {
        let run: RunId = "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap();
        let error = ApiError::new(ErrorCode::FinalStepFailed, "no answer");
        let response = Refusal::of_run(error, run).into_response();
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(response.headers()[SHOULD_RETRY], "false");
        assert_eq!(response.headers()[RUN_ID], run.to_string());
    }

    #[test]
    fn a_server_that_stops_says_when_to_come_back() {
        let response = Refusal::from(ApiError::new(ErrorCode::Stopping, "stopping")).into_response();
        assert_eq!(
            (&response.headers()[SHOULD_RETRY], &response.headers()[RETRY_AFTER]),
            (&HeaderValue::from_static("true"), &HeaderValue::from_static("1"))
        );
    }
}
