//! The state of tasks that a store in memory keeps besides the events: their lanes, and which are published.

use std::collections::BTreeMap;
use std::time::Duration;

use podium_domain::ids::{RunId, TenantId};
use podium_domain::run::{TaskRef, TaskState};
use podium_domain::time::Timestamp;
use podium_ports::queue::Lane;
use podium_ports::store::{Again, Commit, LaneLoad, PlacedTask, PublishBy, ReadyTask};

/// The ready and running tasks of all runs.
#[derive(Clone, Debug, Default)]
pub struct TaskRows {
    rows: BTreeMap<(RunId, TaskRef), TaskRow>,
}

#[derive(Clone, Debug)]
struct TaskRow {
    lane: Lane,
    tenant: TenantId,
    /// Attempts when it became ready; distinguishes one ready period from the next.
    attempts: u32,
    state: RowState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RowState {
    Backlog { since: Timestamp },
    Told { since: Timestamp, until: Timestamp },
    Running,
}

impl TaskRows {
    /// Updates the rows after a commit. A task that was already ready keeps its row.
    pub fn written(&mut self, commit: &Commit, dispatch_grace: Duration) {
        let (run, tenant) = (commit.after.id(), &commit.after.spec().tenant);
        for PlacedTask { id, task, place } in commit.tasks() {
            let (key, attempts) = ((run, id), task.attempt_number());
            let state = match (&task.state, place.publish_by) {
                (TaskState::Ready { not_before }, PublishBy::Writer) => {
                    RowState::Told { since: *not_before, until: not_before.after(dispatch_grace) }
                }
                (TaskState::Ready { not_before }, PublishBy::Dispatcher) => {
                    RowState::Backlog { since: *not_before }
                }
                (TaskState::Running { .. }, _) => RowState::Running,
                _ => {
                    self.rows.remove(&key);
                    continue;
                }
            };
            let is_known = |row: &TaskRow| {
                row.attempts == attempts && (row.state == RowState::Running) == (state == RowState::Running)
            };
            if !self.rows.get(&key).is_some_and(is_known) {
                let (lane, tenant) = (place.lane.clone(), tenant.clone());
                self.rows.insert(key, TaskRow { lane, tenant, attempts, state });
            }
        }
    }

    /// Published tasks that nobody claimed by `now`, at most `limit`, of runs that are not in `except`. They count as published
    /// until the time that `again` gives.
    pub fn tell_again(
        &mut self,
        again: Again,
        now: Timestamp,
        limit: u32,
        except: &[RunId],
    ) -> Vec<ReadyTask> {
        let mut ready = Vec::new();
        for (&(run, task), row) in &mut self.rows {
            if let RowState::Told { since, until } = row.state
                && until <= now
                && !except.contains(&run)
                && ready.len() < limit as usize
            {
                row.state = RowState::Told { since, until: again.of(since) };
                ready.push(ReadyTask { run, task, lane: row.lane.clone() });
            }
        }
        ready
    }

    /// Lanes with a backlog.
    pub fn backlogs(&self) -> Vec<Lane> {
        let waiting = self.rows.values().filter(|row| matches!(row.state, RowState::Backlog { .. }));
        let lanes: std::collections::BTreeSet<_> = waiting.map(|row| row.lane.clone()).collect();
        lanes.into_iter().collect()
    }

    /// As [`podium_ports::store::TaskBoard::lane_loads`].
    pub fn loads(&self) -> Vec<LaneLoad> {
        let mut loads = BTreeMap::new();
        for row in self.rows.values() {
            let load = loads.entry(row.lane.to_string()).or_insert_with_key(|lane| LaneLoad {
                lane: lane.clone(),
                backlog: 0,
                published: 0,
                running: 0,
                oldest: None,
            });
            let since = match row.state {
                RowState::Backlog { since } => {
                    load.backlog += 1;
                    since
                }
                RowState::Told { since, .. } => {
                    load.published += 1;
                    since
                }
                RowState::Running => {
                    load.running += 1;
                    continue;
                }
            };
            load.oldest = Some(load.oldest.map_or(since, |oldest| oldest.min(since)));
        }
        loads.into_values().collect()
    }

    /// As [`podium_ports::store::TaskBoard::take`].
    pub fn take(
        &mut self,
        lane: &Lane,
        now: Timestamp,
        again_at: Timestamp,
        limit: u32,
    ) -> Vec<(RunId, TaskRef)> {
        let in_lane = || self.rows.iter().filter(|(_, row)| row.lane == *lane);
        let mut places: BTreeMap<&TenantId, u64> = BTreeMap::new();
        for (_, row) in in_lane().filter(|(_, row)| !matches!(row.state, RowState::Backlog { .. })) {
            *places.entry(&row.tenant).or_default() += 1;
        }
        let mut backlog: Vec<_> = in_lane()
            .filter_map(|(key, row)| match row.state {
                RowState::Backlog { since } if since <= now => Some((since, *key, &row.tenant)),
                _ => None,
            })
            .collect();
        backlog.sort_unstable();
        let mut queue: Vec<_> = backlog
            .into_iter()
            .map(|(since, key, tenant)| {
                let place = places.entry(tenant).or_default();
                *place += 1;
                (*place, since, key)
            })
            .collect();
        queue.sort_unstable();
        queue.truncate(limit as usize);
        for (_, since, key) in &queue {
            if let Some(row) = self.rows.get_mut(key) {
                row.state = RowState::Told { since: *since, until: again_at };
            }
        }
        queue.into_iter().map(|(.., key)| key).collect()
    }

    /// As [`podium_ports::store::TaskBoard::put_back`].
    pub fn put_back(&mut self, tasks: &[(RunId, TaskRef)]) {
        for key in tasks {
            if let Some(row) = self.rows.get_mut(key)
                && let RowState::Told { since, .. } = row.state
            {
                row.state = RowState::Backlog { since };
            }
        }
    }
}
