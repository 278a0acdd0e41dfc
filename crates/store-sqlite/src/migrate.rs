//! The migrations: finds the pending ones of a database and applies them.

use podium_store_format::schema::{KnownMigration, Schema, UnusableSchema};
use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::sqlite::SqliteConnection;
use sqlx::{SqlSafeStr as _, SqlitePool};

/// All migrations in order: each file of `migrations/sqlite`.
const MIGRATIONS: &[(i64, &str, &str)] = &[
    (1, "create runs", include_str!("../../../migrations/sqlite/0001_create_runs.sql")),
    (2, "release reservations", include_str!("../../../migrations/sqlite/0002_release_reservations.sql")),
    (3, "list what answers lack", include_str!("../../../migrations/sqlite/0003_list_what_answers_lack.sql")),
    (4, "one lease a process", include_str!("../../../migrations/sqlite/0004_one_lease_a_process.sql")),
    (5, "store objects", include_str!("../../../migrations/sqlite/0005_store_objects.sql")),
    (6, "suspended runs", include_str!("../../../migrations/sqlite/0006_suspended_runs.sql")),
];

fn all() -> Vec<Migration> {
    let migration = |&(version, description, sql): &(i64, &'static str, &'static str)| {
        Migration::new(version, description.into(), MigrationType::Simple, sql.into_sql_str(), false)
    };
    MIGRATIONS.iter().map(migration).collect()
}

/// The migrations of this version.
fn known() -> Vec<KnownMigration> {
    let known = |migration: Migration| KnownMigration {
        version: migration.version,
        checksum: migration.checksum.into_owned(),
    };
    all().into_iter().map(known).collect()
}

/// Applies pending migrations under the write lock: if two processes open a new file concurrently, one creates the tables.
pub(crate) async fn migrate(writer: &SqlitePool) -> Result<Result<(), UnusableSchema>, MigrateError> {
    let mut transaction = writer.begin_with("BEGIN IMMEDIATE").await?;
    let pending = match read_schema(&mut transaction).await?.pending(&known()) {
        Ok(pending) => pending,
        Err(unusable) => return Ok(Err(unusable)),
    };
    if !pending.0.is_empty() {
        let mut migrator = Migrator::with_migrations(all());
        migrator.set_ignore_missing(true);
        migrator.run(&mut *transaction).await?;
        transaction.commit().await?;
    }
    Ok(Ok(()))
}

async fn read_schema(connection: &mut SqliteConnection) -> Result<Schema, sqlx::Error> {
    let tables = "SELECT name FROM sqlite_schema WHERE type = 'table'";
    let tables: Vec<String> = sqlx::query_scalar(tables).fetch_all(&mut *connection).await?;
    let has = |table: &str| tables.iter().any(|name| name == table);
    let mut schema = Schema::default();
    if has("_sqlx_migrations") {
        let read = "SELECT version, checksum FROM _sqlx_migrations ORDER BY version";
        schema.applied = sqlx::query_as(read).fetch_all(&mut *connection).await?;
    }
    if has("schema_floor") {
        let read = "SELECT version FROM schema_floor";
        schema.floor = sqlx::query_scalar(read).fetch_optional(connection).await?;
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
