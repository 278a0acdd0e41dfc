//! Errors, and the headers of answers.

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use podium_api::ApiError;
use podium_api::openai::ErrorBody;
use podium_domain::ids::RunId;
use podium_domain::run::Run;
use podium_domain::trace::{TRACE_ID, TraceId};

use crate::connections::Unread;
use crate::error_mapping;

/// The header with the run id of a response.
pub(super) const RUN_ID: &str = "x-podium-run-id";
/// The header that tells OpenAI's clients whether to repeat a request by themselves.
pub(super) const SHOULD_RETRY: &str = "x-should-retry";
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The error of a response, for the layer that writes it in another format.
#[derive(Clone, Debug)]
pub(super) struct Refused(pub(super) ApiError);

/// An error as a response, in OpenAI's format.
#[derive(Debug)]
pub(super) struct Refusal {
    error: Box<ApiError>,
    run: Option<RunId>,
    trace: Option<TraceId>,
}

impl Refusal {
    /// The error of a run, whose id it adds.
    pub(super) fn of_run(error: ApiError, run: RunId) -> Self {
        Self { error: error.into(), run: Some(run), trace: None }
    }

    /// The error of a run, whose id and trace it adds.
    pub(super) fn of_loaded_run(error: ApiError, run: &Run) -> Self {
        Self { error: error.into(), run: Some(run.id()), trace: Some(run.trace_id()) }
    }

    /// The same refusal with another description of its error.
    pub(super) fn with(self, describe: fn(ApiError) -> ApiError) -> Self {
        Self { error: describe(*self.error).into(), ..self }
    }
}

impl From<ApiError> for Refusal {
    fn from(error: ApiError) -> Self {
        Self { error: error.into(), run: None, trace: None }
    }
}

/// Renames the fields of an error as the body of this API names them.
fn with_http_names(mut error: ApiError) -> ApiError {
    for problem in &mut error.fields {
        if let Some(name) = problem.field.strip_prefix("policy.") {
            problem.field = format!("podium.{name}");
        } else if let Some(name) = problem.field.strip_prefix("sampling.") {
            problem.field = name.to_owned();
        }
    }
    error
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let error = with_http_names(*self.error);
        let mapping = error.code.mapping();
        let body = ErrorBody::new(&error).to_json();
        let mut response = (status_of(mapping.status), body).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, JSON);
        headers.insert(SHOULD_RETRY, HeaderValue::from_static(if mapping.retry { "true" } else { "false" }));
        if let Some(time) = error.retry_after() {
            // In whole seconds, and not before the time.
            let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
            headers.insert(RETRY_AFTER, seconds.into());
        }
        if let Some(run) = self.run {
            name_run(&mut response, run);
        }
        if let Some(trace) = self.trace {
            name_trace(&mut response, trace);
        }
        response.extensions_mut().insert(Refused(error));
        response
    }
}

/// A status of the table of errors.
pub(super) fn status_of(status: u16) -> StatusCode {
    StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// A response with a JSON body.
pub(super) fn json(body: String) -> Response {
    ([(CONTENT_TYPE, JSON)], body).into_response()
}

/// Adds the run's id to a response.
pub(super) fn name_run(response: &mut Response, run: RunId) {
    if let Ok(id) = HeaderValue::from_str(&run.to_string()) {
        response.headers_mut().insert(RUN_ID, id);
    }
}

/// Adds the id of a run's trace to a response.
pub(super) fn name_trace(response: &mut Response, trace: TraceId) {
    if let Ok(id) = HeaderValue::from_str(&trace.to_string()) {
        response.headers_mut().insert(TRACE_ID, id);
    }
}

/// A run's response with a JSON body.
pub(super) fn run_json(run: &Run, body: String) -> Response {
    let mut response = json(body);
    name_run(&mut response, run.id());
    name_trace(&mut response, run.trace_id());
    response
}

/// A run's response with a JSON body, which counts as unread until the client has read it.
pub(super) fn unread_json(run: &Run, body: String, unread: &Unread) -> Result<Response, Refusal> {
    let held = unread.hold(body.len());
    let held = held.map_err(|_| Refusal::of_loaded_run(error_mapping::overloaded(run.id()), run))?;
    let mut response = run_json(run, body);
    response.extensions_mut().insert(held);
    Ok(response)
}

#[cfg(test)]
mod tests {
    use podium_api::ErrorCode;

    use super::*;

    #[test]
    fn an_error_names_fields_as_http_clients_write_them() {
        let field = |field: &str| {
            with_http_names(ApiError::on_field(ErrorCode::InvalidValue, field, "x")).fields.remove(0).field
        };
        assert_eq!(field("policy.workers_allowed"), "podium.workers_allowed");
        assert_eq!(field("sampling.temperature"), "temperature");
        assert_eq!(field("messages[0].role"), "messages[0].role");
    }

    #[test]
    fn a_temporary_error_says_when_to_retry() {
        let codes = [
            ErrorCode::WorkerRateLimited,
            ErrorCode::TooManyStreams,
            ErrorCode::Overloaded,
            ErrorCode::Unavailable,
        ];
        for code in codes {
            let response = Refusal::from(ApiError::new(code, "later")).into_response();
            assert!([429, 503].contains(&response.status().as_u16()));
            assert!(response.headers().contains_key(RETRY_AFTER), "{code:?}");
        }
    }

    #[test]
    fn a_failed_run_is_not_retried_by_clients() {
        let run: RunId = "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap();
        let error = ApiError::new(ErrorCode::FinalStepFailed, "no answer");
        let response = Refusal::of_run(error, run).into_response();
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(response.headers()[SHOULD_RETRY], "false");
        assert_eq!(response.headers()[RUN_ID], run.to_string());
    }

    #[test]
    fn a_stopping_server_says_when_to_retry() {
        let response = Refusal::from(ApiError::new(ErrorCode::Stopping, "stopping")).into_response();
        assert_eq!(
            (&response.headers()[SHOULD_RETRY], &response.headers()[RETRY_AFTER]),
            (&HeaderValue::from_static("true"), &HeaderValue::from_static("1"))
        );
    }
}
