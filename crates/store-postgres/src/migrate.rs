//! The migrations: finds the pending ones of a database and applies them.

use podium_store_format::schema::{KnownMigration, Schema};
use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::{Connection as _, PgConnection, SqlSafeStr as _};

/// Held until the transaction ends, without the time limits that the role may have. The number is arbitrary.
const MIGRATION_LOCK: &str = "SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0; SELECT pg_advisory_xact_lock(7382946150273645)";

/// All migrations in order: each file of `migrations/postgres`.
const MIGRATIONS: &[(i64, &str, &str)] = &[
    (1, "create runs", include_str!("../../../migrations/postgres/0001_create_runs.sql")),
    (2, "release reservations", include_str!("../../../migrations/postgres/0002_release_reservations.sql")),
    (3, "one dispatcher a lane", include_str!("../../../migrations/postgres/0003_one_dispatcher_a_lane.sql")),
    (
        4,
        "list what answers lack",
        include_str!("../../../migrations/postgres/0004_list_what_answers_lack.sql"),
    ),
    (5, "one lease a process", include_str!("../../../migrations/postgres/0005_one_lease_a_process.sql")),
    (6, "store objects", include_str!("../../../migrations/postgres/0006_store_objects.sql")),
    (7, "suspended runs", include_str!("../../../migrations/postgres/0007_suspended_runs.sql")),
    (8, "record operators", include_str!("../../../migrations/postgres/0008_record_operators.sql")),
];

fn all() -> Vec<Migration> {
    let migration = |&(version, description, sql): &(i64, &'static str, &'static str)| {
        Migration::new(version, description.into(), MigrationType::Simple, sql.into_sql_str(), false)
    };
    MIGRATIONS.iter().map(migration).collect()
}

/// The migrations of this version.
pub(crate) fn known() -> Vec<KnownMigration> {
    let known = |migration: Migration| KnownMigration {
        version: migration.version,
        checksum: migration.checksum.into_owned(),
    };
    all().into_iter().map(known).collect()
}

/// Reads the state of the database's schema. Needs the right to read only.
pub(crate) async fn read_schema(connection: &mut PgConnection) -> Result<Schema, sqlx::Error> {
    let exists =
        "SELECT to_regclass('_sqlx_migrations') IS NOT NULL, to_regclass('schema_floor') IS NOT NULL";
    let (is_migrated, has_floor): (bool, bool) = sqlx::query_as(exists).fetch_one(&mut *connection).await?;
    let mut schema = Schema::default();
    if is_migrated {
        let read = "SELECT version, checksum FROM _sqlx_migrations ORDER BY version";
        schema.applied = sqlx::query_as(read).fetch_all(&mut *connection).await?;
    }
    if has_floor {
        let read = "SELECT version FROM schema_floor";
        schema.floor = sqlx::query_scalar(read).fetch_optional(connection).await?;
    }
    Ok(schema)
}

/// Applies pending migrations in one transaction. The lock belongs to the transaction, so a pooler cannot lose it: if many
/// processes start at once, one creates the tables.
pub(crate) async fn apply(connection: &mut PgConnection) -> Result<(), MigrateError> {
    let mut transaction = connection.begin().await?;
    sqlx::raw_sql(MIGRATION_LOCK).execute(&mut *transaction).await?;
    let mut migrator = Migrator::with_migrations(all());
    migrator.set_locking(false).set_ignore_missing(true);
    migrator.run(&mut *transaction).await?;
    Ok(transaction.commit().await?)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn every_migration_of_the_folder_is_embedded() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../migrations/postgres");
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
