//! Runs the live stream's conformance suite on the one in memory.

use std::sync::Arc;

use podium_memory::{LiveOptions, MemoryLive};
use podium_ports::live::LiveStream;
use podium_testkit::live_stream::LiveFixture;

const SIGNALS_MAX: usize = 8;

fn fixture() -> LiveFixture {
    let options = LiveOptions { signals_max: SIGNALS_MAX, ..LiveOptions::default() };
    let live: Arc<dyn LiveStream> = Arc::new(MemoryLive::new(options));
    LiveFixture { elsewhere: Arc::clone(&live), live, signals_max: SIGNALS_MAX }
}

podium_testkit::live_stream_suite! { #[tokio::test(start_paused = true)] async { fixture() } }
