//! Decides whether this version can work with a database: compares the applied migrations with those of this version.
//!
//! A migration only adds, so processes of the previous version keep working on newer tables. Each database stores its floor: the
//! number of the oldest migration that a process must know. A process that knows it also works with all newer migrations.

use std::fmt;

/// A migration that is part of this version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownMigration {
    /// Its number.
    pub version: i64,
    /// The checksum of its text.
    pub checksum: Vec<u8>,
}

/// The state of a database's schema.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schema {
    /// The numbers and checksums of the applied migrations.
    pub applied: Vec<(i64, Vec<u8>)>,
    /// The migration that a process must know; `None` in databases of versions without a floor.
    pub floor: Option<i64>,
}

/// This version can neither work with a database nor migrate it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UnusableSchema {
    /// A newer version changed the tables in a way that this one cannot work with.
    #[error(
        "a newer version has migrated it: it requires migration {floor}, and the newest migration of this version is {newest}; start the newer version, or restore a backup"
    )]
    TooNew {
        /// The floor of the database.
        floor: i64,
        /// The newest migration of this version.
        newest: i64,
    },
    /// The text of an applied migration differs from this version's text.
    #[error(
        "its migration {version} differs from this version's: a development version created it; create a new database"
    )]
    Changed {
        /// The number of the migration.
        version: i64,
    },
}

/// A list of migration numbers, displayed for people.
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
    /// The migrations of this version that were not applied, in order. Unknown ones are ignored, unless the floor requires them.
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
    fn unapplied_migrations_are_pending() {
        let pending = |applied: &[i64]| schema(applied, None).pending(&known()).unwrap().0;
        assert_eq!(pending(&[]), [1, 2, 3]);
        // Two development versions may each have added one.
        assert_eq!(pending(&[1, 3]), [2]);
        assert_eq!(pending(&[1, 2, 3]), [0; 0]);
    }

    #[test]
    fn newer_migrations_are_ignored_unless_the_floor_requires_them() {
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
    fn a_changed_migration_is_reported() {
        let mut schema = schema(&[1, 2, 3], None);
        schema.applied[1].1 = vec![9];
        assert_eq!(schema.pending(&known()), Err(UnusableSchema::Changed { version: 2 }));
    }
}
