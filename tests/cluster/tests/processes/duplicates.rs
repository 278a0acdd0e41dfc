//! A message says that a task may be ready. A thousand duplicates of it change nothing: one call, one output. The test writes the
//! duplicates directly into the server's streams, under all subjects that they accept.

use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::{self, Context};
use bytes::Bytes;
use futures::TryStreamExt as _;
use podium_api::v1;
use podium_local_cluster::{Cluster, Shape};
use podium_vendor_sim::{Behaviour, Milliseconds};

use crate::client::connect;

const DUPLICATES: usize = 1_000;
const CALL_MS: u64 = 3_000;
const WAIT_MAX: Duration = Duration::from_mins(1);

/// A message of a step, as stored in a stream.
struct Original {
    stream: String,
    sequence: u64,
    subject: String,
    body: Bytes,
}

/// All streams. The server is private to the test.
async fn streams(context: &Context) -> Vec<String> {
    context.stream_names().try_collect().await.unwrap_or_default()
}

/// The number of messages in all streams, including those in flight.
async fn outstanding(context: &Context) -> u64 {
    let mut messages = 0;
    for stream in streams(context).await {
        let stream = context.get_stream(&stream).await.unwrap();
        messages += stream.get_info().await.unwrap().state.messages;
    }
    messages
}

/// The only outstanding message of a step.
async fn the_steps_message(context: &Context) -> Option<Original> {
    for name in streams(context).await {
        let stream = context.get_stream(&name).await.ok()?;
        let subjects: Vec<_> = stream.info_with_subjects(">").await.ok()?.try_collect().await.ok()?;
        let found = subjects.into_iter().find(|(subject, _)| subject.contains("step-"));
        if let Some((subject, _)) = found {
            let message = stream.get_last_raw_message_by_subject(&subject).await.ok()?;
            let (sequence, body) = (message.sequence, message.payload);
            return Some(Original { stream: name, sequence, subject, body });
        }
    }
    None
}

/// Publishes `count` duplicates of the original: with new ids on sibling subjects, all outstanding at the same time, and on its own
/// subject, which the server accepts once the previous message is removed.
async fn duplicate(context: &Context, original: &Original, series: &str) {
    let (sibling, _task) = original.subject.rsplit_once('.').unwrap();
    let stream = context.get_stream(&original.stream).await.unwrap();
    let mut sequence = original.sequence;
    for number in 0..DUPLICATES {
        let on_its_own_subject = number % 10 == 0;
        if on_its_own_subject {
            // The original may have been acked and removed.
            stream.delete_message(sequence).await.ok();
        }
        let subject = if on_its_own_subject {
            original.subject.clone()
        } else {
            format!("{sibling}.{series}-{number}")
        };
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Msg-Id", format!("{series}-{number}"));
        let stored =
            context.publish_with_headers(subject, headers, original.body.clone()).await.unwrap().await;
        match stored {
            Ok(stored) if on_its_own_subject => sequence = stored.sequence,
            Ok(_) => {}
            // The sweeper was faster.
            Err(_) if on_its_own_subject => {}
            Err(error) => panic!("a duplicate was not stored: {error}"),
        }
    }
}

async fn finished(cluster: &Cluster, run_id: &str) -> (v1::Run, Vec<v1::RunEvent>) {
    let mut gateway = connect(cluster.gateways[0].address(1)).await.unwrap();
    let watch = v1::WatchRunRequest { run_id: run_id.to_owned(), after_sequence: 0 };
    let mut updates = gateway.watch_run(watch).await.unwrap().into_inner();
    let mut events = Vec::new();
    while let Some(update) = updates.message().await.unwrap() {
        if let Some(v1::watch_run_response::Update::Event(event)) = update.update {
            events.push(event);
        }
    }
    let read = v1::GetRunRequest { run_id: run_id.to_owned() };
    (gateway.get_run(read).await.unwrap().into_inner().run.unwrap(), events)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_duplicate_messages_cause_one_call() {
    // All duplicates fit the lane.
    let settings = vec![("lane_messages_max", (4 * DUPLICATES).to_string())];
    let shape = Shape { settings, ..Shape::new(1, 1, 2, "direct:sim-arithmetic") };
    let mut cluster = crate::start(&shape).await;
    let slow = Behaviour { first_token_ms: Milliseconds::fixed(CALL_MS), ..Behaviour::default() };
    cluster.workers.set_behaviour("sim-arithmetic", slow).unwrap();
    let context = jetstream::new(async_nats::connect(cluster.nats.url()).await.unwrap());

    // No executor runs: the original and its duplicates wait until two executors start.
    for executor in &mut cluster.executors {
        executor.kill().await.unwrap();
    }
    let request = v1::CreateRunRequest {
        messages: vec![v1::Message {
            role: v1::Role::User.into(),
            text: "20 + 22".to_owned(),
            ..Default::default()
        }],
        ..v1::CreateRunRequest::default()
    };
    let run_id = {
        let mut gateway = connect(cluster.gateways[0].address(1)).await.unwrap();
        gateway.create_run(request).await.unwrap().into_inner().run.unwrap().run_id
    };
    let original =
        crate::until("a step's message", WAIT_MAX, async || the_steps_message(&context).await).await;
    duplicate(&context, &original, "before").await;
    assert!(outstanding(&context).await > DUPLICATES as u64 * 8 / 10, "they wait all at once");
    for executor in &mut cluster.executors {
        executor.start_again().await.unwrap();
    }
    // The same number again during the call, and after it.
    cluster.workers.wait_for(|calls| !calls.is_empty()).await;
    duplicate(&context, &original, "during").await;
    let (run, _) = finished(&cluster, &run_id).await;
    assert_eq!(run.answer.as_deref(), Some("42"));
    duplicate(&context, &original, "after").await;
    crate::until("all messages are taken", WAIT_MAX, async || {
        (outstanding(&context).await == 0).then_some(())
    })
    .await;

    let (run, events) = finished(&cluster, &run_id).await;
    let outputs = events.iter().filter(|event| matches!(event.kind, Some(v1::run_event::Kind::StepDone(_))));
    assert_eq!(outputs.count(), 1, "{events:#?}");
    assert_eq!(run.rounds[0].steps[0].attempts.len(), 1, "{run:#?}");
    assert_eq!(cluster.workers.calls().len(), 1, "{:#?}", cluster.workers.calls());
    cluster.stop().await.unwrap();
}
