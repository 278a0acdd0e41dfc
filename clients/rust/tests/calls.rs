//! The client against a scripted server: retries, resumed watches, deadlines, errors, TLS.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test's failure is a panic")]

mod scripted;

use std::time::Duration;

use podium_client::v1::watch_run_response::Update;
use podium_client::v1::{CreateRunRequest, RunEvent};
use podium_client::{AnswerPart, Client, Code, RetryPolicy};
use podium_harness::Authority;
use tonic::Status;
use tonic::transport::{Certificate, Identity, ServerTlsConfig};
use tonic_types::{ErrorDetails, StatusExt as _};

use crate::scripted::{Scripted, Server, Watched, event, succeeded, text};

const PATIENCE: Duration = Duration::from_secs(30);

/// Without long pauses.
fn quick() -> RetryPolicy {
    RetryPolicy {
        backoff_initial: Duration::from_millis(1),
        backoff_max: Duration::from_millis(5),
        ..RetryPolicy::default()
    }
}

fn client(server: &Server) -> Client {
    Client::builder(server.url()).retry(quick()).build().unwrap()
}

async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.expect("it takes too long")
}

fn question() -> CreateRunRequest {
    CreateRunRequest::question("Why is the sky blue?")
}

#[tokio::test]
async fn a_repeated_creation_has_the_same_request_id() {
    let server = Scripted::default().failing(Status::unavailable("busy"), 2).start().await;
    let created = soon(client(&server).create(question())).await.unwrap();
    let ids = server.request_ids();
    assert_eq!(ids.len(), 3);
    assert!(ids.iter().all(|id| *id == ids[0] && !id.is_empty()), "{ids:?}");
    assert_eq!(created.run.request_id, ids[0]);
    soon(client(&server).create(question())).await.unwrap();
    assert_ne!(server.request_ids()[3], ids[0], "another request has another id");
}

#[tokio::test]
async fn only_transient_errors_are_repeated_and_not_forever() {
    for (status, attempts) in [
        (Status::unavailable("busy"), 5),
        (Status::aborted("conflict"), 5),
        (Status::resource_exhausted("no budget"), 1),
        (Status::failed_precondition("ended"), 1),
    ] {
        let code = status.code();
        let server = Scripted::default().failing(status, 100).start().await;
        let error = soon(client(&server).create(question())).await.unwrap_err();
        assert_eq!((error.code(), server.request_ids().len()), (Some(code), attempts));
    }
}

fn later(pause: Duration) -> Status {
    let mut details = ErrorDetails::new();
    details.set_retry_info(Some(pause));
    Status::with_error_details(Code::Unavailable, "later", details)
}

#[tokio::test]
async fn a_pause_that_the_server_asks_for_is_kept() {
    let pause = Duration::from_millis(300);
    let server = Scripted::default().failing(later(pause), 1).start().await;
    soon(client(&server).create(question())).await.unwrap();
    let times = server.times();
    assert!(times[1] - times[0] >= pause, "{times:?}");
}

#[tokio::test]
async fn a_pause_that_is_longer_than_the_deadline_is_not_waited_for() {
    let server = Scripted::default().failing(later(Duration::from_hours(1)), 1).start().await;
    let error = soon(client(&server).create(question())).await.unwrap_err();
    assert_eq!((error.code(), server.request_ids().len()), (Some(Code::Unavailable), 1));
}

#[tokio::test]
async fn a_deadline_is_sent_and_ends_a_call_that_has_no_answer() {
    let server = Scripted::default().silent().start().await;
    let hurried = client(&server).with_deadline(Some(Duration::from_millis(200)));
    let error = soon(hurried.create(question())).await.unwrap_err();
    assert_eq!(error.code(), Some(Code::DeadlineExceeded), "{error}");
    let sent = server.timeouts();
    assert!(sent.iter().all(Option::is_some) && sent.len() == 1, "{sent:?}");
}

#[tokio::test]
async fn an_error_has_the_field_the_reason_and_the_cause() {
    let mut details = ErrorDetails::new();
    details.set_error_info("INVALID_VALUE", "podium", [] as [(String, String); 0]);
    details.add_bad_request_violation("policy.steps_max", "must be at most 16 (got 99)");
    let status = Status::with_error_details(Code::InvalidArgument, "steps_max is 99", details);
    let server = Scripted::default().failing(status, 1).start().await;
    let error = soon(client(&server).create(question())).await.unwrap_err();
    let call = error.call().unwrap();
    assert_eq!((call.method, call.reason.as_deref()), ("CreateRun", Some("INVALID_VALUE")));
    assert_eq!(call.fields[0].field, "policy.steps_max");
    assert!(std::error::Error::source(call).is_some());
}

async fn events(client: &Client, after: u64) -> (Vec<u64>, String) {
    let (mut sequences, mut written) = (Vec::new(), String::new());
    let mut watch = client.watch("run", after);
    while let Some(update) = soon(watch.next()).await {
        match update.unwrap() {
            Update::Event(RunEvent { sequence, .. }) => sequences.push(sequence),
            Update::StepText(text) => written.push_str(&text.text),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(watch.sequence(), *sequences.last().unwrap_or(&after));
    (sequences, written)
}

#[tokio::test]
async fn a_broken_watch_resumes_without_a_gap_or_a_repetition() {
    let server = Scripted::default()
        .watched(Watched {
            updates: vec![event(1), text(0, "blue "), event(2)],
            end: Some(Status::unavailable("stopping")),
        })
        // A server that repeats what the caller has.
        .watched(Watched {
            updates: vec![event(1), event(2), text(0, "blue "), text(5, "light"), event(3)],
            end: Some(Status::unknown("reset")),
        })
        // A stream that ends too early without an error.
        .watched(Watched { updates: vec![text(0, "blue light")], end: None })
        // A gap.
        .watched(Watched { updates: vec![succeeded(5)], end: None })
        .watched(Watched { updates: vec![event(4), text(10, "!"), succeeded(5)], end: None })
        .start()
        .await;
    let (sequences, written) = events(&client(&server), 0).await;
    assert_eq!((sequences, written.as_str()), (vec![1, 2, 3, 4, 5], "blue light!"));
    assert_eq!(server.watched_after(), [0, 2, 3, 3, 3]);
}

#[tokio::test]
async fn a_watch_after_the_end_of_a_run_ends() {
    let server = Scripted::default().ended_at(5).start().await;
    assert_eq!(events(&client(&server), 5).await, (Vec::new(), String::new()));
}

#[tokio::test]
async fn a_watch_gives_up_after_its_time_and_says_why() {
    let server = Scripted::default().start().await;
    let retry = RetryPolicy { resume_within: Duration::from_millis(30), ..quick() };
    let client = Client::builder(server.url()).retry(retry).build().unwrap();
    server.stop().await;
    let mut watch = client.watch("run", 0);
    let error = soon(watch.next()).await.unwrap().unwrap_err();
    assert_eq!(error.code(), Some(Code::Unavailable), "{error}");
    assert!(soon(watch.next()).await.is_none(), "the stream ends after its error");
}

#[tokio::test]
async fn an_error_that_no_retry_repairs_ends_a_watch() {
    let end = Some(Status::not_found("unknown run"));
    let server = Scripted::default().watched(Watched { updates: vec![event(1)], end }).start().await;
    let client = client(&server);
    let mut watch = client.watch("run", 0);
    assert!(soon(watch.next()).await.unwrap().is_ok());
    assert_eq!(soon(watch.next()).await.unwrap().unwrap_err().code(), Some(Code::NotFound));
    assert_eq!(server.watched_after(), [0]);
}

#[tokio::test]
async fn an_answer_is_complete_although_text_was_lost_with_the_connection() {
    let server = Scripted::default()
        .watched(Watched {
            updates: vec![event(1), text(0, "blue ")],
            end: Some(Status::unavailable("stopping")),
        })
        .watched(Watched { updates: vec![text(11, "scatters"), succeeded(2)], end: None })
        .answering("blue light scatters")
        .start()
        .await;
    let mut answer = soon(client(&server).ask(question())).await.unwrap();
    let (mut written, mut ended) = (String::new(), None);
    while let Some(part) = soon(answer.next()).await {
        match part.unwrap() {
            AnswerPart::Text(text) => written.push_str(&text),
            AnswerPart::Ended(run) => ended = Some(run),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((written.as_str(), ended.unwrap().answer()), ("blue light scatters", "blue light scatters"));
}

#[tokio::test]
async fn a_list_reads_all_pages() {
    use futures::TryStreamExt as _;

    let server = Scripted::default().start().await;
    let runs: Vec<_> = soon(client(&server).list().try_collect()).await.unwrap();
    let ids: Vec<_> = runs.iter().map(|run| run.run_id.as_str()).collect();
    assert_eq!(ids, ["c", "b", "a"]);
    let some = client(&server).list_matching("tier = mini");
    assert_eq!(soon(some.try_collect::<Vec<_>>()).await.unwrap().len(), 3);
    assert_eq!(server.filters(), ["", "", "tier = mini", "tier = mini"]);
}

#[tokio::test]
async fn a_key_is_sent_with_every_call() {
    let server = Scripted::default().start().await;
    let client = Client::builder(server.url()).api_key("sk-1").build().unwrap();
    soon(client.create(question())).await.unwrap();
    assert_eq!(server.keys(), ["Bearer sk-1"]);
}

#[tokio::test]
async fn a_private_authority_is_trusted_and_a_client_proves_its_identity() {
    let authority = Authority::new().unwrap();
    let own = authority.issue("server", &["localhost"]).unwrap();
    let caller = authority.issue("caller", &[]).unwrap();
    let read = |path: &std::path::Path| std::fs::read(path).unwrap();
    let root = read(&authority.root());
    let tls = ServerTlsConfig::new()
        .identity(Identity::from_pem(read(&own.certificate), read(&own.key)))
        .client_ca_root(Certificate::from_pem(&root));
    let server = Scripted::default().start_secured(tls).await;
    let builder = || Client::builder(server.secure_url("localhost")).retry(quick());

    let (certificate, key) = (read(&caller.certificate), read(&caller.key));
    let trusted = builder().ca_certificate(&root).identity(&certificate, &key);
    soon(trusted.clone().connect()).await.unwrap().get("run").await.unwrap();
    let renamed = Client::builder(server.secure_url("127.0.0.1")).retry(quick()).ca_certificate(&root);
    let renamed = renamed.identity(&certificate, &key);
    soon(renamed.clone().server_name("localhost").connect()).await.unwrap().get("run").await.unwrap();

    let unknown_name = soon(renamed.connect()).await;
    assert!(unknown_name.is_err(), "the name is not in the certificate");
    let other = Authority::new().unwrap();
    let distrusting = builder().ca_certificate(read(&other.root())).identity(&certificate, &key);
    assert!(soon(distrusting.connect()).await.is_err(), "another authority signed the certificate");
    // TLS 1.3 rejects a missing client certificate with the first call.
    let anonymous = builder().ca_certificate(&root).build().unwrap();
    assert!(soon(anonymous.get("run")).await.is_err(), "the server asks for a certificate");
}
