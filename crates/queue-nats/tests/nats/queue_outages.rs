//! The queue while its server is unreachable, restarted, emptied, or has other options than expected.

use std::path::Path;
use std::time::Duration;

use crate::servers::{CALL_MAX, a_queue, to};
use async_nats::jetstream;
use async_nats::jetstream::stream::StorageType;
use podium_domain::policy::Tier;
use podium_domain::run::TaskRef;
use podium_harness::{Nats, Wire};
use podium_ports::clock::{Clock, Ids};
use podium_ports::queue::{Delivery, Lane, Published, QueueError, StepQueue, TaskMessage};
use podium_queue_nats::{AtStart, ConnectionOptions, NatsError, NatsQueue, QueueOptions, Storage};
use podium_testkit::{SeededIds, TestClock};
use tokio::time::{Instant, timeout};

const LANE: Lane = Lane::Plan(Tier::Ultra);
/// The stream of that lane.
const STREAM: &str = "PODIUM-ultra-plan";
const INSTANT: Duration = Duration::ZERO;
/// Time within which a queue must work again after its server does.
const SECONDS: Duration = Duration::from_secs(10);

fn messages(count: u16) -> Vec<TaskMessage> {
    let ids = SeededIds::new(1);
    (0..count).map(|round| TaskMessage::new(ids.run_id(TestClock::START), TaskRef::Plan { round })).collect()
}

/// Retries until success, like the loops that use the queue.
async fn until<T>(mut attempt: impl AsyncFnMut() -> Option<T>) -> T {
    let tries = async {
        loop {
            if let Some(done) = attempt().await {
                return done;
            }
            TestClock::new().sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(SECONDS, tries).await.expect("the queue must work again within seconds")
}

async fn must_publish(queue: &NatsQueue, message: TaskMessage) -> Published {
    until(async || queue.publish(&LANE, message).await.ok()).await
}

async fn must_fetch(queue: &NatsQueue) -> Delivery {
    until(async || queue.fetch(&LANE, 1, Duration::from_secs(1)).await.ok()?.pop()).await
}

async fn js(server: &Nats) -> jetstream::Context {
    jetstream::new(async_nats::connect(server.url()).await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_and_restarted_server_keeps_the_messages() {
    let mut server = Nats::start().await.unwrap();
    let queue = a_queue(&server, QueueOptions::default()).await;
    let messages = messages(3);
    for message in &messages {
        queue.publish(&LANE, *message).await.unwrap();
    }
    queue.fetch(&LANE, 1, INSTANT).await.unwrap().pop().unwrap().ack().await.unwrap();
    let in_hand = queue.fetch(&LANE, 1, INSTANT).await.unwrap().pop().unwrap();
    server.kill().await;
    server.start_again().await.unwrap();
    // Messages in flight may be redelivered at once.
    loop {
        let next = must_fetch(&queue).await;
        let is_last = *next.message() == messages[2];
        next.ack().await.unwrap();
        if is_last {
            break;
        }
    }
    // Fetched before the crash, acked after it.
    in_hand.ack().await.unwrap();
    assert_eq!(must_publish(&queue, messages[1]).await, Published::Queued);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_queue_recreates_everything_on_a_wiped_server() {
    let mut server = Nats::start().await.unwrap();
    let queue = a_queue(&server, QueueOptions::default()).await;
    let message = messages(1)[0];
    for _ in 0..2 {
        must_publish(&queue, message).await;
        let in_hand = must_fetch(&queue).await;
        server.wipe().await.unwrap();
        until(async || queue.ping().await.ok()).await;
        assert_eq!(
            must_publish(&queue, message).await,
            Published::Queued,
            "the wiped server has no earlier message"
        );
        let again = must_fetch(&queue).await;
        assert_eq!(again.deliveries(), 1);
        // The reply to the old delivery may fail, but does not hang.
        let _ = in_hand.nak(Duration::ZERO).await;
        again.ack().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fetch_that_waits_survives_a_wiped_server() {
    let mut server = Nats::start().await.unwrap();
    let queue = a_queue(&server, QueueOptions::default()).await;
    assert!(queue.fetch(&LANE, 1, INSTANT).await.unwrap().is_empty());
    let waiting = {
        let queue = queue.clone();
        async move { until(async || queue.fetch(&LANE, 1, Duration::from_secs(30)).await.ok()?.pop()).await }
    };
    let wipe = async {
        server.wipe().await.unwrap();
        must_publish(&queue, messages(1)[0]).await
    };
    let (delivery, published) = tokio::join!(waiting, wipe);
    assert_eq!(published, Published::Queued);
    delivery.ack().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_stream_or_consumer_is_recreated() {
    let server = Nats::start().await.unwrap();
    let queue = a_queue(&server, QueueOptions::default()).await;
    let (js, messages) = (js(&server).await, messages(2));
    queue.publish(&LANE, messages[0]).await.unwrap();
    must_fetch(&queue).await.ack().await.unwrap();

    js.delete_consumer_from_stream("work", STREAM).await.unwrap();
    queue.publish(&LANE, messages[0]).await.unwrap();
    must_fetch(&queue).await.ack().await.unwrap();

    js.delete_stream(STREAM).await.unwrap();
    assert_eq!(queue.capacity(&LANE).await.unwrap(), QueueOptions::default().lane_messages_max);
    queue.publish(&LANE, messages[1]).await.unwrap();
    must_fetch(&queue).await.ack().await.unwrap();
}

/// Reconfigures the consumer so that it delivers each message only once.
async fn deliver_once(js: &jetstream::Context) {
    let stream = js.get_stream(STREAM).await.unwrap();
    let consumer: jetstream::consumer::PullConsumer = stream.get_consumer("work").await.unwrap();
    let config = consumer.cached_info().config.clone();
    let config = jetstream::consumer::pull::Config {
        durable_name: config.durable_name,
        filter_subject: config.filter_subject,
        ack_policy: config.ack_policy,
        ack_wait: config.ack_wait,
        max_ack_pending: config.max_ack_pending,
        max_waiting: config.max_waiting,
        max_deliver: 1,
        ..Default::default()
    };
    stream.create_consumer(config).await.unwrap();
}

/// Simulates a crash after which the server knows that messages were delivered, but not that it must redeliver them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_that_lost_track_of_messages_is_recreated() {
    let server = Nats::start().await.unwrap();
    let wedged_after = Duration::from_secs(1);
    let options =
        QueueOptions { ack_wait: Duration::from_millis(300), wedged_after, ..QueueOptions::default() };
    let queue = a_queue(&server, options).await;
    let (js, message) = (js(&server).await, messages(1)[0]);
    assert!(queue.fetch(&LANE, 1, INSTANT).await.unwrap().is_empty());
    deliver_once(&js).await;
    queue.publish(&LANE, message).await.unwrap();
    drop(must_fetch(&queue).await);

    let again = must_fetch(&queue).await;
    assert_eq!(again.message(), &message);
    again.ack().await.unwrap();
}

/// The consumer also knows other messages, so it is never idle, but lost messages take up half of the lane.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_lost_by_a_busy_consumer_free_their_capacity() {
    let server = Nats::start().await.unwrap();
    let options = QueueOptions {
        lane_messages_max: 10,
        ack_wait: Duration::from_millis(300),
        wedged_after: Duration::from_secs(1),
        ..QueueOptions::default()
    };
    let queue = a_queue(&server, options).await;
    let (js, messages) = (js(&server).await, messages(8));
    assert!(queue.fetch(&LANE, 1, INSTANT).await.unwrap().is_empty());
    deliver_once(&js).await;
    for message in &messages {
        queue.publish(&LANE, *message).await.unwrap();
    }
    drop(queue.fetch(&LANE, 5, INSTANT).await.unwrap());
    TestClock::new().sleep(Duration::from_millis(600)).await;
    // With the next request for messages, the server notices that it may not redeliver them.
    must_fetch(&queue).await.ack().await.unwrap();
    // Dispatchers ask for the capacity repeatedly.
    let stream = js.get_stream(STREAM).await.unwrap();
    until(async || {
        assert_eq!(queue.capacity(&LANE).await.unwrap(), 3);
        stream.consumer_info("work").await.err()
    })
    .await;
    assert_eq!(queue.fetch(&LANE, 10, INSTANT).await.unwrap().len(), 7);
}

/// The total size of the files in a folder.
fn size(folder: &Path) -> u64 {
    let files = std::fs::read_dir(folder).unwrap();
    files.filter_map(|file| file.unwrap().metadata().ok()).map(|file| file.len()).sum()
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for file in std::fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

/// A lane of four acked messages after a crash of its server. The server lost the latest changes to the message files, but not
/// the acks.
struct Crashed {
    _server: Nats,
    queue: NatsQueue,
    messages: Vec<TaskMessage>,
}

const ACKED: u16 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lost {
    /// The removal of the messages.
    Removals,
    /// The messages.
    Messages,
}

async fn after_a_crash(lost: Lost) -> Crashed {
    let mut server = Nats::start().await.unwrap();
    let wedged_after = Duration::from_mins(10);
    let options = QueueOptions { lane_messages_max: ACKED.into(), wedged_after, ..QueueOptions::default() };
    let queue = a_queue(&server, options).await;
    let (js, messages) = (js(&server).await, messages(ACKED + 1));
    for message in &messages[..ACKED.into()] {
        queue.publish(&LANE, *message).await.unwrap();
    }
    let (folder, backup) = (server.stream_folder(STREAM), tempfile::tempdir().unwrap());
    let bytes = js.get_stream(STREAM).await.unwrap().cached_info().state.bytes;
    until(async || (size(&folder.join("msgs")) >= bytes).then_some(())).await;
    copy(&folder.join("msgs"), backup.path());
    let delivered = queue.fetch(&LANE, ACKED.into(), INSTANT).await.unwrap();
    assert_eq!(delivered.len(), usize::from(ACKED));
    for delivery in delivered {
        delivery.ack().await.unwrap();
    }
    // A new file shows the file system's current time.
    let acked_at = tempfile::tempfile().unwrap().metadata().unwrap().modified().unwrap();
    let consumer = folder.join("obs/work/o.dat");
    until(async || (std::fs::metadata(&consumer).ok()?.modified().ok()? > acked_at).then_some(())).await;
    server.kill().await;
    std::fs::remove_dir_all(folder.join("msgs")).unwrap();
    if lost == Lost::Removals {
        copy(backup.path(), &folder.join("msgs"));
    }
    server.start_again().await.unwrap();
    Crashed { _server: server, queue, messages }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acked_messages_restored_by_a_crash_leave_the_lane() {
    let Crashed { _server, queue, messages } = after_a_crash(Lost::Removals).await;
    // A repeated delivery finds in the store that the work is done, and is acked again.
    for _ in 0..ACKED {
        must_fetch(&queue).await.ack().await.unwrap();
    }
    assert_eq!(must_publish(&queue, messages[usize::from(ACKED)]).await, Published::Queued);
    assert_eq!(must_fetch(&queue).await.message(), &messages[usize::from(ACKED)]);
}

/// The server numbers new messages from 1, and its consumer has already seen those numbers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_emptied_by_a_crash_delivers_new_messages() {
    let Crashed { _server, queue, messages } = after_a_crash(Lost::Messages).await;
    assert_eq!(must_publish(&queue, messages[0]).await, Published::Queued);
    assert_eq!(must_fetch(&queue).await.message(), &messages[0]);
}

/// That is safe: the work is done, and a repeated delivery finds that in the store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_ack_removes_a_message_that_was_redelivered() {
    let server = Nats::start().await.unwrap();
    let options = QueueOptions { ack_wait: Duration::from_millis(500), ..QueueOptions::default() };
    let (zombies, others) = (a_queue(&server, options.clone()).await, a_queue(&server, options).await);
    let message = messages(1)[0];
    zombies.publish(&LANE, message).await.unwrap();
    let zombie = must_fetch(&zombies).await;
    let other = must_fetch(&others).await;
    assert_eq!(other.deliveries(), 2);
    zombie.ack().await.unwrap();
    assert_eq!(others.publish(&LANE, message).await.unwrap(), Published::Queued);
    other.ack().await.unwrap();
    assert_eq!(others.publish(&LANE, message).await.unwrap(), Published::AlreadyOutstanding);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_abandoned_fetch_puts_back_a_message_in_flight() {
    let server = Nats::start().await.unwrap();
    let options = QueueOptions { ack_wait: Duration::from_mins(10), ..QueueOptions::default() };
    let queue = a_queue(&server, options).await;
    for message in messages(20) {
        assert!(queue.fetch(&LANE, 1, INSTANT).await.unwrap().is_empty());
        let fetch = queue.fetch(&LANE, 1, SECONDS);
        tokio::select! {
            biased;
            // The server sends the message to the waiting fetch when it confirms it to the publisher.
            published = queue.publish(&LANE, message) => assert_eq!(published.unwrap(), Published::Queued),
            fetched = fetch => { fetched.unwrap().pop().unwrap().ack().await.unwrap(); continue },
        }
        must_fetch(&queue).await.ack().await.unwrap();
    }
    queue.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_times_out_while_the_server_is_unreachable() {
    let mut server = Nats::start().await.unwrap();
    let queue = a_queue(&server, QueueOptions::default()).await;
    let messages = messages(4);
    for message in &messages[..3] {
        queue.publish(&LANE, *message).await.unwrap();
    }
    let mut in_hand = queue.fetch(&LANE, 3, INSTANT).await.unwrap();
    server.kill().await;
    let wait = Duration::from_secs(1);
    let begun = Instant::now();
    let (acked, refused) = (in_hand.pop().unwrap(), in_hand.pop().unwrap());
    let calls = tokio::join!(
        async { queue.publish(&LANE, messages[0]).await.map(drop) },
        async { queue.fetch(&LANE, 1, wait).await.map(drop) },
        queue.ping(),
        acked.ack(),
        refused.nak(wait),
    );
    let took = begun.elapsed();
    assert!(took < 2 * CALL_MAX + wait, "{took:?}");
    let results = [calls.0, calls.1, calls.2, calls.3, calls.4];
    assert!(results.iter().all(|call| matches!(call, Err(QueueError::Unavailable(_)))), "{results:?}");

    server.start_again().await.unwrap();
    // A killed server may have forgotten its deliveries, and does not answer their acks.
    must_publish(&queue, messages[3]).await;
    must_fetch(&queue).await.ack().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_may_start_before_its_server() {
    let mut server = Nats::start().await.unwrap();
    server.kill().await;
    let options = ConnectionOptions { call_max: Duration::from_millis(500), ..to(&server) };
    let failed = NatsQueue::connect(&options, QueueOptions::default()).await;
    assert!(matches!(failed.err(), Some(NatsError::Connect(_))));

    let options = ConnectionOptions { at_start: AtStart::Retry, ..options };
    let queue = NatsQueue::connect(&options, QueueOptions::default()).await.unwrap();
    assert_eq!(queue.server_version(), None);
    assert!(matches!(queue.ping().await, Err(QueueError::Unavailable(_))));
    server.start_again().await.unwrap();
    must_publish(&queue, messages(1)[0]).await;
    assert_eq!(queue.server_version().unwrap().to_string(), server.version());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_with_new_options_updates_the_stream_in_place() {
    let server = Nats::start().await.unwrap();
    let before = a_queue(&server, QueueOptions::default()).await;
    before.publish(&LANE, messages(1)[0]).await.unwrap();
    let options =
        QueueOptions { lane_messages_max: 1, ack_wait: Duration::from_secs(7), ..QueueOptions::default() };
    let after = a_queue(&server, options).await;
    drop(must_fetch(&after).await);
    let refused = after.publish(&LANE, messages(2)[1]).await;
    assert!(matches!(refused, Err(QueueError::Full { messages_max: 1, .. })), "{refused:?}");
}

/// During a rollout, processes with the old and the new options share a stream.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reconnect_does_not_restore_old_stream_options() {
    let mut server = Nats::start().await.unwrap();
    let before = a_queue(&server, QueueOptions::default()).await;
    must_publish(&before, messages(1)[0]).await;
    let after = a_queue(&server, QueueOptions { lane_messages_max: 7, ..QueueOptions::default() }).await;
    must_publish(&after, messages(2)[1]).await;
    server.start_again().await.unwrap();
    for queue in [&after, &before] {
        must_fetch(queue).await.ack().await.unwrap();
    }
    must_publish(&before, messages(3)[2]).await;
    let stream = js(&server).await.get_stream(STREAM).await.unwrap();
    assert_eq!(stream.cached_info().config.max_messages, 7);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lanes_storage_can_change_to_memory_and_back() {
    let server = Nats::start().await.unwrap();
    for (storage, kept) in [
        (Storage::File, StorageType::File),
        (Storage::Memory, StorageType::Memory),
        (Storage::File, StorageType::File),
    ] {
        let queue = a_queue(&server, QueueOptions { storage, ..QueueOptions::default() }).await;
        must_publish(&queue, messages(1)[0]).await;
        let stream = js(&server).await.get_stream(STREAM).await.unwrap();
        assert_eq!(stream.cached_info().config.storage, kept);
        must_fetch(&queue).await.ack().await.unwrap();
        queue.close().await;
    }
}

/// A message of a newer process waits for one that can decode it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_undecodable_message_does_not_block_others() {
    let server = Nats::start().await.unwrap();
    let queue = a_queue(&server, QueueOptions::default()).await;
    assert!(queue.fetch(&LANE, 1, INSTANT).await.unwrap().is_empty());
    let js = js(&server).await;
    for (task, body) in [("a", "nonsense"), ("b", r#"{"version":2,"something":"new"}"#)] {
        let subject = format!("podium.work.ultra.plan.run.{task}");
        js.publish(subject, body.into()).await.unwrap().await.unwrap();
    }
    queue.publish(&LANE, messages(1)[0]).await.unwrap();
    assert_eq!(must_fetch(&queue).await.message(), &messages(1)[0]);
    assert_eq!(js.get_stream(STREAM).await.unwrap().cached_info().state.messages, 3);
}

#[tokio::test]
async fn every_call_times_out_while_the_network_drops_all_packets() {
    let server = Nats::start().await.unwrap();
    let wire = Wire::start(server.address()).await.unwrap();
    let options = ConnectionOptions { servers: vec![format!("nats://{}", wire.address())], ..to(&server) };
    let queue = NatsQueue::connect(&options, QueueOptions::default()).await.unwrap();
    queue.ping().await.unwrap();
    wire.hold();
    let asked = Instant::now();
    queue.ping().await.unwrap_err();
    queue.publish(&LANE, messages(1)[0]).await.unwrap_err();
    assert!(asked.elapsed() < CALL_MAX * 4, "{:?}", asked.elapsed());
    wire.release();
    until(async || queue.ping().await.ok()).await;
    queue.close().await;
}
