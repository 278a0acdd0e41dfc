//! Client for Podium over its gRPC API.
#![doc = include_str!("../README.md")]
#![deny(missing_docs)]

mod answer;
mod builder;
mod client;
mod error;
mod live;
mod requests;
mod retry;
mod watch;

pub use answer::{Answer, AnswerPart};
pub use builder::{ClientBuilder, Keepalive};
pub use client::{Client, Created, Service};
pub use error::{CallError, Error, FieldViolation};
pub use retry::RetryPolicy;
pub use tonic::Code;
pub use watch::Watch;

/// The types and the plain client of package `podium.v1`, generated from `proto/`.
#[expect(clippy::all, clippy::pedantic, clippy::allow_attributes_without_reason, reason = "generated code")]
pub mod v1 {
    include!("generated/podium.v1.rs");
}
