//! The migrations: finds the pending ones of a database and applies them.

use podium_store_format::schema::{KnownMigration, Schema, UnusableSchema};
use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior, params};
use sha2::{Digest as _, Sha384};

/// All migrations in order: each file of `migrations/sqlite`.
const MIGRATIONS: &[(i64, &str, &str)] = &[
    (1, "create runs", include_str!("../../../migrations/sqlite/0001_create_runs.sql")),
    (2, "release reservations", include_str!("../../../migrations/sqlite/0002_release_reservations.sql")),
    (3, "list what answers lack", include_str!("../../../migrations/sqlite/0003_list_what_answers_lack.sql")),
    (4, "one lease a process", include_str!("../../../migrations/sqlite/0004_one_lease_a_process.sql")),
    (5, "store objects", include_str!("../../../migrations/sqlite/0005_store_objects.sql")),
    (6, "suspended runs", include_str!("../../../migrations/sqlite/0006_suspended_runs.sql")),
    (7, "record operators", include_str!("../../../migrations/sqlite/0007_record_operators.sql")),
];

/// The table of applied migrations, as sqlx creates it: earlier versions used sqlx, and sqlx can still read the file.
const CREATE_TABLE: &str = "CREATE TABLE IF NOT EXISTS _sqlx_migrations (
    version BIGINT PRIMARY KEY,
    description TEXT NOT NULL,
    installed_on TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
    success BOOLEAN NOT NULL,
    checksum BLOB NOT NULL,
    execution_time BIGINT NOT NULL
)";

/// -1: the time that the migration took was not measured.
const NOTE_APPLIED: &str =
    "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
VALUES (?1, ?2, TRUE, ?3, -1)";

fn checksum(sql: &str) -> Vec<u8> {
    Sha384::digest(sql).to_vec()
}

/// The migrations of this version.
fn known() -> Vec<KnownMigration> {
    let known = |&(version, _, sql): &(i64, &str, &str)| KnownMigration { version, checksum: checksum(sql) };
    MIGRATIONS.iter().map(known).collect()
}

/// Applies pending migrations in one transaction, under the write lock: if two processes open a new file concurrently, one creates
/// the tables.
pub(crate) fn migrate(writer: &mut Connection) -> Result<Result<(), UnusableSchema>, rusqlite::Error> {
    let transaction = writer.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let pending = match read_schema(&transaction)?.pending(&known()) {
        Ok(pending) => pending,
        Err(unusable) => return Ok(Err(unusable)),
    };
    if !pending.0.is_empty() {
        transaction.execute_batch(CREATE_TABLE)?;
    }
    for (version, description, sql) in MIGRATIONS.iter().filter(|(version, ..)| pending.0.contains(version)) {
        transaction.execute_batch(sql)?;
        transaction.execute(NOTE_APPLIED, params![version, description, checksum(sql)])?;
    }
    transaction.commit()?;
    Ok(Ok(()))
}

fn read_schema(connection: &Connection) -> Result<Schema, rusqlite::Error> {
    // `table_exists` would answer from what the connection knew of the schema before the transaction.
    let mut find = connection.prepare("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?1")?;
    let mut schema = Schema::default();
    if find.exists(["_sqlx_migrations"])? {
        let mut read =
            connection.prepare("SELECT version, checksum FROM _sqlx_migrations ORDER BY version")?;
        let applied = read.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        schema.applied = applied.collect::<Result<_, _>>()?;
    }
    if find.exists(["schema_floor"])? {
        let floor = connection.query_row("SELECT version FROM schema_floor", [], |row| row.get(0));
        schema.floor = floor.optional()?;
    }
    Ok(schema)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn every_migration_of_the_folder_is_embedded() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../migrations/sqlite");
        let mut files: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        files.sort();
        let embedded = MIGRATIONS
            .iter()
            .map(|(version, words, _)| format!("{version:04}_{}.sql", words.replace(' ', "_")));
        assert_eq!(files, embedded.collect::<Vec<_>>());
    }
}
