//! The requests that wait for a batch.

use std::collections::HashSet;

use podium_domain::ids::RunId;
use podium_domain::time::Timestamp;

use super::refused_runs::{Handling, RefusedRuns};
use super::request::{Bounds, CommandError, Request};

/// Requests that are carried out together.
pub(super) struct Batch {
    pub(super) kind: Kind,
    /// The runs of the requests.
    pub(super) runs: HashSet<RunId>,
    pub(super) requests: Vec<Request>,
}

/// The reason why requests form a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// They are the oldest.
    Oldest,
    /// They are for one run that the store refused, alone or in a batch.
    Alone { is_refused: bool },
}

/// The requests that wait, and the batches in flight.
#[derive(Default)]
pub(super) struct Waiting {
    pub(super) requests: Vec<Request>,
    /// The runs of the batches in flight.
    in_flight: HashSet<RunId>,
    /// Batches in flight of the oldest requests.
    oldest: usize,
    /// Runs that are being tried alone.
    alone: usize,
    /// Number of these runs that were refused alone before.
    refused: usize,
}

impl Waiting {
    /// Whether more requests may wait. Many may wait for runs in flight, so their number is bounded.
    pub(super) fn has_capacity(&self, batch_max: usize) -> bool {
        self.requests.len() < batch_max
    }

    /// The next batch that may begin: a run that must be written alone, or the oldest requests. Requests for a run that must not be
    /// tried yet are answered with an error.
    pub(super) fn next(&mut self, bounds: Bounds, refused: &RefusedRuns, now: Timestamp) -> Option<Batch> {
        self.next_alone(refused, now).or_else(|| self.next_batch(bounds, refused, now))
    }

    fn next_alone(&mut self, refused: &RefusedRuns, now: Timestamp) -> Option<Batch> {
        if refused.is_empty() {
            return None;
        }
        let mut at = 0;
        while let Some(run) = self.requests.get(at).map(|request| request.run) {
            match refused.handling(run, now) {
                Handling::Later(error) => {
                    self.requests.remove(at).answer(Err(CommandError::Store(error)));
                }
                Handling::Alone { is_refused }
                    if !self.in_flight.contains(&run)
                        && RefusedRuns::has_capacity(is_refused, self.alone, self.refused) =>
                {
                    let is_of_run = |request: &mut Request| request.run == run;
                    let requests = self.requests.extract_if(.., is_of_run).collect();
                    return Some(self.begin(Kind::Alone { is_refused }, requests));
                }
                Handling::Alone { .. } | Handling::Together => at += 1,
            }
        }
        None
    }

    /// The oldest requests for runs that are not in flight, in their order.
    fn next_batch(&mut self, bounds: Bounds, refused: &RefusedRuns, now: Timestamp) -> Option<Batch> {
        if self.oldest >= bounds.batches.max(1) {
            return None;
        }
        let may_share = |request: &mut Request| {
            !self.in_flight.contains(&request.run)
                && matches!(refused.handling(request.run, now), Handling::Together)
        };
        let requests: Vec<_> = self.requests.extract_if(.., may_share).take(bounds.batch).collect();
        (!requests.is_empty()).then(|| self.begin(Kind::Oldest, requests))
    }

    /// Notes the runs of a batch as in flight.
    fn begin(&mut self, kind: Kind, requests: Vec<Request>) -> Batch {
        let runs: HashSet<_> = requests.iter().map(|request| request.run).collect();
        self.in_flight.extend(&runs);
        match kind {
            Kind::Oldest => self.oldest += 1,
            Kind::Alone { is_refused } => {
                self.alone += 1;
                self.refused += usize::from(is_refused);
            }
        }
        Batch { kind, runs, requests }
    }

    /// Notes the end of a batch. `again` are its requests to try again.
    pub(super) fn release(&mut self, kind: Kind, runs: &HashSet<RunId>, again: Vec<Request>) {
        self.in_flight.retain(|run| !runs.contains(run));
        self.requests.splice(..0, again);
        match kind {
            Kind::Oldest => self.oldest -= 1,
            Kind::Alone { is_refused } => {
                self.alone -= 1;
                self.refused -= usize::from(is_refused);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use podium_domain::run::Command;
    use podium_ports::clock::Ids as _;
    use podium_ports::store::StoreError;
    use podium_testkit::{SeededIds, TestClock};
    use tokio::sync::oneshot;

    use super::*;
    use crate::commit::request::Order;

    const NOW: Timestamp = TestClock::START;

    /// Commands for runs `a`, `b`, `a`, `c`, in this order.
    fn four() -> ([RunId; 3], Vec<Arc<Command>>, Waiting) {
        let ids = SeededIds::new(1);
        let [a, b, c] = [(); 3].map(|()| ids.run_id(NOW));
        let commands: Vec<_> = (0..4).map(|_| Arc::new(Command::Cancel)).collect();
        let requests =
            [a, b, a, c].into_iter().zip(&commands).map(|(run, command)| request(run, command)).collect();
        ([a, b, c], commands, Waiting { requests, ..Waiting::default() })
    }

    fn request(run: RunId, command: &Arc<Command>) -> Request {
        let (reply, _) = oneshot::channel();
        let order = Order { command: Arc::clone(command), then: None };
        Request { run, order, shortage: None, reply }
    }

    fn bounds(batch: usize) -> Bounds {
        Bounds { batch, batches: 2, waiting: 8 }
    }

    /// The indices of a batch's commands.
    fn places(commands: &[Arc<Command>], batch: &Batch) -> Vec<usize> {
        let place = |request: &Request| {
            commands.iter().position(|command| Arc::ptr_eq(command, &request.order.command)).unwrap()
        };
        batch.requests.iter().map(place).collect()
    }

    #[test]
    fn requests_for_the_runs_of_a_batch_wait_for_its_end() {
        let (_, commands, mut waiting) = four();
        let next = |waiting: &mut Waiting| waiting.next(bounds(2), &RefusedRuns::default(), NOW);
        let first = next(&mut waiting).unwrap();
        assert_eq!(places(&commands, &first), [0, 1]);
        let second = next(&mut waiting).unwrap();
        assert_eq!(places(&commands, &second), [3], "the run of command 2 is in flight");
        assert!(next(&mut waiting).is_none());
        waiting.release(second.kind, &second.runs, Vec::new());
        assert!(next(&mut waiting).is_none());
        waiting.release(first.kind, &first.runs, Vec::new());
        assert_eq!(places(&commands, &next(&mut waiting).unwrap()), [2]);
    }

    #[test]
    fn commands_for_one_run_share_a_batch_in_their_order() {
        let (_, commands, mut waiting) = four();
        let batch = waiting.next(bounds(8), &RefusedRuns::default(), NOW).unwrap();
        assert_eq!(places(&commands, &batch), [0, 1, 2, 3]);
        assert!(waiting.next(bounds(8), &RefusedRuns::default(), NOW).is_none());
    }

    fn refused() -> Arc<StoreError> {
        Arc::new(StoreError::Refused("refused by the test".into()))
    }

    #[test]
    fn the_runs_of_a_refused_batch_are_tried_alone() {
        let ([a, b, c], commands, mut waiting) = four();
        let register = RefusedRuns::default();
        let all = waiting.next(bounds(8), &register, NOW).unwrap();
        register.suspect([a, b, c].into_iter(), NOW);
        waiting.release(all.kind, &all.runs, all.requests);
        let alone: Vec<_> = std::iter::from_fn(|| waiting.next(bounds(8), &register, NOW)).collect();
        assert_eq!(
            alone.iter().map(|batch| places(&commands, batch)).collect::<Vec<_>>(),
            [vec![0, 2], vec![1], vec![3]]
        );
        // Two runs are written, one is refused.
        register.passed(a);
        register.passed(c);
        for batch in &alone {
            waiting.release(batch.kind, &batch.runs, Vec::new());
        }
        let mut now = NOW;
        for pause_ms in [500, 1_000, 2_000, 4_000, 8_000, 8_000] {
            register.refused(b, refused(), now);
            let just_before = now.after(Duration::from_millis(pause_ms - 1));
            let (reply, mut answer) = oneshot::channel();
            waiting.requests.push(Request { reply, ..request(b, &commands[1]) });
            waiting.requests.push(request(a, &commands[0]));
            let others = waiting.next(bounds(8), &register, just_before).unwrap();
            assert_eq!((places(&commands, &others), others.kind), (vec![0], Kind::Oldest));
            waiting.release(others.kind, &others.runs, Vec::new());
            assert!(matches!(answer.try_recv(), Ok(Err(CommandError::Store(_)))), "after {pause_ms}");

            now = now.after(Duration::from_millis(pause_ms));
            waiting.requests.push(request(b, &commands[1]));
            let again = waiting.next(bounds(8), &register, now).unwrap();
            assert_eq!(again.kind, Kind::Alone { is_refused: true });
            waiting.release(again.kind, &again.runs, Vec::new());
        }
        register.passed(b);
        waiting.requests.push(request(b, &commands[1]));
        assert_eq!(waiting.next(bounds(8), &register, now).unwrap().kind, Kind::Oldest);
    }

    #[test]
    fn few_runs_are_tried_alone_concurrently() {
        let ids = SeededIds::new(1);
        let runs: Vec<_> = (0..12).map(|_| ids.run_id(NOW)).collect();
        let command = Arc::new(Command::Cancel);
        let requests = runs.iter().map(|run| request(*run, &command)).collect();
        let (mut waiting, register) = (Waiting { requests, ..Waiting::default() }, RefusedRuns::default());
        register.suspect(runs.iter().copied(), NOW);
        for run in &runs[..6] {
            register.refused(*run, refused(), NOW);
        }
        let later = NOW.after(Duration::from_secs(1));
        let mut kinds =
            std::iter::from_fn(|| waiting.next(bounds(8), &register, later)).map(|batch| batch.kind);
        let (refused, suspected) = (Kind::Alone { is_refused: true }, Kind::Alone { is_refused: false });
        assert_eq!(kinds.by_ref().take(12).collect::<Vec<_>>(), [refused, suspected, suspected, suspected]);
    }
}
