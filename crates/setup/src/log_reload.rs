//! Follows the setting `log` of a running process: at SIGHUP, and when the settings file has other bytes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use podium_ports::clock::Clock as _;
use tokio::signal::unix::{SignalKind, signal};
use tracing::{info, warn};

use crate::SystemClock;
use crate::logging::set_log_filter;
use crate::settings::SettingsError;

/// Interval between two looks at the settings file. Its bytes are compared, so that a file that is replaced by a link, as Kubernetes
/// does with a `ConfigMap`, counts as well as one that is written.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Applies the log filter that `read` returns, each time that the process gets SIGHUP or `file` has changed. If the settings have
/// become invalid, this is logged and the filter stays. All other settings apply at the next start. Runs until it is dropped. Must be
/// called inside a tokio runtime.
pub async fn follow_log_setting(file: Option<PathBuf>, read: impl Fn() -> Result<String, SettingsError>) {
    let Ok(mut hangups) = signal(SignalKind::hangup()) else { return };
    let bytes = |file: &Option<PathBuf>| file.as_deref().and_then(content);
    let (mut seen, mut filter) = (bytes(&file), read().unwrap_or_default());
    loop {
        let reason = tokio::select! {
            _ = hangups.recv() => "SIGHUP",
            () = SystemClock.sleep(LOOK_EVERY) => {
                let now = bytes(&file);
                // A file that is missing for a moment is being replaced.
                if now.is_none() || now == seen {
                    continue;
                }
                "the settings file changed"
            }
        };
        seen = bytes(&file).or(seen);
        match read() {
            Ok(new) if new == filter => info!(reason, log = filter, "the log filter is unchanged"),
            Ok(new) => {
                set_log_filter(&new);
                info!(reason, log = new, before = filter, "the log filter changed");
                filter = new;
            }
            Err(error) => {
                warn!(reason, error = %error, "the settings are invalid: the log filter stays as it is");
            }
        }
    }
}

fn content(file: &Path) -> Option<Vec<u8>> {
    std::fs::read(file).ok()
}
