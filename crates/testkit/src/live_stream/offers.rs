//! Who gets a run that is offered, and what comes back.

use std::sync::Arc;

use futures::{FutureExt, StreamExt};
use podium_domain::ids::{RunId, VendorId};
use podium_domain::policy::Tier;
use podium_ports::clock::Ids;
use podium_ports::live::{EndSignal, EndSignals, LiveStream, Offer, Offers, Signal};
use podium_ports::queue::Lane;
use tokio::time::timeout;

use super::{SOON, Scene, committed, frame};
use crate::builders::{an_ended_run, an_offer};
use crate::clock::TestClock;

fn a_lane(vendor: &str) -> Lane {
    Lane::Step(Tier::Ultra, VendorId::new(vendor).expect("it is a name"))
}

async fn offer(live: &Arc<dyn LiveStream>, run: RunId) -> EndSignals {
    live.offer(&a_lane("north"), &an_offer(run)).await.unwrap().expect("somebody takes offers")
}

async fn take(offers: &mut Offers) -> Offer {
    timeout(SOON, offers.next()).await.expect("an offer must come").expect("they go on")
}

async fn hear(signals: &mut EndSignals) -> EndSignal {
    timeout(SOON, signals.next()).await.expect("something must come").expect("it goes on")
}

pub(crate) async fn an_offer_goes_to_one_of_those_who_take_them_and_its_end_comes_back(scene: &Scene) {
    let (here, elsewhere) = (&scene.fixture.live, &scene.fixture.elsewhere);
    let mut takers = Vec::new();
    for live in [here, elsewhere, elsewhere] {
        takers.push((live, live.offers(&a_lane("north")).await.unwrap()));
    }
    for _ in 0..20 {
        let run = scene.ids.run_id(TestClock::START);
        let mut ends = offer(here, run).await;
        let by = elsewhere.subscribe_to_end(run).await.unwrap();
        let taking =
            takers.iter_mut().map(|(live, offers)| Box::pin(async move { (*live, take(offers).await) }));
        let ((live, taken), ..) = futures::future::select_all(taking).await;
        assert_eq!(taken, an_offer(run));
        let ended = Arc::new(an_ended_run(run, "done"));
        live.publish_end(&ended).await.unwrap();
        for ends in [&mut ends, &mut { by }] {
            let end = hear(ends).await;
            let is_its =
                matches!(&end, EndSignal::Ended(came) if came.as_ref().is_none_or(|came| *came == ended));
            assert!(is_its, "{end:?} is not the end of {ended:?}");
        }
    }
    let again = takers.iter_mut().filter_map(|(_, offers)| offers.next().now_or_never());
    assert_eq!(again.count(), 0, "each was for one of them");
}

pub(crate) async fn an_offer_that_nobody_takes_comes_back(scene: &Scene) {
    let live = &scene.fixture.live;
    let _others = live.offers(&a_lane("south")).await.unwrap();
    if let Some(mut ends) = live.offer(&a_lane("north"), &an_offer(scene.run)).await.unwrap() {
        assert_eq!(hear(&mut ends).await, EndSignal::Missed);
    }
}

pub(crate) async fn an_offer_that_is_declined_comes_back(scene: &Scene) {
    let (here, elsewhere) = (&scene.fixture.live, &scene.fixture.elsewhere);
    let mut offers = elsewhere.offers(&a_lane("north")).await.unwrap();
    let mut ends = offer(here, scene.run).await;
    take(&mut offers).await;
    elsewhere.decline(scene.run).await.unwrap();
    assert_eq!(hear(&mut ends).await, EndSignal::Missed);
    elsewhere.decline(scene.ids.run_id(TestClock::START)).await.unwrap();
}

pub(crate) async fn offers_of_other_lanes_are_not_mixed(scene: &Scene) {
    let (here, elsewhere) = (&scene.fixture.live, &scene.fixture.elsewhere);
    let mut south = elsewhere.offers(&a_lane("south")).await.unwrap();
    let mut north = elsewhere.offers(&a_lane("north")).await.unwrap();
    let other = scene.ids.run_id(TestClock::START);
    let waiting = offer(here, scene.run).await;
    here.offer(&a_lane("south"), &an_offer(other)).await.unwrap();
    assert_eq!(take(&mut north).await.message.run, scene.run);
    assert_eq!(take(&mut south).await.message.run, other);
    drop(waiting);
}

pub(crate) async fn who_watches_an_offered_run_has_everything(scene: &Scene) {
    let (here, elsewhere) = (&scene.fixture.live, &scene.fixture.elsewhere);
    let claim = scene.ids.claim_id();
    let mut offers = here.offers(&a_lane("north")).await.unwrap();
    let mut ends = offer(elsewhere, scene.run).await;
    take(&mut offers).await;
    scene.say(committed(2)).await;
    scene.say(frame(0, claim, 0, "ab")).await;
    let mut watcher = scene.watch_elsewhere().await;
    assert_eq!(watcher.text_of(claim, 2).await, "ab");
    scene.say(frame(0, claim, 2, "c")).await;
    assert_eq!(watcher.text_of(claim, 3).await, "abc");
    let run = Arc::new(an_ended_run(scene.run, "abc"));
    here.publish_end(&run).await.unwrap();
    while watcher.hear().await != (Signal::Ended { version: run.version() }) {}
    assert!(matches!(hear(&mut ends).await, EndSignal::Ended(_)));
}
