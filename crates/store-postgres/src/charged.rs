//! The verdicts of budgets on a batch: the runs that they refused, and why.
//!
//! The statement that writes a batch also locks the budget sums that it is charged to, so the next batch sees its bookings. A
//! batch without charges locks none.

use podium_domain::budget::Shortage;
use podium_domain::ids::RunId;
use podium_domain::money::Cost;
use podium_ports::store::StoreError;
use podium_store_format::{Damage, unsigned};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::call::Call;
use crate::columns::ChargeColumns;

/// Why a budget refused a run.
pub(crate) enum Refused {
    /// The run does not fit, with or without the other runs of its batch.
    Short(Shortage),
    /// The run does not fit if the runs before it in the batch are written.
    Crowded,
}

/// The result for a run of a batch.
pub(crate) enum Verdict {
    Written,
    Refused(Refused),
    /// A sum of its budgets must be created first, because a missing sum cannot be locked.
    Unopened,
}

pub(crate) struct Row {
    pub(crate) run_id: Uuid,
    pub(crate) payer: Option<String>,
    pub(crate) cap: Option<i64>,
    pub(crate) spent: Option<i64>,
    pub(crate) reserved: Option<i64>,
    pub(crate) charge_spent: Option<i64>,
    pub(crate) charge_reserved: Option<i64>,
}

impl Row {
    /// The row of a run that was written.
    pub(crate) fn written(run_id: Uuid) -> Self {
        Self {
            run_id,
            payer: None,
            cap: None,
            spent: None,
            reserved: None,
            charge_spent: None,
            charge_reserved: None,
        }
    }

    pub(crate) fn verdict(self) -> Result<Verdict, StoreError> {
        let Some(payer) = self.payer else { return Ok(Verdict::Written) };
        let (Some(spent), Some(reserved)) = (self.spent, self.reserved) else { return Ok(Verdict::Unopened) };
        let cap = self.cap.unwrap_or(i64::MAX);
        let of = |amount: Option<i64>| i128::from(amount.unwrap_or_default());
        let asked = of(self.charge_spent) + of(self.charge_reserved);
        if i128::from(spent) + i128::from(reserved) + asked <= i128::from(cap) {
            return Ok(Verdict::Refused(Refused::Crowded));
        }
        let payer = payer.parse().map_err(|_| {
            Damage::Column { column: "budgets.payer", value: payer }.of(RunId::new(self.run_id))
        })?;
        let cost = |nano| Cost::from_nano_usd(unsigned(nano));
        let asked = Cost::from_nano_usd(u64::try_from(asked.max(0)).unwrap_or(u64::MAX));
        let (cap, spent) = (cost(cap), cost(spent));
        let shortage = Shortage { payer, cap, spent, reserved: cost(reserved), asked };
        Ok(Verdict::Refused(Refused::Short(shortage)))
    }
}

/// Creates the missing sums of budgets in their period.
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
