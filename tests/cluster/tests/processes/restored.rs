//! Disaster recovery: Postgres is lost with its disk and restored elsewhere from a base backup and the archived log; NATS and Redis
//! are empty.

use podium_harness::{Fsync, Postgres, Wire};

use crate::failover::{BETWEEN, all_is_well, more_end, seconds, start};

#[tokio::test(flavor = "multi_thread")]
async fn no_accepted_run_is_lost_with_postgres_nats_and_redis() {
    let mut lost = Postgres::start_with(Fsync::On).await.unwrap();
    let database = lost.database().await.unwrap();
    let archive = lost.archive().await.unwrap();
    let wire = Wire::start(lost.address()).await.unwrap();
    let address = database.replace(&lost.address().to_string(), &wire.address().to_string());
    let (mut cluster, load, _workflow) = start(vec![("postgres", address)]).await;
    // The backup is made under load, and most of the runs are later than it.
    lost.back_up(&archive).await.unwrap();
    more_end(load.lives(), BETWEEN).await;

    lost.kill().await.unwrap();
    drop(lost);
    cluster.nats.wipe().await.unwrap();
    cluster.redis.flush().await.unwrap();
    let restored = Postgres::restore(archive).await.unwrap();
    wire.lead_to(restored.address());
    eprintln!("Postgres restored, NATS and Redis empty: {}", seconds(more_end(load.lives(), BETWEEN).await));
    all_is_well(cluster, load).await;
}
