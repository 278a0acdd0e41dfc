//! Whether a process can do its own job, and what it stands on.

use std::fmt;
use std::time::Duration;

use podium_ports::BoxError;
use podium_ports::clock::Skew;

use crate::engine::Engine;

/// How long a part has to answer. A probe that waits for a second gets its answer.
const ANSWER_MAX: Duration = Duration::from_millis(700);

/// What a process stands on, as it was a moment ago.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// Each part.
    pub parts: Vec<PartState>,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartState {
    /// Which: `store`, `queue`, `clock`, `limiter`.
    pub part: &'static str,
    /// Whether the process cannot do its job without it.
    pub is_needed: bool,
    /// What is wrong with it; none: it is up.
    pub problem: Option<String>,
    /// More about it.
    pub note: Option<String>,
}

/// A part that the process needs does not work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct NotReady {
    /// Which part.
    pub part: &'static str,
    /// What is wrong with it.
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

/// A line for each part, after one for all of them.
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

impl Engine {
    /// The state of the store, the queue and the clock, within a second. A process that only accepts runs is ready without the
    /// queue: they wait in the store.
    pub async fn readiness(&self) -> Readiness {
        let (store, queue) = (&self.parts().store, &self.parts().queue);
        let ping_store = async { store.ping().await.map_err(Into::into) };
        let ping_queue = async { queue.ping().await.map_err(Into::into) };
        let (store, queue) =
            futures::join!(self.answers("store", ping_store), self.answers("queue", ping_queue));
        let skew = self.parts().clock.skew();
        let excess = skew.filter(|skew| skew.is_excessive());
        let clock = PartState {
            part: "clock",
            is_needed: true,
            problem: excess.map(|skew| format!("{skew}; at most {} ms are allowed", skew.max.as_millis())),
            note: if excess.is_some() { None } else { skew.as_ref().map(Skew::to_string) },
        };
        let part = |part, is_needed, problem| PartState { part, is_needed, problem, note: None };
        Readiness { parts: vec![part("store", true, store), part("queue", self.is_at_work(), queue), clock] }
    }

    /// Whether the process can do its job.
    pub async fn ready(&self) -> Result<(), NotReady> {
        self.readiness().await.outcome()
    }

    /// What is wrong with a part that was asked for an answer.
    async fn answers(
        &self,
        part: &'static str,
        ping: impl Future<Output = Result<(), BoxError>>,
    ) -> Option<String> {
        let answer = tokio::select! {
            biased;
            answer = ping => answer,
            () = self.parts().clock.sleep(ANSWER_MAX) => Err("no answer in time".into()),
        };
        let error = answer.err()?;
        tracing::debug!(part, error = &*error as &dyn std::error::Error, "no answer");
        Some(format!("the {part} does not answer"))
    }
}
