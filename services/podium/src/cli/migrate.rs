//! `podium migrate`: applies pending migrations to a cluster's database.

use std::process::ExitCode;

use clap::Args;
use podium_store_postgres::{Options, Store};

use super::DataArgs;
use super::output::print_line;
use crate::error::{Error, run_failed};

#[derive(Debug, Args)]
pub(super) struct MigrateArgs {
    /// The cluster's database, such as `postgres://podium@db:5432/podium`. Its role must have the right to create tables. PGPASSWORD
    /// holds the password.
    #[arg(long, value_name = "URL")]
    postgres: String,
    /// Change nothing: exit with code 1 if migrations are pending.
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    setup: DataArgs,
}

pub(super) async fn migrate(args: MigrateArgs) -> Result<ExitCode, Error> {
    args.setup.settings()?.start_log("warn");
    let options = Options::default();
    let pending = if args.check {
        Store::pending_migrations(&args.postgres, options).await
    } else {
        Store::migrate(&args.postgres, options).await
    };
    let pending = pending.map_err(|e| Error::OpenPostgres(Box::new(e)))?;
    if pending.0.is_empty() {
        print_line("the database has all migrations")?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.check {
        eprintln!("podium: the database lacks {pending}");
        return Ok(run_failed());
    }
    print_line(&format!("applied {pending}"))?;
    Ok(ExitCode::SUCCESS)
}
