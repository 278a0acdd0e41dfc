//! Taking drafts that are offered: there is no message to be fetched, answered or kept for them. Who has no room declines, and
//! whoever offered the run stores it and publishes its first step like any other.

use futures::StreamExt;
use podium_domain::ids::RunId;
use podium_ports::live::Offer;
use podium_ports::queue::Lane;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::engine::Engine;
use crate::task::{Done, Settle, Slot, Slots, TROUBLE_PAUSE, Work, go_on};

/// Takes the offers of a lane for which there is a slot, until `stop`; then waits for the work under way.
pub(crate) async fn take_offers<W: Work>(
    engine: Engine,
    (lane, slots): (Lane, Slots),
    work: W,
    stop: CancellationToken,
    abandon: CancellationToken,
) {
    let mut under_way = JoinSet::new();
    while !stop.is_cancelled() {
        let taking = take_while_they_come(&engine, (&lane, &slots), &work, &mut under_way, &abandon);
        if stop.run_until_cancelled(taking).await.is_some() {
            stop.run_until_cancelled(engine.parts().clock.sleep(TROUBLE_PAUSE)).await;
        }
    }
    while under_way.join_next().await.is_some() {}
}

/// Ends when no more offers come, which is trouble.
async fn take_while_they_come<W: Work>(
    engine: &Engine,
    (lane, slots): (&Lane, &Slots),
    work: &W,
    under_way: &mut JoinSet<()>,
    abandon: &CancellationToken,
) {
    let mut offers = match engine.parts().live.offers(lane).await {
        Ok(offers) => offers,
        Err(error) => {
            warn!(%lane, error = &error as &dyn std::error::Error, "could not ask for offers");
            return;
        }
    };
    while let Some(offer) = offers.next().await {
        while under_way.try_join_next().is_some() {}
        // While others wait for room in the lane nobody goes past them.
        let is_contended = engine.dispatch().is_contended(lane);
        let slot = if is_contended { None } else { slots.try_take_any(lane, engine.now()) };
        engine.metrics().lanes().offered(lane, slot.is_some());
        let (engine, work, abandon) = (engine.clone(), work.clone(), abandon.clone());
        under_way.spawn(async move {
            match slot {
                Some(slot) => take(&engine, (offer, slot), &work, &abandon).await,
                None => decline(&engine, offer.message.run).await,
            }
        });
    }
}

async fn take<W: Work>(engine: &Engine, (offer, slot): (Offer, Slot), work: &W, abandon: &CancellationToken) {
    let Offer { message, events } = offer;
    // One that came twice, or so late that whoever offered it must have stored it long since, is no draft any more. Late is also
    // what clocks make it that differ.
    if !engine.known().note_draft(message.run, events, engine.now()) {
        return decline(engine, message.run).await;
    }
    let Done { settle, next } = work.work(message, slot, abandon).await;
    if matches!(settle, Settle::Nak(_)) {
        engine.known().forget(message.run);
        decline(engine, message.run).await;
    }
    go_on(work, next, abandon).await;
}

async fn decline(engine: &Engine, run: RunId) {
    if let Err(error) = engine.parts().live.decline(run).await {
        debug!(%run, error = &error as &dyn std::error::Error, "an offer was not declined");
    }
}
