//! `podium budget`: the budgets of tenants and keys.

use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use podium_api::v1;
use podium_domain::budget::{Budget, Payer, Period};
use podium_domain::ids::{KeyId, TenantId};
use podium_domain::money::Cost;
use podium_ports::accounts::BudgetSum;
use podium_ports::clock::Clock as _;
use podium_server::sums;
use podium_setup::SystemClock;
use serde::Serialize;

use super::accounts::{AccountsArgs, tenant};
use super::output::{print_json, print_line};
use super::runs::SourceArgs;
use crate::error::{Error, run_failed};
use crate::report::{dollars, unix_ms};
use crate::terminal;

#[derive(Debug, Subcommand)]
pub(super) enum BudgetCommand {
    /// Set or replace the budget of a tenant or of one of its keys.
    Set(SetArgs),
    /// Remove a budget. Its spent sum is kept.
    Remove(OfArgs),
    /// Show the budgets of a tenant and of its keys, with their spent and reserved sums.
    ///
    /// The reserved sum is the most that active runs may still spend, plus the worst case of calls whose executor died. The latter
    /// is released after the run has ended and the longest call of the pool (`call_ms_max`) is over, at most 90 seconds later.
    /// Both sums are of the current period.
    Show(ShowArgs),
    /// Correct the spent and reserved sums of a budget's current period after a wrong booking.
    ///
    /// Active runs keep changing the sums. Correct the reserved sum only if no active run owns that part of it.
    Correct(CorrectArgs),
    /// Show the budgets that your own runs are charged to: those of your key and of its tenant.
    Mine(MineArgs),
}

#[derive(Debug, Args)]
pub(super) struct OfArgs {
    /// The tenant.
    #[arg(long, value_name = "NAME", value_parser = tenant)]
    tenant: TenantId,
    /// The public name of one of its keys. Without it, the budget of the tenant itself.
    #[arg(long, value_name = "ID")]
    key: Option<String>,
    #[command(flatten)]
    accounts: AccountsArgs,
}

/// A number of US dollars from a flag.
pub(super) fn cost(flag: &str, usd: f64) -> Result<Cost, Error> {
    let cost = Cost::from_usd(usd).filter(|cost| *cost > Cost::ZERO || usd == 0.0);
    cost.ok_or_else(|| {
        Error::Refused(format!(
            "invalid {flag} {usd}: it must be 0, or from 0.000000001 (the smallest amount) to 1000000000"
        ))
    })
}

#[derive(Debug, Args)]
pub(super) struct SetArgs {
    #[command(flatten)]
    of: OfArgs,
    /// US dollars that may be spent in each period. Without it, spending is only counted.
    #[arg(long = "usd", value_name = "USD", allow_negative_numbers = true)]
    usd: Option<f64>,
    /// The period, in UTC.
    #[arg(long, value_enum, default_value = "month")]
    period: PeriodName,
}

#[derive(Debug, Args)]
pub(super) struct CorrectArgs {
    #[command(flatten)]
    of: OfArgs,
    /// US dollars to add to the spent sum; may be negative.
    #[arg(long, value_name = "USD", default_value_t = 0.0, allow_negative_numbers = true)]
    spent_usd: f64,
    /// US dollars to add to the reserved sum; may be negative.
    #[arg(long, value_name = "USD", default_value_t = 0.0, allow_negative_numbers = true)]
    reserved_usd: f64,
}

#[derive(Debug, Args)]
pub(super) struct ShowArgs {
    /// The tenant.
    #[arg(long, value_name = "NAME", value_parser = tenant)]
    tenant: TenantId,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    accounts: AccountsArgs,
}

#[derive(Debug, Args)]
pub(super) struct MineArgs {
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    source: SourceArgs,
}

/// The period of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum PeriodName {
    /// A calendar day.
    Day,
    /// A calendar month.
    Month,
    /// All time.
    Total,
}

impl From<PeriodName> for Period {
    fn from(name: PeriodName) -> Self {
        match name {
            PeriodName::Day => Self::Day,
            PeriodName::Month => Self::Month,
            PeriodName::Total => Self::Total,
        }
    }
}

pub(super) async fn budget(command: BudgetCommand) -> Result<ExitCode, Error> {
    match command {
        BudgetCommand::Set(args) => set(args).await,
        BudgetCommand::Remove(args) => remove(args).await,
        BudgetCommand::Show(args) => show(args).await,
        BudgetCommand::Correct(args) => correct(args).await,
        BudgetCommand::Mine(args) => mine(args).await,
    }
}

impl OfArgs {
    fn payer(&self) -> Result<Payer, Error> {
        match &self.key {
            Some(id) => KeyId::new(id.as_str()).map(Payer::Key).map_err(|e| Error::Refused(e.to_string())),
            None => Ok(Payer::Tenant(self.tenant.clone())),
        }
    }
}

async fn set(args: SetArgs) -> Result<ExitCode, Error> {
    let cap = args.usd.map(|usd| cost("--usd", usd)).transpose()?;
    let accounts = args.of.accounts.open().await?;
    let (payer, tenant) = (args.of.payer()?, args.of.tenant.clone());
    let keys = accounts.keys(&tenant).await?;
    if keys.is_empty() && tenant.as_str() != "local" {
        terminal::note(&format!(
            "tenant {tenant} has no keys yet: check the name; its budget is set all the same"
        ));
    }
    if let Payer::Key(id) = &payer
        && !keys.iter().any(|key| key.id == *id)
    {
        eprintln!("podium: tenant {tenant} has no key {id}");
        return Ok(run_failed());
    }
    let period = args.period.into();
    accounts.set_budget(&Budget { payer, tenant, period, cap }).await?;
    Ok(ExitCode::SUCCESS)
}

async fn remove(args: OfArgs) -> Result<ExitCode, Error> {
    let payer = args.payer()?;
    if args.accounts.open().await?.remove_budget(&payer).await? {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("podium: {payer} has no budget");
    Ok(run_failed())
}

/// Billionths of a dollar, negative ones included.
fn amount(flag: &str, usd: f64) -> Result<i64, Error> {
    let nano = cost(flag, usd.abs()).map_err(|_| out_of_range(flag, usd))?.signed_nano_usd();
    Ok(if usd < 0.0 { -nano } else { nano })
}

fn out_of_range(flag: &str, usd: f64) -> Error {
    Error::Refused(format!("{flag} is {usd}, it must be -1e9 to 1e9"))
}

async fn correct(args: CorrectArgs) -> Result<ExitCode, Error> {
    let (spent, reserved) =
        (amount("--spent-usd", args.spent_usd)?, amount("--reserved-usd", args.reserved_usd)?);
    let (payer, store) = (args.of.payer()?, args.of.accounts.open_all().await?);
    let accounts = &store.accounts;
    let budgets = accounts.budgets(&args.of.tenant).await?;
    let Some(budget) = budgets.into_iter().find(|budget| budget.payer == payer) else {
        eprintln!("podium: {payer} has no budget");
        return Ok(run_failed());
    };
    let at = budget.at(store.clock.now());
    let details = format!("spent {:+}, reserved {:+} USD", args.spent_usd, args.reserved_usd);
    store.record("correct", &payer.to_string(), details).await?;
    let charge = accounts.correct_sum(&at, spent, reserved).await?;
    print_line(&Report::from(&BudgetSum { budget, from: at.from, charge }).line())?;
    Ok(ExitCode::SUCCESS)
}

#[derive(Serialize)]
struct Report {
    payer: String,
    period: String,
    period_start_ms: u64,
    cap_usd: Option<f64>,
    spent_usd: f64,
    reserved_usd: f64,
}

impl From<&BudgetSum> for Report {
    fn from(sum: &BudgetSum) -> Self {
        Self {
            payer: sum.budget.payer.to_string(),
            period: sum.budget.period.as_str().to_owned(),
            period_start_ms: sum.from.unix_ms(),
            cap_usd: sum.budget.cap.map(Cost::usd),
            spent_usd: sum.charge.spent.usd(),
            reserved_usd: sum.charge.reserved.usd(),
        }
    }
}

impl From<&v1::Budget> for Report {
    fn from(budget: &v1::Budget) -> Self {
        let usd = |nano| Cost::from_nano_usd(nano).usd();
        Self {
            payer: budget.payer.clone(),
            period: budget.period.clone(),
            period_start_ms: budget.period_start_time.as_ref().map(unix_ms).unwrap_or_default(),
            cap_usd: budget.cap_nano_usd.map(usd),
            spent_usd: usd(budget.spent_nano_usd),
            reserved_usd: usd(budget.reserved_nano_usd),
        }
    }
}

impl Report {
    fn line(&self) -> String {
        let Self { payer, period, spent_usd, reserved_usd, .. } = self;
        let cap = self.cap_usd.map_or_else(|| "no cap".to_owned(), |cap| format!("of {}", dollars(cap)));
        let (spent, reserved) = (dollars(*spent_usd), dollars(*reserved_usd));
        format!("{payer}  {spent} spent, {reserved} reserved, {cap} ({period})")
    }
}

async fn show(args: ShowArgs) -> Result<ExitCode, Error> {
    let accounts = args.accounts.open().await?;
    let budgets = accounts.budgets(&args.tenant).await?;
    let sums = sums(&*accounts, budgets, SystemClock.now()).await?;
    let payers = format!("neither tenant {} nor any of its keys", args.tenant);
    print(&sums.iter().map(Report::from).collect::<Vec<_>>(), &payers, args.json)
}

async fn mine(args: MineArgs) -> Result<ExitCode, Error> {
    let mut backend = args.source.open().await?;
    let budgets = backend.budgets().await;
    backend.close().await;
    print(
        &budgets?.iter().map(Report::from).collect::<Vec<_>>(),
        "neither your tenant nor your key",
        args.json,
    )
}

fn print(reports: &[Report], payers: &str, as_json: bool) -> Result<ExitCode, Error> {
    if as_json {
        print_json(&reports)?;
        return Ok(ExitCode::SUCCESS);
    }
    if reports.is_empty() {
        eprintln!("podium: {payers} has a budget");
    }
    reports.iter().try_for_each(|report| print_line(&report.line()))?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_is_zero_or_one_that_can_be_counted() {
        assert_eq!(cost("--usd", 0.0).unwrap(), Cost::ZERO);
        assert_eq!(cost("--usd", 0.000_000_001).unwrap(), Cost::from_nano_usd(1));
        for wrong in [-1.0, 1e-10, 1e10, f64::NAN, f64::INFINITY] {
            let said = cost("--usd", wrong).unwrap_err().to_string();
            assert!(said.starts_with("invalid --usd"), "{said}");
        }
    }
}
