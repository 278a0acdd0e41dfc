//! The servers of an address, and the one that takes writes.

use std::fmt::{self, Write as _};
use std::str::FromStr;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{Connection as _, Row as _};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::call::Standby;

/// A part of the address that is replaced by our own check: a server that takes no writes is never used.
const OURS: &str = "target_session_attrs=";

/// A primary and its standbys.
#[derive(Clone)]
pub(crate) struct Servers {
    // Not shown by `Debug`, because they contain the password.
    all: Vec<PgConnectOptions>,
    answer_max: Duration,
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Servers").field(&self.name()).finish()
    }
}

/// None of the servers takes writes.
#[derive(Debug, thiserror::Error)]
#[error("no server takes writes: {said}")]
pub struct NoPrimary {
    /// The answer or error of each server.
    said: String,
}

impl Servers {
    /// Parses `postgres://user:password@host:5432,host:5432/name`, with one or more hosts. `answer_max` is how long one of several
    /// servers may take to answer.
    pub(crate) fn read(address: &str, answer_max: Duration) -> Result<Self, sqlx::Error> {
        let all = one_each(address).into_iter().map(|address| {
            let server = PgConnectOptions::from_str(&address)?;
            // Floats are requested in binary form, and a pooler may not support the setting.
            Ok(server.application_name("podium").extra_float_digits(None))
        });
        Ok(Self { all: all.collect::<Result<_, sqlx::Error>>()?, answer_max })
    }

    pub(crate) fn get(&self, index: usize) -> &PgConnectOptions {
        &self.all[index]
    }

    pub(crate) fn are_several(&self) -> bool {
        self.all.len() > 1
    }

    /// Hosts, ports and the name, without user and password.
    pub(crate) fn name(&self) -> String {
        let places: Vec<_> = self.all.iter().map(place).collect();
        let database =
            self.all.first().map_or("", |server| server.get_database().unwrap_or(server.get_username()));
        format!("{}/{database}", places.join(","))
    }

    /// Asks all servers concurrently; returns the first that takes writes.
    pub(crate) async fn primary(&self) -> Result<usize, NoPrimary> {
        let mut asking = JoinSet::new();
        for (index, server) in self.all.iter().cloned().enumerate() {
            let answer_max = self.answer_max;
            asking.spawn(async move {
                let answer = timeout(answer_max, is_standby(&server)).await;
                let failed = match answer {
                    Ok(Ok(false)) => return Ok(index),
                    Ok(Ok(true)) => Standby.to_string(),
                    Ok(Err(error)) => error.to_string(),
                    Err(_) => format!("no answer within {answer_max:?}"),
                };
                Err(format!("{}: {failed}", place(&server)))
            });
        }
        let mut said = String::new();
        while let Some(answer) = asking.join_next().await {
            match answer {
                Ok(Ok(index)) => return Ok(index),
                Ok(Err(failed)) => {
                    let comma = if said.is_empty() { "" } else { "; " };
                    // Writing to a string cannot fail.
                    let _ = write!(said, "{comma}{failed}");
                }
                Err(panic) => said = panic.to_string(),
            }
        }
        Err(NoPrimary { said })
    }
}

async fn is_standby(server: &PgConnectOptions) -> Result<bool, sqlx::Error> {
    let mut connection = PgConnection::connect_with(server).await?;
    let answer = follows(&mut connection).await;
    connection.close().await.ok();
    answer
}

/// Whether the server is a standby. The statement is not prepared, so it also works through a pooler.
pub(crate) async fn follows(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    sqlx::raw_sql("SELECT pg_is_in_recovery()").fetch_one(connection).await?.try_get(0)
}

fn place(server: &PgConnectOptions) -> String {
    format!("{}:{}", server.get_host(), server.get_port())
}

/// The same address for each of its hosts.
fn one_each(address: &str) -> Vec<String> {
    let Some((scheme, rest)) = address.split_once("://") else { return vec![address.to_owned()] };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at(end);
    let (user, hosts) = authority
        .rsplit_once('@')
        .map_or(("", authority), |(_, hosts)| (&authority[..authority.len() - hosts.len()], hosts));
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let query: Vec<_> = query.split('&').filter(|part| !part.is_empty() && !part.starts_with(OURS)).collect();
    let mark = if query.is_empty() { "" } else { "?" };
    let query = query.join("&");
    hosts.split(',').map(|host| format!("{scheme}://{user}{host}{path}{mark}{query}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_several_hosts_is_split() {
        assert_eq!(
            one_each(
                "postgres://me:p%40s@one:5432,[::1]:2,three/podium?target_session_attrs=any&sslmode=require"
            ),
            [
                "postgres://me:p%40s@one:5432/podium?sslmode=require",
                "postgres://me:p%40s@[::1]:2/podium?sslmode=require",
                "postgres://me:p%40s@three/podium?sslmode=require",
            ]
        );
        for alone in ["postgres://db/podium", "postgres:///podium?host=/run/postgresql", "postgres://db"] {
            assert_eq!(one_each(alone), [alone]);
        }
    }

    #[test]
    fn the_name_of_a_database_has_no_user_and_password() {
        let servers = Servers::read("postgres://me:hunter2@one,two:1/podium", Duration::ZERO).unwrap();
        assert_eq!(servers.name(), "one:5432,two:1/podium");
    }
}
