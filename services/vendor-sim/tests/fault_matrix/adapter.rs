//! The adapters' result in each case.

use std::time::Duration;

use futures::StreamExt;
use podium_domain::conversation::{Message, Role};
use podium_domain::pool::{Pool, Worker};
use podium_ports::vendor::{ChatEvent, ChatRequest, Vendors};
use podium_vendors::HttpVendors;

use crate::cases::{Case, Cell, Outcome, cases, text_bytes};
use crate::house::{Delivery, FORMATS, House, QUESTION};

/// A timeout against hanging tests; durations are not asserted.
const PATIENCE: Duration = Duration::from_mins(3);

/// The outcome of one call for its caller.
struct Received {
    outcome: Outcome,
    is_retryable: bool,
    text_bytes: usize,
    /// Whether it was unstreamed and broke off.
    is_unread: bool,
    has_usage: bool,
}

async fn call(vendors: &HttpVendors, worker: &Worker) -> Received {
    let request = ChatRequest::new(vec![Message::new(Role::User, QUESTION)], 16_384);
    let mut events = Vec::new();
    let error = match vendors.chat(worker, &request).await {
        Err(error) => Some(error),
        Ok(mut answer) => loop {
            match answer.next().await {
                Some(Ok(event)) => events.push(event),
                Some(Err(error)) => break Some(error),
                None => break None,
            }
        },
    };
    let text_bytes = text_bytes(&events);
    let has_usage = matches!(events.last(), Some(ChatEvent::Finished { usage: Some(_), .. }));
    let outcome = error.as_ref().map_or(Outcome::Answered(text_bytes), Outcome::of);
    let is_retryable = error.is_some_and(|error| error.is_retryable());
    let is_unread = events.iter().any(|event| matches!(event, ChatEvent::Unread(1..)));
    Received { outcome, is_retryable, text_bytes, is_unread, has_usage }
}

/// The difference between a cell's expected and actual result, if any.
async fn problem(case: &Case, cell: &Cell<'_>, pool: &Pool, vendors: &HttpVendors) -> Option<String> {
    let worker = pool.workers().iter().find(|worker| worker.id.as_str() == cell.1).unwrap();
    let Ok(received) = tokio::time::timeout(PATIENCE, call(vendors, worker)).await else {
        return Some(format!("{cell}: it hangs"));
    };
    let is_answer = matches!(case.becomes, Outcome::Answered(_));
    let has_begun = case.has_begun && (cell.2 == Delivery::Streamed || is_answer);
    if received.outcome != case.becomes {
        return Some(format!("{cell}: {:?} instead of {:?}", received.outcome, case.becomes));
    }
    if received.is_retryable != case.becomes.is_retryable() || received.has_usage != is_answer {
        let Received { is_retryable, has_usage, .. } = received;
        return Some(format!("{cell}: retryable: {is_retryable}, has usage: {has_usage}"));
    }
    let is_unread = case.has_begun && !has_begun;
    let Received { text_bytes, is_unread: was_unread, .. } = received;
    ((has_begun, is_unread) != (text_bytes > 0, was_unread))
        .then(|| format!("{cell}: {text_bytes} bytes of text, unread: {was_unread}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_fault_is_the_same_error_in_every_format() {
    let house = House::new().await;
    let (mut problems, mut cells) = (Vec::new(), 0);
    for case in cases() {
        let pool = house.pool(&case);
        let vendors = house.vendors(&pool);
        for format in FORMATS {
            for delivery in Delivery::BOTH {
                house.script(&case, delivery, 1);
                problems.extend(problem(&case, &Cell(&case, format, delivery), &pool, &vendors).await);
                cells += 1;
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert_eq!(cells, 24 * 4 * 2);
}
