//! Readiness: whether a process can do its work, and the state of the parts that it needs.

use std::fmt;
use std::time::Duration;

use podium_ports::BoxError;
use podium_ports::clock::Skew;

use crate::context::Context;

/// Time limit of a part's answer, so that a probe gets its answer within a second.
const ANSWER_MAX: Duration = Duration::from_millis(700);

/// The state of a process' parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// The state of each part.
    pub parts: Vec<PartState>,
}

/// The state of one part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartState {
    /// The name: `store`, `queue`, `clock` or `limiter`.
    pub part: &'static str,
    /// Whether the process cannot work without it.
    pub is_needed: bool,
    /// The problem; `None` if it is up.
    pub problem: Option<String>,
    /// More information.
    pub note: Option<String>,
}

/// A part that the process needs does not work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct NotReady {
    /// The part.
    pub part: &'static str,
    /// The problem.
    pub problem: String,
}

impl Readiness {
    /// Ready, or the first part that is missing.
    pub fn outcome(&self) -> Result<(), NotReady> {
        let missing = self.parts.iter().filter(|part| part.is_needed);
        let mut missing = missing.filter_map(|part| Some((part.part, part.problem.clone()?)));
        missing.next().map_or(Ok(()), |(part, problem)| Err(NotReady { part, problem }))
    }
}

/// One line for all parts, then one for each.
impl fmt::Display for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", if self.outcome().is_ok() { "ready" } else { "not ready" })?;
        for PartState { part, is_needed, problem, note } in &self.parts {
            write!(f, "{part}: {}", if problem.is_none() { "up" } else { "down" })?;
            for text in problem.iter().chain(note) {
                write!(f, ", {text}")?;
            }
            writeln!(f, "{}", if *is_needed { "" } else { " (not needed for readiness)" })?;
        }
        Ok(())
    }
}

/// The state of the store, the queue and the clock, within a second. A process that only accepts runs is ready without the queue: the
/// tasks wait in the store.
pub(crate) async fn readiness(context: &Context) -> Readiness {
    let (store, queue) = (&context.parts().store, &context.parts().queue);
    let ping_store = async { store.ping().await.map_err(Into::into) };
    let ping_queue = async { queue.ping().await.map_err(Into::into) };
    let (store, queue) =
        futures::join!(problem(context, "store", ping_store), problem(context, "queue", ping_queue));
    let skew = context.parts().clock.skew();
    let excess = skew.filter(|skew| skew.is_excessive());
    let clock = PartState {
        part: "clock",
        is_needed: true,
        problem: excess.map(|skew| format!("{skew}; at most {} ms are allowed", skew.max.as_millis())),
        note: if excess.is_some() { None } else { skew.as_ref().map(Skew::to_string) },
    };
    let part = |part, is_needed, problem| PartState { part, is_needed, problem, note: None };
    Readiness { parts: vec![part("store", true, store), part("queue", context.takes_tasks(), queue), clock] }
}

/// The problem with a part, by its answer to a ping.
async fn problem(
    context: &Context,
    part: &'static str,
    ping: impl Future<Output = Result<(), BoxError>>,
) -> Option<String> {
    let answer = tokio::select! {
        biased;
        answer = ping => answer,
        () = context.parts().clock.sleep(ANSWER_MAX) => Err("no answer in time".into()),
    };
    let error = answer.err()?;
    tracing::debug!(part, error = &*error as &dyn std::error::Error, "no answer");
    Some(format!("the {part} does not answer"))
}
