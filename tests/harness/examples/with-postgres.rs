//! Runs a command with `DATABASE_URL` set to an empty database of a Postgres that runs as long as the command:
//! `cargo run -p podium-harness --example with-postgres -- COMMAND ARGUMENT…`

use std::env;
use std::process::ExitCode;

use anyhow::{Context, Result};
use podium_harness::{Fsync, Postgres};
use tokio::process::Command;

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let mut arguments = env::args_os().skip(1);
    let command = arguments.next().context("usage: with-postgres COMMAND ARGUMENT...")?;
    let postgres = Postgres::start_with(Fsync::Off).await?;
    let mut command = Command::new(command);
    command.args(arguments).env("DATABASE_URL", postgres.database().await?);
    let ended = command.status().await.context("starting the command")?;
    Ok(ended.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}
