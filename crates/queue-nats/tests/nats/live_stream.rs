//! The requirements of every live stream, tested on a real server.

use std::sync::Arc;

use crate::servers::to;
use podium_domain::ids::RunId;
use podium_harness::Nats;
use podium_ports::live::{EndSignals, LiveError, LiveStream, Signal, Signals, Stops};
use podium_queue_nats::{LiveOptions, NatsLive};
use podium_testkit::live_stream::LiveFixture;

const SIGNALS_MAX: usize = 64;

/// A live stream with its server, which stops with the last user.
struct Served {
    live: NatsLive,
    _server: Arc<Nats>,
}

#[async_trait::async_trait]
impl LiveStream for Served {
    async fn publish(&self, run: RunId, signal: Signal) -> Result<(), LiveError> {
        self.live.publish(run, signal).await
    }

    async fn subscribe(&self, run: RunId) -> Result<Signals, LiveError> {
        self.live.subscribe(run).await
    }

    async fn publish_stop(&self, run: RunId) -> Result<(), LiveError> {
        self.live.publish_stop(run).await
    }

    async fn stops(&self) -> Result<Stops, LiveError> {
        self.live.stops().await
    }

    async fn subscribe_to_end(&self, run: RunId) -> Result<EndSignals, LiveError> {
        self.live.subscribe_to_end(run).await
    }
}

async fn connect(server: &Arc<Nats>) -> Arc<dyn LiveStream> {
    let options = LiveOptions { signals_max: SIGNALS_MAX, ..LiveOptions::default() };
    let live = NatsLive::connect(&to(server), options).await.unwrap();
    Arc::new(Served { live, _server: Arc::clone(server) })
}

/// Two live streams with separate connections, like two processes.
async fn fixture() -> LiveFixture {
    let server = Arc::new(Nats::start().await.unwrap());
    let (live, elsewhere) = (connect(&server).await, connect(&server).await);
    LiveFixture { live, elsewhere, signals_max: SIGNALS_MAX }
}

podium_testkit::live_stream_suite! { #[tokio::test(flavor = "multi_thread", worker_threads = 2)] fixture() }
