//! Books commits on budgets and checks that they fit, in the transaction of the commit, which is the only writer.

use podium_domain::budget::{BudgetRef, Charge, Period, Shortage};
use podium_domain::money::Cost;
use podium_domain::run::Booking;
use podium_ports::store::StoreError;
use podium_store_format::{stored, unsigned};
use rusqlite::{Connection, Row, params};

use crate::row::{column, execute, row, unavailable};

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
pub(crate) fn book(connection: &Connection, booking: Option<&Booking>) -> Result<(), StoreError> {
    let Some(booking) = booking else { return Ok(()) };
    for budget in &booking.budgets {
        add(connection, budget, booking.spent, booking.reserved)?;
    }
    Ok(())
}

/// Adds to the spent and reserved sums of a budget.
fn add(connection: &Connection, budget: &BudgetRef, spent: i64, reserved: i64) -> Result<(), StoreError> {
    let columns = params![budget.payer.to_string(), stored(budget.from.unix_ms()), spent, reserved];
    execute(connection, BOOK, columns).map(drop)
}

/// Adds an operator's correction to a sum. The sum does not become negative.
pub(crate) fn correct(
    connection: &Connection,
    budget: &BudgetRef,
    spent: i64,
    reserved: i64,
) -> Result<Charge, StoreError> {
    add(connection, budget, spent, reserved)?;
    let corrected = row(
        connection,
        CORRECT_SUM,
        params![budget.payer.to_string(), stored(budget.from.unix_ms())],
        charge,
    );
    corrected?.ok_or_else(|| unavailable(rusqlite::Error::QueryReturnedNoRows))
}

pub(crate) fn charge(row: &Row<'_>) -> Result<Charge, StoreError> {
    Ok(Charge { spent: cost(row, "spent_nano_usd")?, reserved: cost(row, "reserved_nano_usd")? })
}

fn cost(row: &Row<'_>, name: &str) -> Result<Cost, StoreError> {
    column(row, name).map(unsigned).map(Cost::from_nano_usd)
}

/// The first budget that cannot hold the booking, if it needs capacity.
pub(crate) fn shortage(
    connection: &Connection,
    booking: Option<&Booking>,
) -> Result<Option<Shortage>, StoreError> {
    let Some(booking) = booking.filter(|booking| booking.needs_capacity) else { return Ok(None) };
    for budget in &booking.budgets {
        let asked = i128::from(booking.spent) + i128::from(booking.reserved);
        let shortage = shortage_of(connection, budget, asked)?;
        if shortage.is_some() {
            return Ok(shortage);
        }
    }
    Ok(None)
}

fn shortage_of(
    connection: &Connection,
    budget: &BudgetRef,
    asked: i128,
) -> Result<Option<Shortage>, StoreError> {
    let payer = &budget.payer;
    let wanted = params![payer.to_string(), stored(budget.from.unix_ms()), budget.period.map(Period::as_str)];
    let shortage = row(connection, READ_ROOM, wanted, |row| {
        let number = |name| column::<i64>(row, name);
        let sum = i128::from(number("spent_nano_usd")?) + i128::from(number("reserved_nano_usd")?);
        if sum + asked <= i128::from(number("cap_nano_usd")?) {
            return Ok(None);
        }
        let Charge { spent, reserved } = charge(row)?;
        let asked = Cost::from_nano_usd(u64::try_from(asked.max(0)).unwrap_or(u64::MAX));
        Ok(Some(Shortage { payer: payer.clone(), cap: cost(row, "cap_nano_usd")?, spent, reserved, asked }))
    });
    shortage.map(Option::flatten)
}
