//! The conductors of a process: one, or two while the next one replaces the current one.

use std::sync::Arc;

use podium_domain::ids::RunId;
use podium_domain::share::Share;

use crate::conductor::Conductor;

/// The conductors of a process. Each run is assigned to one of them when it is accepted. Cheap to clone.
#[derive(Clone)]
pub struct Conductors {
    current: Arc<dyn Conductor>,
    next: Option<(Arc<dyn Conductor>, Share)>,
}

/// Both conductors have the same name and version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("conductor and conductor_next are both `{id}`; a new one needs another version")]
pub struct SameConductor {
    /// The name and version of both.
    pub id: String,
}

impl Conductors {
    /// Two conductors; the next one gets `share` of the runs that do not name a conductor.
    pub fn with_next(
        current: Arc<dyn Conductor>,
        next: Arc<dyn Conductor>,
        share: Share,
    ) -> Result<Self, SameConductor> {
        if current.id() == next.id() {
            return Err(SameConductor { id: next.id().to_owned() });
        }
        Ok(Self { current, next: Some((next, share)) })
    }

    /// The conductor that `next` will replace, or the only one.
    pub fn current(&self) -> &Arc<dyn Conductor> {
        &self.current
    }

    /// All of them, the current one first.
    pub fn all(&self) -> impl Iterator<Item = &Arc<dyn Conductor>> {
        std::iter::once(&self.current).chain(self.next.iter().map(|(next, _)| next))
    }

    /// The conductor with that name and version.
    pub fn named(&self, id: &str) -> Option<&Arc<dyn Conductor>> {
        self.all().find(|conductor| conductor.id() == id)
    }

    /// The conductor for a new run; the same run and share always give the same one.
    pub fn for_run(&self, run: RunId) -> &Arc<dyn Conductor> {
        match &self.next {
            Some((next, share)) if share.includes(run) => next,
            _ => &self.current,
        }
    }

    /// Stops all planning and frees its memory.
    pub async fn shut_down(&self) {
        for conductor in self.all() {
            conductor.shut_down().await;
        }
    }
}

impl From<Arc<dyn Conductor>> for Conductors {
    fn from(current: Arc<dyn Conductor>) -> Self {
        Self { current, next: None }
    }
}
