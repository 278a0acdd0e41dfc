//! CPU time of processes, from `/proc`.

use std::collections::HashMap;
use std::fs;

use anyhow::{Context, Result};

/// The unit in which Linux reports CPU time to programs.
const TICKS_PER_SECOND: f64 = 100.0;

/// CPU seconds of each of these processes and all below it, those that have ended and were waited for included.
pub(crate) fn seconds_of(processes: &[(String, u32)]) -> Result<Vec<f64>> {
    let mut known = HashMap::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        // It may have ended by now.
        if let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) {
            known.insert(pid, parent_and_ticks(&stat).context("reading /proc")?);
        }
    }
    let total = |root: u32| {
        let (mut ticks, mut todo) = (0, vec![root]);
        while let Some(pid) = todo.pop() {
            ticks += known.get(&pid).map_or(0, |(_, ticks)| *ticks);
            todo.extend(known.iter().filter(|(_, (parent, _))| *parent == pid).map(|(child, _)| *child));
        }
        f64::from(ticks) / TICKS_PER_SECOND
    };
    Ok(processes.iter().map(|(_, pid)| total(*pid)).collect())
}

fn parent_and_ticks(stat: &str) -> Option<(u32, u32)> {
    // The name, in parentheses, may hold anything.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = fields.get(11..15)?.iter().filter_map(|field| field.parse::<u32>().ok()).sum();
    Some((fields.get(1)?.parse().ok()?, ticks))
}
