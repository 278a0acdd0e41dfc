//! Requests that a store refuses: reading a run of a newer version, and writing a locked row.

use podium_domain::ids::RunId;
use podium_ports::store::{Commit, StoreError};

use crate::mutation::Mutation;
use crate::trace::note;
use crate::world::Core;

impl Core {
    /// Whether the node cannot read the run: one run in three has events that an older version does not know.
    fn is_unreadable(&self, node: usize, run: RunId) -> bool {
        let is_newer = run.as_uuid().as_bytes().last().is_some_and(|last| last % 3 == 0);
        is_newer && (self.old == Some(node) || self.is_mutated(Mutation::UnreadableRuns))
    }

    /// Fails if the node cannot read one of the runs.
    pub(crate) fn must_be_readable(&mut self, node: usize, runs: &[RunId]) -> Result<(), StoreError> {
        let is_there = |run: &&RunId| self.store.rows.contains_key(*run) && self.is_unreadable(node, **run);
        let Some(run) = runs.iter().find(is_there).copied() else { return Ok(()) };
        self.count("read by an old version");
        note!(self, "node {node}: run {run} is of a newer version");
        Err(StoreError::Inconsistent { run, source: "a newer version wrote it".into() })
    }

    /// Fails if the row of one of the runs is locked. Then no run is written.
    pub(crate) fn must_not_be_locked(&mut self, commits: &[Commit]) -> Result<(), StoreError> {
        let rate = self.rates.row_locked;
        // A run that is about to be created has no row yet.
        for commit in commits.iter().filter(|commit| !commit.is_first()) {
            let run = commit.after.id();
            if self.dice.chance(rate) {
                let until = self.now_ms + self.dice.between(100, 4_000);
                self.locked.insert(run, until);
            }
            if self.locked.get(&run).is_some_and(|until| self.now_ms < *until) {
                self.count("row locked");
                note!(self, "the row of run {run} is locked");
                return Err(StoreError::Refused("the row is locked".into()));
            }
        }
        Ok(())
    }
}
