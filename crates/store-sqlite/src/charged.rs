//! What commits add to budgets, and whether these have room for it; in the transaction of the commit, which alone writes.

use podium_domain::budget::{BudgetRef, Shortage};
use podium_domain::money::Cost;
use podium_ports::charge::Booking;
use podium_ports::store::StoreError;
use podium_ports::stored::{stored, unsigned};
use sqlx::Row;
use sqlx::sqlite::SqliteConnection;

use crate::row::unavailable;

// A budget that was taken away only counts, and one that nobody was charged to yet has no sum.
pub(crate) const READ_ROOM: &str = "-- read_room
SELECT cap_nano_usd, coalesce(spent_nano_usd, 0) AS spent_nano_usd, coalesce(reserved_nano_usd, 0) AS reserved_nano_usd
FROM budgets LEFT JOIN budget_sums ON budget_sums.payer = budgets.payer AND from_ms = ?2
WHERE budgets.payer = ?1 AND cap_nano_usd IS NOT NULL";

pub(crate) const BOOK: &str = "-- book
INSERT INTO budget_sums (payer, from_ms, spent_nano_usd, reserved_nano_usd) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (payer, from_ms) DO UPDATE SET spent_nano_usd = spent_nano_usd + excluded.spent_nano_usd,
                                           reserved_nano_usd = reserved_nano_usd + excluded.reserved_nano_usd";

/// Books, whether or not there is room.
pub(crate) async fn book(
    connection: &mut SqliteConnection,
    booking: Option<&Booking>,
) -> Result<(), StoreError> {
    let Some(booking) = booking else { return Ok(()) };
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
    Ok(())
}

/// The first budget that has no room, if room is needed.
pub(crate) async fn shortage(
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
    let (cap, spent, reserved) =
        (number("cap_nano_usd")?, number("spent_nano_usd")?, number("reserved_nano_usd")?);
    if spent.saturating_add(reserved).saturating_add(asked) <= cap {
        return Ok(None);
    }
    let cost = |nano| Cost::from_nano_usd(unsigned(nano));
    Ok(Some(Shortage {
        payer: budget.payer.clone(),
        cap: cost(cap),
        spent: cost(spent),
        reserved: cost(reserved),
        asked: cost(asked),
    }))
}
