//! CPU time of this process and of its descendants, by the name of the program, and memory of one process.

use std::collections::{BTreeMap, HashMap};
use std::fs;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::rounded;

/// Milliseconds of one tick in `/proc/*/stat`: Linux always reports 100 ticks a second, independent of the kernel's timer.
const TICK_MS: u64 = 10;
/// Name of this process in the result.
const OWN_NAME: &str = "client";

/// Milliseconds of CPU so far, by program. The time of a process that has ended is its parent's, if the parent waited for it.
#[derive(Clone, Debug, Default)]
pub struct CpuTimes {
    ms: BTreeMap<String, u64>,
}

struct Process {
    parent: u32,
    name: String,
    ticks: u64,
}

impl CpuTimes {
    /// Reads `/proc`.
    pub fn read() -> Result<Self> {
        let own = std::process::id();
        let mut processes = HashMap::new();
        for entry in fs::read_dir("/proc")? {
            let name = entry?.file_name();
            let Some(id) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
            // One that has just ended cannot be read.
            if let Ok(text) = fs::read_to_string(format!("/proc/{id}/stat")) {
                let process =
                    parse(&text).with_context(|| format!("/proc/{id}/stat cannot be parsed: {text}"))?;
                processes.insert(id, process);
            }
        }
        let mut ms: BTreeMap<String, u64> = BTreeMap::new();
        for (id, process) in processes.iter().filter(|(id, _)| is_below(&processes, **id, own)) {
            let name = if *id == own { OWN_NAME.to_owned() } else { process.name.clone() };
            *ms.entry(name).or_default() += process.ticks * TICK_MS;
        }
        Ok(Self { ms })
    }

    /// The usage between two readings.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let since = |(name, ms): (&String, &u64)| {
            (name.clone(), ms.saturating_sub(before.ms.get(name).copied().unwrap_or_default()))
        };
        Self { ms: self.ms.iter().map(since).collect() }
    }

    /// Milliseconds of CPU for each run, by program.
    pub fn ms_per_run(&self, runs: u32) -> Value {
        let each =
            |ms: u64| json!(rounded(f64::from(u32::try_from(ms).unwrap_or(u32::MAX)) / f64::from(runs)));
        let programs = self.ms.iter().filter(|(_, ms)| **ms > 0);
        Value::Object(programs.map(|(name, ms)| (name.clone(), each(*ms))).collect())
    }
}

fn is_below(processes: &HashMap<u32, Process>, id: u32, ancestor: u32) -> bool {
    let mut at = id;
    while at != ancestor {
        match processes.get(&at) {
            Some(process) if process.parent != at && process.parent != 0 => at = process.parent,
            _ => return false,
        }
    }
    true
}

/// Bytes of memory that a process has resident. 0 if it has ended.
pub fn resident_bytes(pid: u32) -> u64 {
    const PAGE_BYTES: u64 = 4096;
    let statm = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or_default()
        * PAGE_BYTES
}

/// `id (name) state parent … utime stime cutime cstime …`, where the name may hold anything.
fn parse(stat: &str) -> Option<Process> {
    let (before, after) = stat.rsplit_once(')')?;
    let (_, name) = before.split_once('(')?;
    let fields: Vec<_> = after.split_whitespace().collect();
    let number = |place: usize| fields.get(place)?.parse::<u64>().ok();
    let ticks = (11..15).map(number).sum::<Option<u64>>()?;
    Some(Process { parent: u32::try_from(number(1)?).ok()?, name: name.to_owned(), ticks })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_whatever_its_name() {
        let stat = "42 (a) b) S 7 42 42 0 -1 4194560 1 2 3 4 100 20 3 4 20 0 1 0 9 0 0\n";
        let process = parse(stat).unwrap();
        assert_eq!((process.parent, process.name.as_str(), process.ticks), (7, "a) b", 127));
        assert!(parse("42 (a) S").is_none());
    }

    #[test]
    fn the_own_process_is_counted_and_grows() {
        let before = CpuTimes::read().unwrap();
        assert!(before.ms.contains_key(OWN_NAME));
        let later = CpuTimes { ms: BTreeMap::from([(OWN_NAME.to_owned(), before.ms[OWN_NAME] + 500)]) };
        assert_eq!(later.since(&before).ms_per_run(100)[OWN_NAME], json!(5.0));
    }
}
