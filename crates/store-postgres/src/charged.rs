//! Writing runs that are charged to budgets, each batch in one statement that also books what it adds.
//!
//! A budget's row is locked for as long as a statement takes that charges it, so that who comes second sees what the first one
//! booked. Runs without budgets never come here.

use podium_domain::budget::Shortage;
use podium_domain::ids::RunId;
use podium_domain::money::Cost;
use podium_ports::store::StoreError;
use podium_ports::stored::{Damage, FORMAT, unsigned};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::call::Call;
use crate::columns::{Batch, ChargeColumns, column};
use crate::write::{Outcome, query_of_batch};

/// A run that was not written for want of room.
pub(crate) enum Refused {
    /// There is none for it, whatever becomes of the other runs of its batch.
    Short(Shortage),
    /// There is none if the runs before it in the batch are written.
    Crowded,
    /// The period has just begun: the budget has no row for it yet.
    Unopened,
}

pub(crate) struct Row {
    run_id: Uuid,
    payer: Option<String>,
    cap: Option<i64>,
    spent: Option<i64>,
    reserved: Option<i64>,
    asked: Option<i64>,
}

impl Outcome {
    pub(crate) fn of(rows: Vec<Row>) -> Result<Self, StoreError> {
        let mut outcome = Self::default();
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

/// Begins the sums of budgets that nobody was charged to yet.
pub(crate) struct OpenSums<'b>(pub(crate) &'b ChargeColumns);

impl Call for OpenSums<'_> {
    type Answer = ();

    async fn ask(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        sqlx::query_file!("queries/open_sums.sql", &self.0.payers, &self.0.from_ms)
            .execute(connection)
            .await?;
        Ok(())
    }
}

/// Gives the runs that were written, and those that a budget has no room for.
pub(crate) struct WriteCharged<'b>(pub(crate) &'b Batch<'b>);

impl Call for WriteCharged<'_> {
    type Answer = Vec<Row>;

    async fn ask(&self, connection: &mut PgConnection) -> Result<Self::Answer, sqlx::Error> {
        let charges = &self.0.charges;
        let written = query_of_batch!(
            query_file_as!(Row, "queries/commit_charged.sql"),
            self.0,
            [
                &charges.runs,
                &charges.payers,
                &charges.from_ms,
                &charges.spent,
                &charges.reserved,
                &charges.need_room
            ]
        );
        written.fetch_all(connection).await
    }
}
