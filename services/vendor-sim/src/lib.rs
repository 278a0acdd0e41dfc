//! A simulated vendor of language models for development and tests. It speaks the wire formats of OpenAI, Anthropic and
//! Google on loopback with scripted latency and faults. Its answers come from the small programs of `podium-demo-workers`,
//! which are not language models, or from files of recorded answers.
//!
//! - `http` implements the wire formats; `behaviour` scripts latency and faults; `calls` is the log for tests.
//! - [`VendorSim::start`] runs it within another process; the binary `vendor-sim` is a thin wrapper.

mod behaviour;
mod calls;
mod http;
mod options;
mod recorded;
mod script;
mod sim;

pub use behaviour::{
    Behaviour, BehaviourError, DELAY_MS_MAX, FAULTS_MAX, Fault, HUGE_BYTES_MAX, Milliseconds,
    STAMP_WORDS_MAX, ScriptedFault,
};
pub use calls::{CALLS_MAX, Call, Outcome};
pub use http::quota::{AccountLimit, AccountUse};
pub use options::{Arguments, OptionsError, run};
pub use podium_demo_workers::Model;
pub use recorded::{RECORDED_MAX, Recorded, RecordedFile};
pub use script::{REPLIES_MAX, ScriptedCall, ScriptedReply, Speaker, When};
pub use sim::{Exposure, GENERALIST_ACCURACY, Options, Running, StartError, VendorSim};
