//! Live text and events for watchers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use podium_domain::ids::RunId;
use podium_domain::money::Cost;
use podium_domain::policy::{BrokenAnswer, Effort, Policy, Tier};
use podium_domain::run::{Command, PlanResult, RunEvent, TaskRef};
use podium_domain::usage::Spent;
use podium_engine::{AnswerError, AnswerPart, Update};
use podium_ports::clock::Clock as _;
use podium_ports::live::{LiveError, LiveStream, Signal, Signals};
use podium_testkit::{Answer, Driven, Fault, Gate, Planning, SeededIds, a_plan, a_planned, plan_of};

use crate::duties::{Scene, a_scene};
use crate::house::{House, Parts, quick, within};

#[tokio::test]
async fn the_answer_is_seen_while_the_worker_writes_it() {
    let house = House::with_plan(a_plan()).await;
    let gate = Gate::closed();
    house.vendor.script("checker", [Answer::text("first ").wait(&gate).say("second")]);
    house.vendor.otherwise(Answer::text("not the answer"));
    let mut parts = house.engine.answer(house.ask().await).await.unwrap();
    let first = within(parts.next()).await.unwrap().unwrap();
    assert_eq!(first, AnswerPart::Text("first ".to_owned()), "before the worker has finished");
    gate.open();
    let second = within(parts.next()).await.unwrap().unwrap();
    assert_eq!(second, AnswerPart::Text("second".to_owned()));
    assert!(matches!(within(parts.next()).await.unwrap().unwrap(), AnswerPart::Ended(_)));
}

#[tokio::test]
async fn a_streamed_answer_reads_the_events_only_a_few_times() {
    // In virtual time, so that a busy machine delays no subscription, which would add a read.
    let Scene { house, faults, .. } = a_scene(quick()).await;
    house.conductor.otherwise(a_plan());
    house.vendor.otherwise(Answer::text("fine"));
    let house = house.at_work();
    let (texts, _) = house.answer(house.ask().await).await;
    assert_eq!(texts.concat(), "fine");
    let commits = faults.written.lock().unwrap().len();
    let reads = faults.reads.load(Ordering::SeqCst);
    assert!(reads <= 4 && commits > 4, "{reads} reads, {commits} commits");
}

#[tokio::test]
async fn a_silent_answer_says_what_the_run_is_doing() {
    let Scene { house, faults, clock, .. } = a_scene(quick()).await;
    house.conductor.otherwise(a_plan());
    let (draft, decision) = (Gate::closed(), Gate::closed());
    house.vendor.script("careful", [Answer::blank().wait(&draft).say("a draft")]);
    house.vendor.script("checker", [Answer::blank().wait(&decision).say("fine")]);
    house.vendor.otherwise(Answer::text("a draft"));
    let house = house.at_work();
    let mut parts = house.engine.answer(house.ask().await).await.unwrap();
    let mut next = async || within(parts.next()).await.unwrap().unwrap();
    let progress = |part: AnswerPart| match part {
        AnswerPart::Progress(progress) => progress.to_string(),
        part => panic!("{part:?}"),
    };
    let began = clock.now();
    assert_eq!(progress(next().await), "step 2 of 3 by careful");
    assert!(clock.now().since(began) <= Duration::from_secs(8));
    // Without news, the store is not read for it.
    let reads = faults.reads.load(Ordering::SeqCst);
    for _ in 0..5 {
        assert_eq!(progress(next().await), "step 2 of 3 by careful");
    }
    assert!(faults.reads.load(Ordering::SeqCst) <= reads + 3, "only lost signals are looked for");
    draft.open();
    assert_eq!(progress(next().await), "step 3 of 3 by checker");
    decision.open();
    assert_eq!(next().await, AnswerPart::Text("fine".to_owned()));
    assert!(matches!(next().await, AnswerPart::Ended(_)));
}

#[tokio::test]
async fn a_silent_answer_says_nothing_of_hidden_steps() {
    let Scene { house, clock, .. } = a_scene(quick()).await;
    house.vendor.otherwise(Answer::hang());
    let house = house.at_work();
    let hidden = Policy { shows_steps: false, ..Policy::new(Tier::Ultra, Effort::Medium) };
    let mut parts = house.engine.answer(house.ask_under(hidden).await).await.unwrap();
    tokio::select! {
        part = parts.next() => panic!("{part:?}"),
        () = clock.sleep(Duration::from_mins(1)) => {}
    }
}

/// A live stream that refuses the first watcher, as if its server were unreachable for a moment.
struct RefusesOnce {
    live: Arc<dyn LiveStream>,
    refused: AtomicBool,
}

#[async_trait]
impl LiveStream for RefusesOnce {
    async fn publish(&self, run: RunId, signal: Signal) -> Result<(), LiveError> {
        self.live.publish(run, signal).await
    }

    async fn subscribe(&self, run: RunId) -> Result<Signals, LiveError> {
        if self.refused.swap(true, Ordering::SeqCst) {
            self.live.subscribe(run).await
        } else {
            Err(LiveError("away".into()))
        }
    }
}

#[tokio::test]
async fn a_watcher_sees_text_when_the_live_stream_is_back() {
    let house = House::with_plan(a_plan()).await;
    let gate = Gate::closed();
    house.vendor.script("checker", [Answer::text("first ").wait(&gate).say("second")]);
    house.vendor.otherwise(Answer::text("not the answer"));
    let id = house.ask().await;
    let refusing = |parts: &mut Parts| {
        let live = Arc::clone(&parts.live);
        parts.live = Arc::new(RefusesOnce { live, refused: AtomicBool::new(false) });
    };
    let beside = house.beside(quick(), 8, refusing);
    let mut parts = beside.engine.answer(id).await.unwrap();
    let first = within(parts.next()).await.unwrap().unwrap();
    assert_eq!(first, AnswerPart::Text("first ".to_owned()), "before the worker has finished");
    gate.open();
    assert_eq!(within(parts.next()).await.unwrap().unwrap(), AnswerPart::Text("second".to_owned()));
}

#[tokio::test]
async fn a_watcher_sees_every_event_once_and_can_resume_after_any() {
    let house = House::with_plan(a_plan()).await;
    house.vendor.otherwise(Answer::text("fine"));
    let id = house.ask().await;
    let updates = within(house.engine.watch(id, 0).await.unwrap().collect::<Vec<_>>()).await;
    let sequences = |updates: &[Result<Update, _>]| {
        let events = updates.iter().filter_map(|update| match update {
            Ok(Update::Event(event)) => Some(event.sequence),
            _ => None,
        });
        events.collect::<Vec<u64>>()
    };
    let all = sequences(&updates);
    assert_eq!(all, (1..=all.len() as u64).collect::<Vec<_>>());
    let Some(Ok(Update::Event(last))) = updates.last() else { panic!("ends with an event") };
    assert!(last.event.is_final());
    for after in 0..=all.len() as u64 {
        let rest = within(house.engine.watch(id, after).await.unwrap().collect::<Vec<_>>()).await;
        assert_eq!(sequences(&rest), (after + 1..=all.len() as u64).collect::<Vec<_>>(), "after {after}");
    }
}

#[tokio::test]
async fn watching_ends_at_the_end_of_the_run() {
    let house = House::idle(quick(), |store| store).await;
    let ids = SeededIds::new(9);
    let mut run = Driven::accepted(&ids);
    house.parts.store.append(&[run.commit()]).await.unwrap();
    let claim = run.claim(TaskRef::Plan { round: 0 }, &ids);
    run.drive(&Command::Cancel);
    let (result, reserve) = (PlanResult::Plan(a_planned(a_plan())), Cost::ZERO);
    let spent = Spent { usage: Planning::USAGE, cost: Cost::ZERO };
    run.drive(&Command::CompletePlan { round: 0, claim, result, spent, reserve });
    house.parts.store.append(&[run.commit()]).await.unwrap();
    let updates = within(house.engine.watch(run.id(), 0).await.unwrap().collect::<Vec<_>>()).await;
    let Some(Ok(Update::Event(last))) = updates.last() else { panic!("ends with an event") };
    assert_eq!((last.event.name(), last.sequence + 1), ("cancelled", run.run.version()));
}

#[tokio::test]
async fn the_conductors_text_is_seen_before_the_plan_is_ready() {
    let house = House::idle(quick(), |store| store).await;
    let gate = Gate::closed();
    house.conductor.script([Planning::gives(a_plan()).saying(["Let me ", "think."]).behind(&gate)]);
    house.vendor.otherwise(Answer::text("fine"));
    let id = house.ask().await;
    let mut updates = house.engine.watch(id, 0).await.unwrap();
    let house = house.at_work();
    let mut heard = String::new();
    while heard != "Let me think." {
        match within(updates.next()).await.unwrap().unwrap() {
            Update::Planning { round: 0, text } => heard.push_str(&text),
            Update::Event(event) => assert!(!matches!(event.event, RunEvent::PlanReady { .. })),
            other => panic!("{other:?}"),
        }
    }
    gate.open();
    house.ended(id).await;
}

#[tokio::test]
async fn a_second_attempt_is_announced_and_continues_what_was_shown() {
    let house = House::with_plan(plan_of(&[("quick", "Do it.", &[])])).await;
    let (gate, announced) = (Gate::closed(), Gate::closed());
    let first = Answer::text("Hel").wait(&gate).fail(Fault::Unreachable);
    house.vendor.script("quick", [first, Answer::parts(["H", "ello ", "world"]).wait(&announced)]);
    let again = Policy { broken_answer: BrokenAnswer::Again, ..Policy::new(Tier::Ultra, Effort::Medium) };
    let id = house.ask_under(again).await;
    let mut updates = house.engine.watch(id, 0).await.unwrap();
    let mut parts = house.engine.answer(id).await.unwrap();
    // Both have seen text of the first attempt before it ends; other watchers need no announcement.
    while !matches!(within(updates.next()).await.unwrap().unwrap(), Update::Frame { .. }) {}
    assert_eq!(within(parts.next()).await.unwrap().unwrap(), AnswerPart::Text("Hel".to_owned()));
    gate.open();
    let read = async {
        let mut rest = String::new();
        while let Some(AnswerPart::Text(text)) = parts.next().await.transpose().unwrap() {
            rest.push_str(&text);
        }
        rest
    };
    // The run does not end before the watcher has seen the announcement: the end may overtake live text.
    let watch = async {
        let mut restarts = 0;
        while let Some(update) = updates.next().await {
            if matches!(update, Ok(Update::Restarted { .. })) {
                restarts += 1;
                announced.open();
            }
        }
        restarts
    };
    let (rest, restarts) = within(async { tokio::join!(read, watch) }).await;
    assert_eq!(rest, "lo world", "no text is repeated or mixed with the first attempt's");
    assert_eq!(restarts, 1);
}

#[tokio::test]
async fn an_answer_that_contradicts_the_shown_text_is_an_error() {
    let house = House::with_plan(plan_of(&[("quick", "Do it.", &[])])).await;
    let gate = Gate::closed();
    house.vendor.script("quick", [Answer::text("Yes").wait(&gate).fail(Fault::Garbled)]);
    house.vendor.script("checker", [Answer::text("No")]);
    let id = house.ask().await;
    let mut parts = house.engine.answer(id).await.unwrap();
    assert_eq!(within(parts.next()).await.unwrap().unwrap(), AnswerPart::Text("Yes".to_owned()));
    gate.open();
    let end = within(parts.next()).await.unwrap().unwrap_err();
    assert!(matches!(end, AnswerError::Diverged { run } if run == id), "{end}");
    assert_eq!(house.ended(id).await.answer(), Some("No"));
}

#[tokio::test]
async fn the_history_of_an_ended_run_equals_its_watchers_events() {
    let house = House::with_plan(plan_of(&[("checker", "one", &[]), ("checker", "two", &[0])])).await;
    house.vendor.otherwise(Answer::text("done"));
    let id = house.ask().await;
    house.ended(id).await;
    let updates: Vec<_> = within(house.engine.watch(id, 3).await.unwrap().collect()).await;
    let event = |update| match update {
        Update::Event(event) => event,
        other => panic!("an ended run has only events: {other:?}"),
    };
    let seen: Vec<_> = updates.into_iter().map(|update| event(update.unwrap())).collect();
    let history: Vec<_> = within(house.engine.history(id, 3).collect()).await;
    let history: Vec<_> = history.into_iter().map(Result::unwrap).collect();
    assert!(history.len() > 4, "it must have more than one page: {}", history.len());
    assert_eq!(history, seen);
}
