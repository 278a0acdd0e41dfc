//! Calls each worker of a pool once, to check whether it answers.

use std::fmt;
use std::time::Duration;

use futures::{StreamExt, stream};
use podium_domain::conversation::{Message, Role};
use podium_domain::ids::WorkerId;
use podium_domain::money::Cost;
use podium_domain::pool::{Pool, Worker};
use podium_domain::usage::Usage;
use podium_ports::causes::with_causes;
use podium_ports::clock::Clock as _;
use podium_ports::vendor::{ChatEvent, ChatRequest, FinishReason, VendorError, Vendors};
use podium_setup::SystemClock;
use podium_vendors::{EnvironmentKeys, HttpVendors};
use tokio::time::Instant;

use crate::error::Error;

/// Concurrent calls.
const CALLS_MAX: usize = 8;
/// Most tokens of an answer. Workers that reason need some before they write the first word.
const ANSWER_TOKENS_MAX: u32 = 2048;
const QUESTION: &str = "What is two plus three? Reply with the number alone.";

/// The result of a call: an answer, or the problem, for people.
pub(crate) type Outcome = Result<Answered, String>;

/// A worker that answered.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answered {
    first_text: Duration,
    whole: Duration,
    finish: FinishReason,
    /// `None` if the vendor did not count.
    usage: Option<(Usage, Cost)>,
}

impl fmt::Display for Answered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "first text after {} ms, end after {} ms",
            self.first_text.as_millis(),
            self.whole.as_millis()
        )?;
        match self.usage {
            Some((usage, cost)) => {
                let Usage { prompt_tokens, completion_tokens, .. } = usage;
                write!(f, ", {prompt_tokens} + {completion_tokens} tokens, {cost}")?;
            }
            None => f.write_str(", tokens not counted by the vendor")?,
        }
        if self.finish == FinishReason::Stop { Ok(()) } else { write!(f, ", ended by {:?}", self.finish) }
    }
}

/// A sentence for each missing secret of the pool.
pub(crate) fn missing_secrets(pool: &Pool) -> Result<Vec<String>, Error> {
    let vendors = HttpVendors::new(pool, &EnvironmentKeys).map_err(|e| Error::Vendors(Box::new(e)))?;
    Ok(vendors.missing_secrets().collect())
}

/// Calls each worker once, in the order of the pool.
pub(crate) async fn each(pool: &Pool) -> Result<Vec<(WorkerId, Outcome)>, Error> {
    let vendors = HttpVendors::new(pool, &EnvironmentKeys).map_err(|e| Error::Vendors(Box::new(e)))?;
    let calls = stream::iter(pool.workers()).map(|worker| {
        let vendors = &vendors;
        async move { (worker.id.clone(), one(vendors, worker).await) }
    });
    Ok(calls.buffered(CALLS_MAX).collect().await)
}

async fn one(vendors: &dyn Vendors, worker: &Worker) -> Outcome {
    call(vendors, worker).await.unwrap_or_else(|error| Err(with_causes(&error)))
}

async fn call(vendors: &dyn Vendors, worker: &Worker) -> Result<Outcome, VendorError> {
    let began = Instant::now();
    let prices = worker.prices.at(SystemClock.now());
    let request = ChatRequest::new(vec![Message::new(Role::User, QUESTION)], ANSWER_TOKENS_MAX);
    let mut answer = vendors.chat(worker, &request).await?;
    let mut first_text = None;
    while let Some(event) = answer.next().await {
        match event? {
            ChatEvent::Delta(_) => {
                first_text.get_or_insert_with(|| began.elapsed());
            }
            ChatEvent::Finished { reason, usage } => {
                let usage = usage.map(|usage| (usage, prices.cost(&usage)));
                let whole = began.elapsed();
                let empty = || format!("an empty answer, ended by {reason:?}");
                let answered = |first_text| Answered { first_text, whole, finish: reason, usage };
                return Ok(first_text.map(answered).ok_or_else(empty));
            }
            _ => {}
        }
    }
    Ok(Err("an answer without an end".to_owned()))
}
