//! Books commits on budgets and checks that they fit, in the transaction of the commit, which is the only writer.

use podium_domain::budget::{BudgetRef, Charge, Period, Shortage};
use podium_domain::money::Cost;
use podium_domain::run::Booking;
use podium_ports::store::StoreError;
use podium_store_format::{stored, unsigned};
use sqlx::Row;
use sqlx::sqlite::SqliteConnection;

use crate::row::unavailable;

// A budget that was removed, or has another period by now, has no cap. A missing sum is zero. Runs of older versions do not name
// the period of their budget.
pub(crate) const READ_ROOM: &str = "-- read_room
SELECT cap_nano_usd, coalesce(spent_nano_usd, 0) AS spent_nano_usd, coalesce(reserved_nano_usd, 0) AS reserved_nano_usd
FROM budgets LEFT JOIN budget_sums ON budget_sums.payer = budgets.payer AND from_ms = ?2
WHERE budgets.payer = ?1 AND cap_nano_usd IS NOT NULL AND period = coalesce(?3, period)";

// Sums are clamped to the range of their column: an error here would refuse every later commit of the payer.
pub(crate) const BOOK: &str = "-- book
INSERT INTO budget_sums (payer, from_ms, spent_nano_usd, reserved_nano_usd) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (payer, from_ms) DO UPDATE SET
    spent_nano_usd = CASE
        WHEN ?3 > 0 AND spent_nano_usd > 9223372036854775807 - ?3 THEN 9223372036854775807
        WHEN ?3 < 0 AND spent_nano_usd < -9223372036854775807 - ?3 THEN -9223372036854775807
        ELSE spent_nano_usd + ?3 END,
    reserved_nano_usd = CASE
        WHEN ?4 > 0 AND reserved_nano_usd > 9223372036854775807 - ?4 THEN 9223372036854775807
        WHEN ?4 < 0 AND reserved_nano_usd < -9223372036854775807 - ?4 THEN -9223372036854775807
        ELSE reserved_nano_usd + ?4 END";

// A corrected sum is never negative.
pub(crate) const CORRECT_SUM: &str = "-- correct_sum
UPDATE budget_sums SET spent_nano_usd = max(spent_nano_usd, 0), reserved_nano_usd = max(reserved_nano_usd, 0)
WHERE payer = ?1 AND from_ms = ?2
RETURNING spent_nano_usd, reserved_nano_usd";

/// Books a commit, even if it exceeds a cap.
pub(crate) async fn book(
    connection: &mut SqliteConnection,
    booking: Option<&Booking>,
) -> Result<(), StoreError> {
    let Some(booking) = booking else { return Ok(()) };
    for budget in &booking.budgets {
        add(connection, budget, booking.spent, booking.reserved).await?;
    }
    Ok(())
}

/// Adds to the spent and reserved sums of a budget.
async fn add(
    connection: &mut SqliteConnection,
    budget: &BudgetRef,
    spent: i64,
    reserved: i64,
) -> Result<(), StoreError> {
    let add = sqlx::query(BOOK)
        .bind(budget.payer.to_string())
        .bind(stored(budget.from.unix_ms()))
        .bind(spent)
        .bind(reserved);
    add.execute(connection).await.map_err(unavailable).map(drop)
}

/// Adds an operator's correction to a sum. The sum does not become negative.
pub(crate) async fn correct(
    connection: &mut SqliteConnection,
    budget: &BudgetRef,
    spent: i64,
    reserved: i64,
) -> Result<Charge, StoreError> {
    add(connection, budget, spent, reserved).await?;
    let correct = sqlx::query(CORRECT_SUM).bind(budget.payer.to_string()).bind(stored(budget.from.unix_ms()));
    let row = correct.fetch_one(connection).await.map_err(unavailable)?;
    let cost = |column: &str| {
        let nano = row.try_get::<i64, _>(column).map_err(unavailable)?;
        Ok::<_, StoreError>(Cost::from_nano_usd(unsigned(nano)))
    };
    Ok(Charge { spent: cost("spent_nano_usd")?, reserved: cost("reserved_nano_usd")? })
}

/// The first budget that cannot hold the booking, if it needs capacity.
pub(crate) async fn shortage(
    connection: &mut SqliteConnection,
    booking: Option<&Booking>,
) -> Result<Option<Shortage>, StoreError> {
    let Some(booking) = booking.filter(|booking| booking.needs_capacity) else { return Ok(None) };
    for budget in &booking.budgets {
        let asked = i128::from(booking.spent) + i128::from(booking.reserved);
        let shortage = shortage_of(connection, budget, asked).await?;
        if shortage.is_some() {
            return Ok(shortage);
        }
    }
    Ok(None)
}

async fn shortage_of(
    connection: &mut SqliteConnection,
    budget: &BudgetRef,
    asked: i128,
) -> Result<Option<Shortage>, StoreError> {
    let read = sqlx::query(READ_ROOM)
        .bind(budget.payer.to_string())
        .bind(stored(budget.from.unix_ms()))
        .bind(budget.period.map(Period::as_str));
    let Some(row) = read.fetch_optional(connection).await.map_err(unavailable)? else { return Ok(None) };
    let number = |column: &str| row.try_get::<i64, _>(column).map_err(unavailable);
    let (cap, spent, reserved) =
        (number("cap_nano_usd")?, number("spent_nano_usd")?, number("reserved_nano_usd")?);
    if i128::from(spent) + i128::from(reserved) + asked <= i128::from(cap) {
        return Ok(None);
    }
    let cost = |nano| Cost::from_nano_usd(unsigned(nano));
    Ok(Some(Shortage {
        payer: budget.payer.clone(),
        cap: cost(cap),
        spent: cost(spent),
        reserved: cost(reserved),
        asked: Cost::from_nano_usd(u64::try_from(asked.max(0)).unwrap_or(u64::MAX)),
    }))
}
