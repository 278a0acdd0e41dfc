//! `podium migrate` on a real Postgres.

use podium_harness::{Fsync, Postgres};

use crate::support::{run, stderr, stdout};

#[tokio::test]
async fn migrate_applies_the_migrations_that_check_reports() {
    let postgres = Postgres::start_with(Fsync::Off).await.unwrap();
    let address = postgres.database().await.unwrap();
    let migrate =
        |arguments: &[&str]| run(&[&["migrate", "--postgres", address.as_str()][..], arguments].concat());
    let missing = migrate(&["--check"]);
    assert_eq!(missing.status.code(), Some(1), "{}", stderr(&missing));
    assert!(stderr(&missing).contains("the database lacks migrations 1,"), "{}", stderr(&missing));
    let applied = migrate(&[]);
    assert!(applied.status.success(), "{}", stderr(&applied));
    assert!(stdout(&applied).starts_with("applied migrations 1,"), "{}", stdout(&applied));
    for arguments in [&["--check"][..], &[]] {
        let nothing = migrate(arguments);
        assert!(nothing.status.success(), "{}", stderr(&nothing));
        assert_eq!(stdout(&nothing), "the database has all migrations\n");
    }
    let nowhere = run(&["migrate", "--postgres", "postgres://podium@127.0.0.1:1/podium"]);
    assert!(!nowhere.status.success());
    assert!(stderr(&nowhere).contains("cannot be reached"), "{}", stderr(&nowhere));
}
