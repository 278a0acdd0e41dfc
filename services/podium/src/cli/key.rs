//! `podium key`: the keys of tenants.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use podium_domain::budget::{Budget, Payer};
use podium_domain::ids::{KeyId, TenantId};
use podium_ports::accounts::{KEYS_MAX, KeyAdded, KeyRecord};
use podium_ports::clock::Clock as _;
use podium_server::ApiKey;
use podium_setup::SystemClock;
use rand::TryRngCore as _;
use rand::rngs::OsRng;

use super::accounts::{AccountsArgs, tenant};
use super::budget::{PeriodName, cost};
use super::output::print_line;
use crate::error::{Error, run_failed};
use crate::terminal;

#[derive(Debug, Subcommand)]
pub(super) enum KeyCommand {
    /// Create a key and print it. It is shown only once, because only its hash is kept.
    Create(CreateArgs),
    /// List a tenant's keys, the oldest first.
    List(ListArgs),
    /// Revoke a key. Servers reject it within seconds.
    Revoke(RevokeArgs),
}

#[derive(Debug, Args)]
pub(super) struct CreateArgs {
    /// The tenant that owns the key.
    #[arg(long, value_name = "NAME", value_parser = tenant)]
    tenant: TenantId,
    /// US dollars that may be spent with the key in each period. Without it, only the tenant's budget applies.
    #[arg(long, value_name = "USD", allow_negative_numbers = true)]
    budget_usd: Option<f64>,
    /// The period of the budget, in UTC [default: month].
    #[arg(long, value_enum, requires = "budget_usd")]
    period: Option<PeriodName>,
    #[command(flatten)]
    accounts: AccountsArgs,
}

#[derive(Debug, Args)]
pub(super) struct ListArgs {
    /// The tenant.
    #[arg(long, value_name = "NAME", value_parser = tenant)]
    tenant: TenantId,
    #[command(flatten)]
    accounts: AccountsArgs,
}

#[derive(Debug, Args)]
pub(super) struct RevokeArgs {
    /// The key's public name, as `podium key list` shows it.
    #[arg(value_name = "ID")]
    id: String,
    /// The tenant that owns the key.
    #[arg(long, value_name = "NAME", value_parser = tenant)]
    tenant: TenantId,
    #[command(flatten)]
    accounts: AccountsArgs,
}

pub(super) async fn key(command: KeyCommand) -> Result<ExitCode, Error> {
    match command {
        KeyCommand::Create(args) => create(args).await,
        KeyCommand::List(args) => list(args).await,
        KeyCommand::Revoke(args) => revoke(args).await,
    }
}

async fn create(args: CreateArgs) -> Result<ExitCode, Error> {
    let cap = args.budget_usd.map(|usd| cost("--budget-usd", usd)).transpose()?;
    let accounts = args.accounts.open().await?;
    let mut random = [0; 32];
    OsRng.try_fill_bytes(&mut random).map_err(|e| Error::System {
        what: "the system has no random bits",
        source: std::io::Error::other(e),
    })?;
    let key = ApiKey::new(random);
    let id = key.id().map_err(|e| Error::Refused(e.to_string()))?;
    let record = KeyRecord {
        id: id.clone(),
        tenant: args.tenant.clone(),
        created_at: SystemClock.now(),
        revoked_at: None,
    };
    // The budget is stored first, so that the key never exists without it.
    if cap.is_some() {
        let (payer, tenant) = (Payer::Key(id.clone()), args.tenant);
        let period = args.period.unwrap_or(PeriodName::Month).into();
        accounts.set_budget(&Budget { payer, tenant, period, cap }).await?;
    }
    match accounts.add_key(&record, &key.hash()).await? {
        KeyAdded::Added => {
            print_line(key.reveal())?;
            eprintln!("podium: this is key {id} of tenant {}; it is not shown again", record.tenant);
            Ok(ExitCode::SUCCESS)
        }
        KeyAdded::TooMany => {
            accounts.remove_budget(&Payer::Key(id)).await?;
            Err(Error::Refused(format!("tenant {} has {KEYS_MAX} keys, which is the limit", record.tenant)))
        }
    }
}

async fn list(args: ListArgs) -> Result<ExitCode, Error> {
    let keys = args.accounts.open().await?.keys(&args.tenant).await?;
    if keys.is_empty() {
        terminal::note(&format!("tenant {} has no keys", args.tenant));
        return Ok(run_failed());
    }
    for key in keys {
        let state = if key.revoked_at.is_some() { "revoked" } else { "valid" };
        print_line(&format!("{}  {state}", key.id))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn revoke(args: RevokeArgs) -> Result<ExitCode, Error> {
    let id = KeyId::new(args.id).map_err(|e| Error::Refused(e.to_string()))?;
    if args.accounts.open().await?.revoke_key(&args.tenant, &id, SystemClock.now()).await? {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("podium: tenant {} has no key {id}", args.tenant);
    Ok(run_failed())
}
