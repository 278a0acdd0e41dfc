//! Whether this version can work with the tables of a database: which migrations were applied, and which this version has.
//!
//! A migration only adds, so that processes of the previous version keep working on newer tables. Each database says the oldest
//! version that can work with it: the number of a migration, its floor. A process that knows that migration works with whatever
//! newer ones have added.

use std::fmt;

/// A migration that this version has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownMigration {
    /// Its number.
    pub version: i64,
    /// The checksum of its text.
    pub checksum: Vec<u8>,
}

/// What a database says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schema {
    /// The numbers and checksums of the migrations that were applied.
    pub applied: Vec<(i64, Vec<u8>)>,
    /// The migration that a process must know; `None` in databases of versions that had no floor.
    pub floor: Option<i64>,
}

/// Why this version cannot work with a database, nor migrate it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UnusableSchema {
    /// A newer version changed the tables so that this one cannot work with them.
    #[error(
        "a newer version has migrated it: it needs a version that knows migration {floor}, and this one knows {newest}; start that version, or restore a backup"
    )]
    TooNew {
        /// The floor of the database.
        floor: i64,
        /// The newest migration of this version.
        newest: i64,
    },
    /// The text of a migration is not the one that was applied.
    #[error(
        "its migration {version} is not the one that this version has: a development version created it; create a new database"
    )]
    Changed {
        /// The number of the migration.
        version: i64,
    },
}

/// Numbers of migrations, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Migrations(pub Vec<i64>);

impl fmt::Display for Migrations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<_> = self.0.iter().map(i64::to_string).collect();
        let noun = if numbers.len() == 1 { "migration" } else { "migrations" };
        write!(f, "{noun} {}", numbers.join(", "))
    }
}

impl Schema {
    /// The migrations of this version that were not applied, in order. Those that it does not know are ignored, down to the floor.
    pub fn pending(&self, known: &[KnownMigration]) -> Result<Migrations, UnusableSchema> {
        let newest = known.iter().map(|migration| migration.version).max().unwrap_or_default();
        if let Some(floor) = self.floor.filter(|floor| *floor > newest) {
            return Err(UnusableSchema::TooNew { floor, newest });
        }
        let mut pending = Vec::new();
        for migration in known {
            match self.applied.iter().find(|(version, _)| *version == migration.version) {
                None => pending.push(migration.version),
                Some((_, checksum)) if *checksum == migration.checksum => {}
                Some((version, _)) => return Err(UnusableSchema::Changed { version: *version }),
            }
        }
        pending.sort_unstable();
        Ok(Migrations(pending))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Vec<KnownMigration> {
        (1..=3)
            .map(|version| KnownMigration { version, checksum: vec![u8::try_from(version).unwrap()] })
            .collect()
    }

    fn schema(applied: &[i64], floor: Option<i64>) -> Schema {
        let applied = applied.iter().map(|version| (*version, vec![u8::try_from(*version).unwrap()]));
        Schema { applied: applied.collect(), floor }
    }

    #[test]
    fn migrations_that_were_not_applied_are_pending() {
        let pending = |applied: &[i64]| schema(applied, None).pending(&known()).unwrap().0;
        assert_eq!(pending(&[]), [1, 2, 3]);
        // Two versions in development may have added one each.
        assert_eq!(pending(&[1, 3]), [2]);
        assert_eq!(pending(&[1, 2, 3]), [0; 0]);
    }

    #[test]
    fn newer_migrations_are_ignored_down_to_the_floor() {
        for floor in [None, Some(1), Some(3)] {
            assert_eq!(
                schema(&[1, 2, 3, 4], floor).pending(&known()),
                Ok(Migrations::default()),
                "{floor:?}"
            );
        }
        let refused = schema(&[1, 2, 3, 4], Some(4)).pending(&known());
        assert_eq!(refused, Err(UnusableSchema::TooNew { floor: 4, newest: 3 }));
    }

    #[test]
    fn a_migration_that_was_changed_is_named() {
        let mut schema = schema(&[1, 2, 3], None);
        schema.applied[1].1 = vec![9];
        assert_eq!(schema.pending(&known()), Err(UnusableSchema::Changed { version: 2 }));
    }
}
