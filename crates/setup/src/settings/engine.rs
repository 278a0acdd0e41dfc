//! The settings of an engine's work.

use std::time::Duration;

use super::{Group, Setting, Values, values};

/// Most concurrent plans or steps of one process, per lane.
pub const SLOTS_MAX: u64 = 65_536;

/// Concurrent steps of a process, per lane.
pub const STEP_SLOTS: Setting<usize> = Setting::count(
    "step_slots",
    &(1..=SLOTS_MAX),
    "Most steps that one process runs concurrently for each vendor and tier. The pool's in_flight_max protects the vendor.",
)
.unit("steps")
.default("256");

/// How long runs are kept after their end; `None` means forever.
pub const RUNS_KEPT: Setting<Option<Duration>> = Setting::parsed(
    "runs_kept",
    Values::Form("days such as 30d, hours such as 12h, or forever"),
    |_, text| values::runs_kept(text),
    "How long runs are kept after their end. Each process removes older runs, so all processes of a cluster need the same \
     value.",
)
.default("30d");

/// Time for unfinished work at shutdown.
pub const DRAIN: Setting<Duration> = Setting::milliseconds(
    "drain_ms",
    &(0..=3_600_000),
    "Time that requests and calls under way get to finish after the signal to stop. Unfinished runs continue in another \
     process, or after the next start.",
)
.default("20000");

/// How runs are kept, and how a process stops.
pub const LIFETIME: Group = Group { title: "Runs and shutdown", keys: &[RUNS_KEPT.key, DRAIN.key] };

/// How much a process that calls workers does at once.
pub const STEPS: Group = Group { title: "Steps", keys: &[STEP_SLOTS.key] };
