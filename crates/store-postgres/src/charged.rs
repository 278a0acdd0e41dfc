//! Creating runs that are charged to budgets and appending to them, each batch in one statement that also books what it adds.
//!
//! A budget's row is locked for as long as a statement takes that charges it, so that who comes second sees what the first one
//! booked. Runs without budgets never come here.

use std::collections::{HashMap, HashSet};

use podium_domain::budget::Shortage;
use podium_domain::ids::RunId;
use podium_domain::money::Cost;
use podium_ports::store::{Commit, Conflict, Created, StoreError, Unwritten};
use podium_ports::stored::{Damage, FORMAT, unsigned};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::Store;
use crate::call::Call;
use crate::columns::{Batch, ChargeColumns};
use crate::write::{CREATE_TRIES_MAX, FindCreated, Vanishing};

/// What became of a batch: the runs that were written, and why others were not. Of the rest, others were first.
struct Outcome {
    written: HashSet<Uuid>,
    refused: HashMap<Uuid, Refused>,
}

/// A run that was not written for want of room.
enum Refused {
    /// There is none for it, whatever becomes of the other runs of its batch.
    Short(Shortage),
    /// There is none if the runs before it in the batch are written.
    Crowded,
    /// The period has just begun: the budget has no row for it yet.
    Unopened,
}

struct Row {
    run_id: Uuid,
    payer: Option<String>,
    cap: Option<i64>,
    spent: Option<i64>,
    reserved: Option<i64>,
    asked: Option<i64>,
}

impl Outcome {
    fn of(rows: Vec<Row>) -> Result<Self, StoreError> {
        let mut outcome = Self { written: HashSet::new(), refused: HashMap::new() };
        for row in rows {
            let run = row.run_id;
            let Some(refused) = row.refused()? else {
                outcome.written.insert(run);
                continue;
            };
            // What is certain says more.
            if !matches!(outcome.refused.get(&run), Some(Refused::Short(_))) {
                outcome.refused.insert(run, refused);
            }
        }
        Ok(outcome)
    }
}

impl Row {
    fn refused(self) -> Result<Option<Refused>, StoreError> {
        let Some(payer) = self.payer else { return Ok(None) };
        let (Some(spent), Some(reserved)) = (self.spent, self.reserved) else {
            return Ok(Some(Refused::Unopened));
        };
        let (cap, asked) = (self.cap.unwrap_or(i64::MAX), self.asked.unwrap_or_default());
        if spent.saturating_add(reserved).saturating_add(asked) <= cap {
            return Ok(Some(Refused::Crowded));
        }
        let payer = payer.parse().map_err(|_| {
            Damage::Column { column: "budgets.payer", value: payer }.of(RunId::new(self.run_id))
        })?;
        let cost = |nano| Cost::from_nano_usd(unsigned(nano));
        let (cap, spent) = (cost(cap), cost(spent));
        let shortage = Shortage { payer, cap, spent, reserved: cost(reserved), asked: cost(asked) };
        Ok(Some(Refused::Short(shortage)))
    }
}

pub(crate) async fn create(
    store: &Store,
    runs: &[Commit],
) -> Result<Vec<Result<Created, Shortage>>, StoreError> {
    let mut created = Vec::with_capacity(runs.len());
    let (mut outcome, mut found) = create_batch(store, runs).await?;
    for commit in runs {
        let id = *commit.after.id().as_uuid();
        // Alone, it is not crowded out.
        if matches!(outcome.refused.get(&id), Some(Refused::Crowded | Refused::Unopened)) {
            (outcome, found) = {
                let (alone, known) = create_batch(store, std::slice::from_ref(commit)).await?;
                (merged(outcome, alone, id), found.into_iter().chain(known).collect())
            };
        }
        created.push(match (found.get(&id), outcome.refused.remove(&id)) {
            (Some(found), _) if *found != id => Ok(Created::Existing(RunId::new(*found))),
            (None, Some(Refused::Short(shortage))) => Err(shortage),
            _ if outcome.written.contains(&id) || found.contains_key(&id) => Ok(Created::New),
            _ => return Err(StoreError::Unavailable(Box::new(Vanishing))),
        });
    }
    Ok(created)
}

fn merged(mut all: Outcome, alone: Outcome, id: Uuid) -> Outcome {
    all.refused.remove(&id);
    all.refused.extend(alone.refused);
    all.written.extend(alone.written);
    all
}

/// Creates what can be; and tells, of what was not, which runs were there before.
async fn create_batch(store: &Store, runs: &[Commit]) -> Result<(Outcome, HashMap<Uuid, Uuid>), StoreError> {
    let batch = Batch::new(runs, store.options.dispatch_grace)?;
    let mut found = HashMap::new();
    let mut tries = 0;
    loop {
        tries += 1;
        let outcome = Outcome::of(store.call(&CreateCharged(&batch)).await?)?;
        if outcome.refused.values().any(|refused| matches!(refused, Refused::Unopened))
            && tries < CREATE_TRIES_MAX
        {
            store.call(&OpenSums(&batch.charges)).await?;
            continue;
        }
        if batch.runs.ids.iter().all(|id| outcome.written.contains(id)) {
            return Ok((outcome, found));
        }
        found.extend(store.call(&FindCreated(&batch.runs)).await?);
        let is_settled =
            |id| outcome.written.contains(id) || outcome.refused.contains_key(id) || found.contains_key(id);
        if batch.runs.ids.iter().all(is_settled) || tries >= CREATE_TRIES_MAX {
            return Ok((outcome, found));
        }
    }
}

pub(crate) async fn commit(
    store: &Store,
    commits: &[Commit],
) -> Result<Vec<Result<(), Unwritten>>, StoreError> {
    let mut outcome = append(store, commits).await?;
    let mut results = Vec::with_capacity(commits.len());
    for commit in commits {
        let id = *commit.after.id().as_uuid();
        if matches!(outcome.refused.get(&id), Some(Refused::Crowded | Refused::Unopened)) {
            let alone = append(store, std::slice::from_ref(commit)).await?;
            outcome = merged(outcome, alone, id);
        }
        results.push(match outcome.refused.remove(&id) {
            Some(Refused::Short(shortage)) => Err(Unwritten::OverBudget(shortage)),
            // A second commit to the same run was not even tried.
            None if outcome.written.remove(&id) => Ok(()),
            _ => Err(Unwritten::Conflict(Conflict)),
        });
    }
    Ok(results)
}

async fn append(store: &Store, commits: &[Commit]) -> Result<Outcome, StoreError> {
    let batch = Batch::new(commits, store.options.dispatch_grace)?;
    Outcome::of(store.call(&AppendCharged(&batch)).await?)
}

struct OpenSums<'b>(&'b ChargeColumns);

impl Call for OpenSums<'_> {
    type Answer = ();

    async fn ask(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        sqlx::query_file!("queries/open_sums.sql", &self.0.payers, &self.0.from_ms)
            .execute(connection)
            .await?;
        Ok(())
    }
}

struct CreateCharged<'b>(&'b Batch<'b>);

impl Call for CreateCharged<'_> {
    type Answer = Vec<Row>;

    async fn ask(&self, connection: &mut PgConnection) -> Result<Self::Answer, sqlx::Error> {
        let Batch { runs, states, events, tasks, charges } = self.0;
        sqlx::query_file_as!(
            Row,
            "queries/create_charged.sql",
            &runs.ids,
            &runs.tenants as &[&str],
            &runs.request_ids as &[Option<&str>],
            &runs.models,
            &runs.questions,
            &runs.accepted_ms,
            &runs.deadline_ms,
            &states.runs,
            &states.versions,
            &states.states as &[&str],
            &states.steps,
            &states.cost_nano_usd,
            &states.ended_ms as &[Option<i64>],
            FORMAT,
            &events.runs,
            &events.sequences,
            &events.at_ms,
            &events.kinds as &[&str],
            &events.data,
            &tasks.runs,
            &tasks.tasks,
            &tasks.states as &[&str],
            &tasks.lanes,
            &tasks.tenants as &[&str],
            &tasks.ready_ms as &[Option<i64>],
            &tasks.told_until_ms as &[Option<i64>],
            &tasks.claims as &[Option<Uuid>],
            &tasks.lease_until_ms as &[Option<i64>],
            &charges.runs,
            &charges.payers,
            &charges.from_ms,
            &charges.spent,
            &charges.reserved,
            &charges.need_room,
        )
        .fetch_all(connection)
        .await
    }
}

struct AppendCharged<'b>(&'b Batch<'b>);

impl Call for AppendCharged<'_> {
    type Answer = Vec<Row>;

    async fn ask(&self, connection: &mut PgConnection) -> Result<Self::Answer, sqlx::Error> {
        let Batch { states, events, tasks, charges, .. } = self.0;
        sqlx::query_file_as!(
            Row,
            "queries/commit_charged.sql",
            &states.runs,
            &states.versions_before,
            &states.versions,
            &states.states as &[&str],
            &states.steps,
            &states.cost_nano_usd,
            &states.ended_ms as &[Option<i64>],
            FORMAT,
            &events.runs,
            &events.sequences,
            &events.at_ms,
            &events.kinds as &[&str],
            &events.data,
            &tasks.runs,
            &tasks.tasks,
            &tasks.states as &[&str],
            &tasks.lanes,
            &tasks.tenants as &[&str],
            &tasks.ready_ms as &[Option<i64>],
            &tasks.told_until_ms as &[Option<i64>],
            &tasks.claims as &[Option<Uuid>],
            &tasks.lease_until_ms as &[Option<i64>],
            &charges.runs,
            &charges.payers,
            &charges.from_ms,
            &charges.spent,
            &charges.reserved,
            &charges.need_room,
        )
        .fetch_all(connection)
        .await
    }
}
