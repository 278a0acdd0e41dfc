//! The adapters on a real server. `PODIUM_TEST_NATS_SERVER` names its program; `scripts/setup-nats` installs several versions.
#![expect(clippy::unwrap_used, reason = "a test's failure is a panic")]

mod live_outages;
mod live_stream;
mod queue_outages;
mod secured;
mod servers;
mod step_queue;
mod versions;
