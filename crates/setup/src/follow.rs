//! Follows the settings of a running process: reads them again at SIGHUP, and when one of their files has other bytes.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use podium_ports::clock::Clock as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::SystemClock;
use crate::logging::set_log_filter;

/// Interval between two looks at the files. Their bytes are compared, so that a file that is replaced by a link, as Kubernetes does
/// with a `ConfigMap`, counts as well as one that is written.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How long changed files must stay the same before they are read, so that a file that is being written counts once it is complete.
const SETTLE: Duration = Duration::from_secs(1);

/// The settings that a running process follows.
#[derive(Clone, Debug)]
pub struct Followed {
    /// The files that the settings name and whose content counts.
    pub files: Vec<PathBuf>,
    /// The log filter.
    pub log: String,
}

/// The changed settings of a running process, for the code that applies them.
pub struct Changes<S>(watch::Receiver<Option<Arc<S>>>);

/// Where changed settings are announced.
pub struct Announcer<S>(watch::Sender<Option<Arc<S>>>);

/// A channel for changed settings. The receiver gets the last ones only.
pub fn changes<S>() -> (Announcer<S>, Changes<S>) {
    let (sender, receiver) = watch::channel(None);
    (Announcer(sender), Changes(receiver))
}

impl<S> Changes<S> {
    /// Waits for changed settings, which were checked as at a start. Never returns if nothing follows the settings.
    pub async fn next(&mut self) -> Arc<S> {
        loop {
            if self.0.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
            if let Some(settings) = self.0.borrow_and_update().clone() {
                return settings;
            }
        }
    }
}

/// Reads the settings again, each time that the process gets SIGHUP, or `config` or a followed file has changed. Valid settings are
/// applied as a whole: the log filter here, the rest by the receiver of `announcer`. Invalid ones are logged, and everything stays as
/// it is. Runs until it is dropped. Must be called inside a tokio runtime.
pub async fn follow_settings<S, E: Display>(
    config: Option<PathBuf>,
    mut followed: Followed,
    read: impl Fn() -> Result<(S, Followed), E>,
    announcer: Announcer<S>,
) {
    let Ok(mut hangups) = signal(SignalKind::hangup()) else { return };
    let contents = |followed: &Followed| -> Vec<_> {
        config.iter().chain(&followed.files).map(|file| content(file)).collect()
    };
    let mut seen = contents(&followed);
    loop {
        let reason = tokio::select! {
            _ = hangups.recv() => "SIGHUP",
            () = SystemClock.sleep(LOOK_EVERY) => {
                let now = contents(&followed);
                // A file that is missing for a moment is being replaced.
                let is_missing = seen.iter().zip(&now).any(|(seen, now)| seen.is_some() && now.is_none());
                if is_missing || now == seen {
                    continue;
                }
                SystemClock.sleep(SETTLE).await;
                if contents(&followed) != now {
                    continue;
                }
                "a file changed"
            }
        };
        // A change after this is noticed at the next look.
        seen = contents(&followed);
        match read() {
            Ok((settings, new)) => {
                if new.files != followed.files {
                    seen = contents(&new);
                }
                if new.log == followed.log {
                    info!(reason, log = new.log, "the log filter is unchanged");
                } else {
                    set_log_filter(&new.log);
                    info!(reason, log = new.log, before = followed.log, "the log filter changed");
                }
                followed = new;
                // The receiver is gone only while the process ends.
                announcer.0.send_replace(Some(Arc::new(settings)));
            }
            Err(error) => {
                warn!(reason, error = %error, "the settings are invalid: the earlier ones stay in use");
            }
        }
    }
}

fn content(file: &Path) -> Option<Vec<u8>> {
    std::fs::read(file).ok()
}
