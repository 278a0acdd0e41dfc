//! Two versions at once: replaces a cluster of an earlier commit's processes by this commit's under load, one after the other, then
//! back over a database that was migrated meanwhile, and forth again.
//!
//! `make test-versions` builds the earlier `podium-local-cluster` and names it in `PODIUM_TEST_OLD_BINARY`.

use std::path::{Path, PathBuf};

use podium_local_cluster::{Cluster, Shape};
use podium_vendor_sim::{Behaviour, Milliseconds, Options};

use crate::failover::{all_is_well, more_end};
use crate::load::{Lives, Load, Tools};
use crate::workflow::{BRANCHES, diamond};

const CLIENTS: usize = 24;
/// Runs that end between two replacements: so few that most runs meet both versions.
const BETWEEN: usize = CLIENTS / 2;
/// The migration of a later version, which adds columns and records itself.
const LATER_MIGRATION: &str = "
    ALTER TABLE runs ADD COLUMN of_a_later_version text;
    ALTER TABLE tasks ADD COLUMN of_a_later_version integer NOT NULL DEFAULT 7;
    INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
    VALUES (9000, 'of a later version', true, '\\x00', 1)";

/// The order of replacement: that of docs/cluster.md for a new version, and the reverse for the way back.
#[derive(Clone, Copy, Debug)]
enum Way {
    Forth,
    Back,
}

/// Replaces every process, one after the other, under load.
async fn roll(cluster: &mut Cluster, lives: &Lives, to: &Path, way: Way) {
    cluster.set_binary(to).unwrap();
    let Cluster { executors, planners, gateways, .. } = cluster;
    let kinds = match way {
        Way::Forth => [executors, planners, gateways],
        Way::Back => [gateways, planners, executors],
    };
    for service in kinds.into_iter().flatten() {
        let code = service.terminate().await.unwrap();
        assert_eq!(code, 0, "{way:?}: {}", service.log_end());
        service.start_again().await.unwrap_or_else(|error| panic!("{way:?} to {}: {error:#}", to.display()));
        more_end(lives, BETWEEN).await;
    }
    eprintln!("{way:?} to {}: {} runs so far", to.display(), lives.so_far().len());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the binary of an earlier commit: `make test-versions`"]
async fn a_rolling_upgrade_and_downgrade_lose_no_run() {
    let old = std::env::var_os("PODIUM_TEST_OLD_BINARY").expect("PODIUM_TEST_OLD_BINARY names no binary");
    let (old, new) = (PathBuf::from(old), Path::new(env!("CARGO_BIN_EXE_podium-local-cluster")));
    assert_ne!(std::fs::read(&old).unwrap(), std::fs::read(new).unwrap(), "both are the same version");
    let (conductor, _workflow) = diamond();
    let settings = vec![
        // Otherwise planners would have nothing to do.
        ("plan_at_once", "false".to_owned()),
        ("postgres_connections", "8".to_owned()),
        ("log", "warn".to_owned()),
    ];
    let workers = Options { generalist_accuracy: 1.0, ..Options::loopback(7) };
    let shape = Shape { settings, workers, calls_max: Some(128), ..Shape::new(2, 2, 3, conductor) };
    let mut cluster = Cluster::start(&old, &shape).await.unwrap();
    let behaviour = Behaviour { first_token_ms: Milliseconds { min: 200, max: 800 }, ..Behaviour::default() };
    cluster.workers.set_behaviour(BRANCHES, behaviour).unwrap();
    let gateways: Vec<_> = cluster.gateways.iter().map(|gateway| gateway.address(1)).collect();
    let load = Load::start(&gateways, CLIENTS, Tools::None);
    let lives = load.lives().clone();
    more_end(&lives, BETWEEN).await;

    roll(&mut cluster, &lives, new, Way::Forth).await;
    let name = cluster.database.rsplit('/').next().unwrap();
    cluster.postgres.execute(name, LATER_MIGRATION).await.unwrap();
    more_end(&lives, BETWEEN).await;
    roll(&mut cluster, &lives, &old, Way::Back).await;
    roll(&mut cluster, &lives, new, Way::Forth).await;
    all_is_well(cluster, load).await;
}
