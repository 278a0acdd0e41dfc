//! The types of all APIs: the gRPC types of `proto/`, OpenAI's and Anthropic's wire types, their conversions from and to the
//! domain, and the table of errors that all report.
//!
//! This crate opens no connection; `crates/server` does.
#![deny(missing_docs)]

pub mod anthropic;
mod attempts;
mod call_queue;
mod codec;
mod error;
mod events;
mod field;
mod finish;
mod image;
mod json;
mod link;
mod model;
mod new_run;
pub mod openai;
pub mod openapi;
mod parts;
mod pdf;
mod podium_object;
mod proto_json;
mod rule;
mod runs;
mod stream;
mod tools;

pub use attempts::AttemptNumbers;
pub use codec::{SizedCodec, SizedEncoder};
pub use error::{ApiError, ErrorCode, FieldProblem, Mapping, Problems};
pub use events::event;
pub use model::{Family, ModelName, NotServed, ServedModels, UnknownModel};
pub use new_run::{NewRun, stored_messages, tool_results};
pub use proto_json::watch_event;
pub use runs::timestamp;
pub use stream::{StreamEvent, StreamEvents};

/// The types and services of package `podium.v1`, as `proto/` defines and describes them.
#[expect(
    clippy::all,
    clippy::pedantic,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    reason = "generated code"
)]
pub mod v1 {
    tonic::include_proto!("podium.v1");
}

/// The types and services of packages `podium.training`, for trainers of conductors.
pub mod training {
    /// Package `podium.training.v1`, as `proto/` defines and describes it.
    #[expect(
        clippy::pedantic,
        clippy::allow_attributes,
        clippy::allow_attributes_without_reason,
        reason = "generated code"
    )]
    pub mod v1 {
        tonic::include_proto!("podium.training.v1");
    }
}

/// The encoded descriptors of package `podium.v1`, for reflection.
pub const FILE_DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/podium.descriptors.bin"));
