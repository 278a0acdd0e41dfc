//! Errors, with the body that OpenAI's clients expect: `{"error": {message, type, param, code}}`. The other formats convert
//! it to their own.

use axum::{
    Json,
    http::{Method, StatusCode},
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};

use super::format::Format;

/// A vendor's error.
#[derive(Debug)]
pub(crate) struct ApiError {
    pub(super) status: StatusCode,
    kind: &'static str,
    pub(super) message: String,
    param: Option<String>,
    code: Option<&'static str>,
    pub(super) retry_after_s: Option<u64>,
}

impl ApiError {
    fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        Self { status, kind, message: message.into(), param: None, code: None, retry_after_s: None }
    }

    /// 400 that names the parameter.
    pub(crate) fn invalid(param: &str, message: impl Into<String>) -> Self {
        let error = Self::new(StatusCode::BAD_REQUEST, "invalid_request_error", message);
        Self { param: Some(param.to_owned()), ..error }
    }

    /// 400 about the body as a whole.
    pub(crate) fn invalid_body(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request_error", message)
    }

    /// 413.
    pub(crate) fn too_large() -> Self {
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "invalid_request_error",
            "The request body is larger than 8 MiB.",
        )
    }

    pub(crate) fn missing_key() -> Self {
        let message = "You didn't provide an API key. Send it as a bearer token in the Authorization header.";
        Self::new(StatusCode::UNAUTHORIZED, "invalid_request_error", message)
    }

    pub(crate) fn wrong_key() -> Self {
        let error =
            Self::new(StatusCode::UNAUTHORIZED, "invalid_request_error", "Incorrect API key provided.");
        Self { code: Some("invalid_api_key"), ..error }
    }

    pub(crate) fn unknown_model(model: &str) -> Self {
        let message = format!("The model `{model}` does not exist or you do not have access to it.");
        let error = Self::new(StatusCode::NOT_FOUND, "invalid_request_error", message);
        Self { code: Some("model_not_found"), ..error }
    }

    pub(crate) fn unknown_route(method: &Method, path: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "invalid_request_error", format!("Invalid URL ({method} {path})"))
    }

    pub(crate) fn wrong_method(method: &Method, path: &str) -> Self {
        let message = format!("Not allowed to {method} on {path}.");
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "invalid_request_error", message)
    }

    /// 429 with the time to wait, in all forms that vendors use.
    pub(crate) fn rate_limit(model: &str, retry_after_s: u64) -> Self {
        let message = format!(
            "Rate limit reached for {model} on requests per min (RPM). Please try again in {retry_after_s}s."
        );
        let error = Self::new(StatusCode::TOO_MANY_REQUESTS, "requests", message);
        Self { code: Some("rate_limit_exceeded"), retry_after_s: Some(retry_after_s), ..error }
    }

    /// The account has no credit.
    pub(super) fn unpaid(format: Format) -> Self {
        match format {
            Format::Chat | Format::Responses => {
                let message = "You exceeded your current quota, please check your plan and billing details.";
                let error = Self::new(StatusCode::TOO_MANY_REQUESTS, "insufficient_quota", message);
                Self { code: Some("insufficient_quota"), ..error }
            }
            Format::Messages => Self::invalid_body(
                "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to \
                 upgrade or purchase credits.",
            ),
            Format::Gemini => {
                let message = "Your prepayment credits are depleted. Please go to AI Studio to buy more.";
                Self::new(StatusCode::TOO_MANY_REQUESTS, "quota", message)
            }
        }
    }

    /// Billing is not set up.
    pub(super) fn billing_off(format: Format) -> Self {
        match format {
            Format::Chat => {
                let error = Self::new(StatusCode::PAYMENT_REQUIRED, "unknown_error", "Insufficient Balance");
                Self { code: Some("invalid_request_error"), ..error }
            }
            Format::Responses => {
                let message = "Your account is not active, please check your billing details on our website.";
                let error = Self::new(StatusCode::TOO_MANY_REQUESTS, "billing_not_active", message);
                Self { code: Some("billing_not_active"), ..error }
            }
            Format::Messages => {
                let message = "There is an issue with your billing or payment information.";
                Self::new(StatusCode::PAYMENT_REQUIRED, "billing_error", message)
            }
            Format::Gemini => {
                let message =
                    "This API method requires billing to be enabled. Please enable billing on the project.";
                Self::new(StatusCode::FORBIDDEN, "billing", message)
            }
        }
    }

    /// The body in OpenAI's form.
    pub(super) fn openai_body(&self) -> Value {
        json!({
            "error": { "message": self.message, "type": self.kind, "param": self.param, "code": self.code }
        })
    }

    /// The response in a wire format.
    pub(super) fn response(&self, format: Format) -> Response {
        let (status, body) = format.error(self);
        (status, format.error_headers(self), Json(body)).into_response()
    }

    pub(crate) fn server_error() -> Self {
        let message = "The server had an error while processing your request. Sorry about that!";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", message)
    }

    pub(crate) fn overloaded() -> Self {
        let message = "The engine is currently overloaded, please try again later.";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "service_unavailable_error", message)
    }
}

/// Used by the simulator's own routes.
impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        self.response(Format::Chat)
    }
}
