//! The keys of `podium`.

use std::path::PathBuf;

use podium_planning::{CONDUCTORS, HARDWARE, LOCAL_MODEL};
use podium_setup::settings::client_limits::CLIENT_LIMITS;
use podium_setup::settings::engine::{DRAIN, LIFETIME, STEP_SLOTS, STEPS};
use podium_setup::settings::listeners::API_LISTENERS;
use podium_setup::settings::log::{LOG, LOGGING};
use podium_setup::settings::step_cache::STEP_CACHE_KEYS;
use podium_setup::settings::tls::TLS;
use podium_setup::settings::{FlagKeys, Group, ProgramKeys, Setting, Values};
use podium_telemetry::TELEMETRY;

use super::PoolChoice;

/// The data folder.
pub(super) const DATA: Setting<PathBuf> =
    Setting::path("data", "FOLDER", "The folder that keeps the runs, keys and budgets.")
        .optional("/var/lib/podium", "podium in XDG_DATA_HOME, which is ~/.local/share by default");

/// The pool.
pub(super) const POOL: Setting<PoolChoice> = Setting::parsed(
    "pool",
    Values::Form("FILE or demo"),
    |_, text| match text {
        "" => Err("is empty, it must be `demo` or a pool file".to_owned()),
        "demo" => Ok(PoolChoice::Demo),
        path => Ok(PoolChoice::File(path.into())),
    },
    "The workers: a pool file, or demo for simulated ones.",
)
.default("demo");

/// All keys of the server. The other commands have flags for some of them.
pub(crate) fn keys() -> ProgramKeys {
    let groups = [
        API_LISTENERS,
        TLS,
        CLIENT_LIMITS,
        Group { title: "Workers", keys: &[POOL.key] },
        Group { title: "Data", keys: &[DATA.key] },
        CONDUCTORS,
        LOCAL_MODEL,
        HARDWARE,
        STEPS,
        STEP_CACHE_KEYS,
        LIFETIME,
        TELEMETRY,
        LOGGING,
    ];
    ProgramKeys::new("podium serve", &groups)
        .replace(
            STEP_SLOTS.key.optional("1024", "1024, or the largest in_flight_max of the pool if that is more"),
        )
        .replace(DRAIN.key.with_default("10000"))
        .replace(LOG.key.optional("info", "info for a server, warn for other commands"))
}

/// The flags of `podium serve`.
#[derive(Clone, Debug)]
pub(crate) enum ServerFlags {}

impl FlagKeys for ServerFlags {
    fn keys() -> ProgramKeys {
        keys()
    }

    fn has(_: &str) -> bool {
        true
    }
}

/// The flags of a command with an engine.
#[derive(Clone, Debug)]
pub(crate) enum EngineFlags {}

impl FlagKeys for EngineFlags {
    fn keys() -> ProgramKeys {
        keys()
    }

    fn has(key: &str) -> bool {
        ["data", "pool", "conductor", "conductor_next", "conductor_next_share", "log"].contains(&key)
    }
}

/// The flags of a command that reads a data folder.
#[derive(Clone, Debug)]
pub(crate) enum DataFlags {}

impl FlagKeys for DataFlags {
    fn keys() -> ProgramKeys {
        keys()
    }

    fn has(key: &str) -> bool {
        ["data", "log"].contains(&key)
    }
}
