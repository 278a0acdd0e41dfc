//! Creating runs that are charged to budgets and appending to them: what is booked is booked in the same transaction, one run after
//! the other.

use podium_domain::budget::{BudgetRef, Shortage};
use podium_domain::money::Cost;
use podium_ports::charge::Booking;
use podium_ports::store::{Commit, Conflict, Created, StoreError, Unwritten};
use podium_ports::stored::{stored, unsigned};
use sqlx::sqlite::SqliteConnection;
use sqlx::{Connection, Row};

use crate::Store;
use crate::row::{CommitRows, unavailable};
use crate::write::{begin, existing, find, insert_events, insert_run, update_run, upsert_tasks};

pub(crate) const OPEN_SUM: &str = "-- open_sum
INSERT INTO budget_sums (payer, from_ms, spent_nano_usd, reserved_nano_usd) VALUES (?1, ?2, 0, 0)
ON CONFLICT DO NOTHING";

// A budget that was taken away only counts.
pub(crate) const READ_ROOM: &str = "-- read_room
SELECT cap_nano_usd, spent_nano_usd, reserved_nano_usd
FROM budget_sums LEFT JOIN budgets ON budgets.payer = budget_sums.payer
WHERE budget_sums.payer = ?1 AND from_ms = ?2";

pub(crate) const BOOK: &str = "-- book
UPDATE budget_sums SET spent_nano_usd = spent_nano_usd + ?3, reserved_nano_usd = reserved_nano_usd + ?4
WHERE payer = ?1 AND from_ms = ?2";

pub(crate) async fn create(
    store: &Store,
    runs: &[Commit],
) -> Result<Vec<Result<Created, Shortage>>, StoreError> {
    let rows = runs.iter().map(CommitRows::new).collect::<Result<Vec<_>, _>>()?;
    let mut transaction = begin(store).await?;
    let (mut created, mut new) = (Vec::with_capacity(rows.len()), Vec::new());
    for commit in &rows {
        if let Some(there) = find(&mut transaction, commit.run).await? {
            created.push(Ok(there));
            continue;
        }
        if let Some(shortage) = book(&mut transaction, commit.commit.booking()).await? {
            created.push(Err(shortage));
            continue;
        }
        let is_new = insert_run(&mut transaction, commit).await?;
        insert_events(&mut transaction, commit).await?;
        new.push(commit.commit);
        created.push(Ok(if is_new { Created::New } else { existing(&mut transaction, commit.run).await? }));
    }
    upsert_tasks(store, &mut transaction, &new).await?;
    transaction.commit().await.map_err(unavailable)?;
    Ok(created)
}

pub(crate) async fn commit(
    store: &Store,
    commits: &[Commit],
) -> Result<Vec<Result<(), Unwritten>>, StoreError> {
    let rows = commits.iter().map(CommitRows::new).collect::<Result<Vec<_>, _>>()?;
    let mut transaction = begin(store).await?;
    let (mut results, mut written) = (Vec::with_capacity(rows.len()), Vec::new());
    for commit in &rows {
        // So that one which does not fit leaves no trace.
        let mut point = transaction.begin().await.map_err(unavailable)?;
        if !update_run(&mut point, commit).await? {
            results.push(Err(Unwritten::Conflict(Conflict)));
        } else if let Some(shortage) = book(&mut point, commit.commit.booking()).await? {
            results.push(Err(Unwritten::OverBudget(shortage)));
        } else {
            insert_events(&mut point, commit).await?;
            point.commit().await.map_err(unavailable)?;
            written.push(commit.commit);
            results.push(Ok(()));
        }
    }
    upsert_tasks(store, &mut transaction, &written).await?;
    transaction.commit().await.map_err(unavailable)?;
    Ok(results)
}

/// Books, or says which budget has no room; then nothing is booked.
async fn book(
    connection: &mut SqliteConnection,
    booking: Option<&Booking>,
) -> Result<Option<Shortage>, StoreError> {
    let Some(booking) = booking else { return Ok(None) };
    for budget in &booking.budgets {
        let open = sqlx::query(OPEN_SUM).bind(budget.payer.to_string()).bind(stored(budget.from.unix_ms()));
        open.execute(&mut *connection).await.map_err(unavailable)?;
    }
    if let Some(shortage) = shortage(connection, Some(booking)).await? {
        return Ok(Some(shortage));
    }
    for budget in &booking.budgets {
        sqlx::query(BOOK)
            .bind(budget.payer.to_string())
            .bind(stored(budget.from.unix_ms()))
            .bind(booking.spent)
            .bind(booking.reserved)
            .execute(&mut *connection)
            .await
            .map_err(unavailable)?;
    }
    Ok(None)
}

/// The first budget that has no room, if room is needed.
async fn shortage(
    connection: &mut SqliteConnection,
    booking: Option<&Booking>,
) -> Result<Option<Shortage>, StoreError> {
    let Some(booking) = booking.filter(|booking| booking.needs_room) else { return Ok(None) };
    for budget in &booking.budgets {
        let shortage = shortage_of(connection, budget, booking.total()).await?;
        if shortage.is_some() {
            return Ok(shortage);
        }
    }
    Ok(None)
}

async fn shortage_of(
    connection: &mut SqliteConnection,
    budget: &BudgetRef,
    asked: i64,
) -> Result<Option<Shortage>, StoreError> {
    let read = sqlx::query(READ_ROOM).bind(budget.payer.to_string()).bind(stored(budget.from.unix_ms()));
    let Some(row) = read.fetch_optional(connection).await.map_err(unavailable)? else { return Ok(None) };
    let number = |column: &str| row.try_get::<i64, _>(column).map_err(unavailable);
    let cap = row.try_get::<Option<i64>, _>("cap_nano_usd").map_err(unavailable)?;
    let (spent, reserved) = (number("spent_nano_usd")?, number("reserved_nano_usd")?);
    Ok(cap.filter(|cap| spent.saturating_add(reserved).saturating_add(asked) > *cap).map(|cap| {
        let cost = |nano| Cost::from_nano_usd(unsigned(nano));
        Shortage {
            payer: budget.payer.clone(),
            cap: cost(cap),
            spent: cost(spent),
            reserved: cost(reserved),
            asked: cost(asked),
        }
    }))
}
