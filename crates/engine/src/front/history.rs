//! The events of an ended run, read from the store while the caller consumes them.

use std::collections::VecDeque;
use std::sync::Arc;

use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use podium_domain::ids::RunId;
use podium_domain::run::SequencedEvent;
use podium_ports::store::StoreError;
use tokio::sync::Semaphore;

use crate::parts::Parts;

/// Events read at a time: an event may hold a whole output, and the reader may be slow.
const PAGE: u32 = 4;

/// Most histories that read the store concurrently; the others wait. It bounds the memory for events whose length is not known yet,
/// and the connections of the store, however many clients ask.
const READS_MAX: usize = 4;

/// The permits for reading. Clones share them.
#[derive(Clone)]
pub(crate) struct Reads(Arc<Semaphore>);

impl Reads {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Semaphore::new(READS_MAX)))
    }
}

struct History {
    parts: Parts,
    reads: Reads,
    id: RunId,
    after: u64,
    page: VecDeque<SequencedEvent>,
    is_over: bool,
}

/// A run's events after `after`, up to the one that ended it.
pub(crate) fn history(
    parts: Parts,
    reads: Reads,
    id: RunId,
    after: u64,
) -> BoxStream<'static, Result<SequencedEvent, StoreError>> {
    let history = History { parts, reads, id, after, page: VecDeque::new(), is_over: false };
    stream::unfold(history, |mut history| async { Some((history.next().await.transpose()?, history)) })
        .boxed()
}

impl History {
    async fn next(&mut self) -> Result<Option<SequencedEvent>, StoreError> {
        if self.page.is_empty() && !self.is_over {
            // The semaphore is never closed.
            let _permit = self.reads.0.acquire().await.ok();
            let events = self.parts.store.events(self.id, self.after, PAGE).await;
            // The stream ends after an error.
            self.is_over = events.is_err();
            self.page = events?.into();
        }
        let Some(event) = self.page.pop_front().filter(|_| !self.is_over) else {
            self.is_over = true;
            return Ok(None);
        };
        self.after = event.sequence;
        self.is_over = event.event.is_final();
        Ok(Some(event))
    }
}
