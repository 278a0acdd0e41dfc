//! What the adapters make of each case.

use std::time::Duration;

use futures::StreamExt;
use podium_domain::conversation::{Message, Role};
use podium_domain::pool::{Pool, Worker};
use podium_ports::vendor::{ChatEvent, ChatRequest, Vendors};
use podium_vendors::HttpVendors;

use crate::cases::{Case, Cell, Outcome, cases, text_bytes};
use crate::house::{Delivery, FORMATS, House, QUESTION};

/// Nothing is asserted about how long things take.
const PATIENCE: Duration = Duration::from_mins(3);

/// What a caller gets of one call.
struct Heard {
    outcome: Outcome,
    is_retryable: bool,
    text_bytes: usize,
    /// Whether it came in one piece and broke off.
    is_unread: bool,
    has_usage: bool,
}

async fn call(vendors: &HttpVendors, worker: &Worker) -> Heard {
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
    Heard { outcome, is_retryable, text_bytes, is_unread, has_usage }
}

/// What is wrong with a cell, if anything.
async fn problem(case: &Case, cell: &Cell<'_>, pool: &Pool, vendors: &HttpVendors) -> Option<String> {
    let worker = pool.workers().iter().find(|worker| worker.id.as_str() == cell.1).unwrap();
    let Ok(heard) = tokio::time::timeout(PATIENCE, call(vendors, worker)).await else {
        return Some(format!("{cell}: it hangs"));
    };
    let is_answer = matches!(case.becomes, Outcome::Answered(_));
    let says_something = case.says_something && (cell.2 == Delivery::Streamed || is_answer);
    if heard.outcome != case.becomes {
        return Some(format!("{cell}: {:?} instead of {:?}", heard.outcome, case.becomes));
    }
    if heard.is_retryable != case.becomes.may_pass() || heard.has_usage != is_answer {
        let Heard { is_retryable, has_usage, .. } = heard;
        return Some(format!("{cell}: may be tried again: {is_retryable}, says its usage: {has_usage}"));
    }
    let is_unread = case.says_something && !says_something;
    let Heard { text_bytes, is_unread: was_unread, .. } = heard;
    ((says_something, is_unread) != (text_bytes > 0, was_unread))
        .then(|| format!("{cell}: {text_bytes} bytes of text, unread: {was_unread}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_fault_is_the_same_error_in_every_format_streamed_or_not() {
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
