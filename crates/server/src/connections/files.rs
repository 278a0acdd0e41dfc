//! The share of a process's open files that connections may use.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Most connections if the settings name no number.
const CONNECTIONS_MAX: usize = 16_384;

/// Raises the soft limit of open files to the hard one, and returns the limit of connections: the wanted number, but at most
/// half of the files. The store, calls of workers and everything else use the other half.
pub(super) fn connections_max(wanted: Option<usize>) -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // If the limit cannot be raised, the current one applies.
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let files = if raised.is_ok() { maximum } else { current };
    let files = files.map_or(usize::MAX, |files| usize::try_from(files).unwrap_or(usize::MAX));
    within(wanted, files)
}

fn within(wanted: Option<usize>, files: usize) -> usize {
    let most = (files / 2).max(1);
    match wanted {
        Some(wanted) if wanted > most => {
            tracing::warn!(
                connections_max = wanted,
                files,
                "the limit of open files allows {most} connections only; raise it with `ulimit -n`"
            );
            most
        }
        Some(wanted) => wanted.max(1),
        None => most.min(CONNECTIONS_MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_get_at_most_half_of_the_open_files() {
        assert_eq!(within(None, 200), 100);
        assert_eq!(within(None, 1 << 20), CONNECTIONS_MAX);
        assert_eq!(within(Some(50), 200), 50);
        assert_eq!(within(Some(150), 200), 100);
        assert_eq!(within(None, 0), 1);
    }
}
