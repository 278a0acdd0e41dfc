//! A run as it was at the end of one of its replies: a client may ask for a reply again after the run has continued.

use std::sync::Arc;

use podium_domain::ids::RunId;
use podium_domain::run::Run;
use podium_ports::store::StoreError;

use crate::parts::Parts;

/// Events read at a time.
const EVENTS_PAGE: u32 = 64;

/// The run as it was at the end of the reply; as it is now if that reply is the current one. `None` if the run does not exist.
pub(crate) async fn run_at(parts: &Parts, id: RunId, reply: u16) -> Result<Option<Run>, StoreError> {
    let Some(now) = parts.store.load(&[id]).await?.into_iter().next().flatten() else { return Ok(None) };
    as_of(parts, Arc::new(now), reply).await.map(|run| Some(Arc::unwrap_or_clone(run)))
}

/// `now` as it was at the end of the reply.
pub(crate) async fn as_of(parts: &Parts, now: Arc<Run>, reply: u16) -> Result<Arc<Run>, StoreError> {
    // If no results came, the run failed after its reply was complete.
    if now.reply() < reply || (now.reply() == reply && !now.is_expired()) {
        return Ok(now);
    }
    let (id, mut run) = (now.id(), None::<Run>);
    loop {
        let version = run.as_ref().map_or(0, Run::version);
        let events = parts.store.events(id, version, EVENTS_PAGE).await?;
        if events.is_empty() {
            return Err(StoreError::Removed { run: id });
        }
        for event in events {
            match &mut run {
                Some(run) => run.apply(&event),
                None => Run::replay(id, &[event]).map(|begun| run = Some(begun)),
            }
            .map_err(|error| StoreError::illegal(id, error))?;
            if let Some(run) = run.take_if(|run| run.is_suspended() && run.reply() == reply) {
                return Ok(Arc::new(run));
            }
        }
    }
}
