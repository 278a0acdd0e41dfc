//! Steps that call tools: the run is suspended, and the same run continues with the results.

use std::sync::Arc;

use futures::StreamExt;
use podium_domain::content::{Image, Part, Pdf, PdfSource, Reasoning, Seal, ToolCall, ToolResult};
use podium_domain::conversation::{Conversation, Message};
use podium_domain::ids::{RunId, WorkerId};
use podium_domain::plan::Plan;
use podium_domain::policy::{Effort, Policy, PoolRule, Tier};
use podium_domain::pool::{Feature, Pool};
use podium_domain::run::{FinishReason, Run, RunState};
use podium_domain::tools::{CallsAtOnce, ToolChoice};
use podium_engine::{AnswerPart, Submit, SubmitError, Submitted};
use podium_testkit::{Answer, Gate, plan_of};

use crate::house::{House, quick, request, with, within};
use crate::tools::{answered, calling, pool, tools};

async fn house_with(plan: Plan) -> House {
    let house = House::idle(quick(), |store| store).await;
    house.conductor.otherwise(plan);
    let house = house.beside(quick(), 8, |parts| parts.pool = Arc::new(pool()));
    house.vendor.otherwise(Answer::text("a draft"));
    house.at_work()
}

/// A plan of two drafts and an answer that sees both.
async fn house() -> House {
    house_with(plan_of(&[
        ("quick", "Draft it.", &[]),
        ("careful", "Look.", &[]),
        ("checker", "Decide.", &[0, 1]),
    ]))
    .await
}

fn policy() -> Policy {
    Policy::new(Tier::Ultra, Effort::Medium)
}

fn offering(policy: Policy) -> Submit {
    with(request(policy), |request| request.tools = Some(tools(CallsAtOnce::Several)))
}

fn continuing(policy: Policy, conversation: Conversation) -> Submit {
    with(offering(policy), |request| request.conversation = conversation)
}

fn call_of(id: &str, worker: &str) -> Answer {
    let seal = Seal { worker: WorkerId::new(worker).unwrap(), mark: format!("seal of {id}") };
    let call = ToolCall::new(id, "look", "{}");
    Answer::blank().think("hm").seal(seal).call(call).finish(FinishReason::ToolCalls)
}

/// The pieces of a reply, and the run at its end.
async fn reply(house: &House, id: RunId, number: u16) -> (String, Vec<(String, String)>, Run) {
    let parts = within(house.engine.reply(id, number).await.unwrap().collect::<Vec<_>>()).await;
    let (mut text, mut calls) = (String::new(), Vec::new());
    for part in parts {
        match part.unwrap() {
            AnswerPart::Text(more) => text += &more,
            AnswerPart::CallBegun { index, id, .. } => {
                assert_eq!(index, calls.len());
                calls.push((id, String::new()));
            }
            AnswerPart::CallArguments { index, text } => calls[index].1 += &text,
            AnswerPart::Ended(run) => return (text, calls, *run),
            part => panic!("nobody asked for reasoning: {part:?}"),
        }
    }
    panic!("the stream ended before the reply did");
}

async fn begun(house: &House, policy: Policy) -> RunId {
    house.engine.submit(offering(policy)).await.unwrap().run_id()
}

#[tokio::test]
async fn another_process_continues_a_run_whose_draft_called_a_tool() {
    let house = house().await;
    house.vendor.script("careful", [calling_as("careful"), Answer::text("It is blue.")]);
    let id = begun(&house, policy()).await;
    let (text, calls, first) = reply(&house, id, 0).await;
    assert!(first.is_suspended() && first.tool_calls().len() == 2, "{:?}", first.state());
    assert_eq!((text.as_str(), calls[0].1.as_str()), ("I look.", "{ \"at\": \"sky\" }"));
    assert_eq!(house.vendor.calls_of("quick").len(), 1, "the other draft goes on meanwhile");
    let beside = house.beside(quick(), 9, |_| {});
    let submitted = beside.engine.submit(continuing(policy(), answered(&first))).await.unwrap();
    assert_eq!(submitted, Submitted::Continued { run: id, reply: 1 });
    let (text, calls, second) = reply(&beside, id, 1).await;
    assert_eq!((text.as_str(), calls.len(), second.answer()), ("a draft", 0, Some("a draft")));
    assert_eq!(house.vendor.calls_of("quick").len(), 1, "no finished step is called again");
    let asked = house.vendor.calls_of("careful").pop().unwrap();
    let turn = &asked.messages[asked.messages.len() - 2];
    let Part::Reasoning(Reasoning { seal: Some(seal), .. }) = &turn.parts[0] else { panic!("{turn:?}") };
    assert_eq!(seal.mark, "signature");
    assert_eq!(turn.calls().map(|call| call.id.as_str()).collect::<Vec<_>>(), ["v-1", "v-2"]);
    let results = asked.messages.last().unwrap().results().map(|result| result.call_id.as_str());
    assert_eq!(results.collect::<Vec<_>>(), ["v-1", "v-2"]);
    let last = house.vendor.calls_of("checker").pop().unwrap();
    let prompt = &last.messages.last().unwrap().text;
    assert!(prompt.contains("It is blue.") && !prompt.contains("v-1"), "{prompt}");
}

fn calling_as(worker: &str) -> Answer {
    let seal = Seal { worker: WorkerId::new(worker).unwrap(), mark: "signature".to_owned() };
    Answer::blank()
        .think("hm")
        .seal(seal)
        .say("I look.")
        .call(ToolCall::new("v-1", "look", "{ \"at\": \"sky\" }"))
        .call(ToolCall::new("v-2", "look", "{}"))
        .finish(FinishReason::ToolCalls)
}

#[tokio::test]
async fn a_reply_ends_with_the_calls_of_all_steps_once_nothing_else_goes_on() {
    let house = house().await;
    let gate = Gate::closed();
    house.vendor.script("quick", [call_of("q", "quick"), Answer::text("left")]);
    let slow =
        Answer::blank().wait(&gate).call(ToolCall::new("c", "look", "{}")).finish(FinishReason::ToolCalls);
    house.vendor.script("careful", [slow, Answer::text("right")]);
    let id = begun(&house, policy()).await;
    let waits = |run: &Run| run.rounds()[0].steps.iter().any(|step| step.task.state.as_str() == "calling");
    let run = house.until(id, waits).await;
    assert_eq!((run.state(), run.tool_calls().len()), (&RunState::Active, 0));
    gate.open();
    let (_, calls, first) = reply(&house, id, 0).await;
    let own: Vec<_> = first.tool_calls().iter().map(|call| call.own_id.clone().unwrap().mark).collect();
    assert_eq!((own, calls.len()), (vec!["q".to_owned(), "c".to_owned()], 2));
    let (submitted, mut ending) = house.engine.ask(continuing(policy(), answered(&first))).await.unwrap();
    assert_eq!(submitted.reply(), 1);
    let second = within(ending.run()).await.unwrap();
    assert_eq!(second.answer(), Some("a draft"));
    let prompt = house.vendor.calls_of("checker").pop().unwrap().messages.pop().unwrap().text;
    assert!(prompt.contains("left") && prompt.contains("right"), "{prompt}");
}

#[tokio::test]
async fn calls_of_a_final_step_are_streamed_while_their_run_waits() {
    let house = house().await;
    house.vendor.script("checker", [calling(), calling(), Answer::text("It is blue.")]);
    let (_, mut ending) = house.engine.ask(offering(policy())).await.unwrap();
    let first = within(ending.run()).await.unwrap();
    assert!(first.is_suspended(), "{:?}", first.state());
    let (text, calls, streamed) = reply(&house, first.id(), 0).await;
    assert_eq!((text.as_str(), calls.len(), &streamed), ("I look.", 2, &*first));
    let submitted = house.engine.submit(continuing(policy(), answered(&first))).await.unwrap();
    let (_, calls, second) = reply(&house, submitted.run_id(), submitted.reply()).await;
    assert!(second.is_suspended() && calls.len() == 2);
    let mut messages: Vec<_> = answered(&first).into();
    let more: Vec<_> = answered(&second).into();
    messages.extend(more.into_iter().skip(1));
    let conversation = Conversation::new(messages).unwrap();
    let submitted = house.engine.submit(continuing(policy(), conversation)).await.unwrap();
    assert_eq!(submitted, Submitted::Continued { run: first.id(), reply: 2 });
    let (text, _, third) = reply(&house, first.id(), 2).await;
    assert_eq!((text.as_str(), third.rounds().len()), ("It is blue.", 1));
    // A client that repeats an earlier request gets the reply that it got then.
    let again = house.engine.submit(continuing(policy(), answered(&first))).await.unwrap();
    assert_eq!(again, Submitted::Continued { run: first.id(), reply: 1 });
    let (_, calls, repeated) = reply(&house, first.id(), 1).await;
    assert_eq!((calls.len(), repeated.state(), repeated.version()), (2, second.state(), second.version()));
    assert_eq!(house.engine.run_at(first.id(), 0).await.unwrap().as_ref(), Some(&*first));
}

#[tokio::test]
async fn results_begin_a_new_run_if_the_client_changed_them_or_the_tools() {
    let house = house_with(plan_of(&[("careful", "Solve it.", &[])])).await;
    house.vendor.script("careful", [calling_as("careful")]);
    let id = begun(&house, policy()).await;
    let first = reply(&house, id, 0).await.2;
    let other_tools = with(continuing(policy(), answered(&first)), |request| {
        request.tools.as_mut().unwrap().tools[0].description = "another".to_owned();
    });
    let no_calls = with(continuing(policy(), answered(&first)), |request| {
        request.tools.as_mut().unwrap().choice = ToolChoice::None;
    });
    for submit in [other_tools, no_calls] {
        let submitted = house.engine.submit(submit).await.unwrap();
        assert!(matches!(&submitted, Submitted::New(run) if run.id() != id), "{submitted:?}");
        // The new run sees the calls and results in its conversation, with the seals of the worker.
        let run = reply(&house, submitted.run_id(), 0).await.2;
        let call = run.spec().request.conversation.messages()[1].calls().next().unwrap();
        assert_eq!(call.own_id.as_ref().unwrap().mark, "v-1");
        assert_eq!(run.answer(), Some("a draft"));
    }
    house.engine.cancel(id).await.unwrap();
    let late = house.engine.submit(continuing(policy(), answered(&first))).await.unwrap();
    assert!(matches!(late, Submitted::New(_)), "the run has ended");
}

#[tokio::test]
async fn a_suspended_run_expires_by_its_policy_and_late_results_begin_a_new_run() {
    let house = house_with(plan_of(&[("careful", "Solve it.", &[])])).await;
    house.vendor.script("careful", [calling_as("careful")]);
    let policy = Policy { suspended_ms_max: 1_000, ..policy() };
    let id = begun(&house, policy.clone()).await;
    let first = reply(&house, id, 0).await.2;
    let expired = house.ended(id).await;
    let RunState::Failed { reason } = expired.state() else { panic!("{:?}", expired.state()) };
    assert_eq!(reason.code(), "suspension_expired");
    let submitted = house.engine.submit(continuing(policy, answered(&first))).await.unwrap();
    assert!(matches!(submitted, Submitted::New(_)));
    assert_eq!(reply(&house, submitted.run_id(), 0).await.2.answer(), Some("a draft"));
}

/// A run whose step by `careful` waits for the results of two calls. `readers` are the workers that read PDFs and images.
async fn waiting_for_files(readers: &[&str], policy: Policy) -> (House, Run) {
    let head = "schema = 1\nname = \"files\"\nversion = \"1\"\n\
                vendors = [{ id = \"v\", api = \"openai-chat\", base_url = \"http://127.0.0.1:1/v1\" }]\n";
    let workers = ["quick", "careful", "checker"].map(|id| {
        let more = if readers.contains(&id) { ", \"image\", \"pdf\"" } else { "" };
        format!(
            "[[workers]]\nid = \"{id}\"\nvendor = \"v\"\nmodel = \"m\"\ndescription = \"d\"\nfeatures = [\"tools\"]\n\
             modalities = [\"text\"{more}]\ncontext_tokens = 32768\n\
             usd_per_million_tokens = {{ input = 1.0, output = 1.0 }}\n"
        )
    });
    let pool = Pool::parse(&format!("{head}{}", workers.concat())).unwrap();
    let house = House::idle(quick(), |store| store).await;
    house.conductor.otherwise(plan_of(&[("careful", "Look.", &[])]));
    let house = house.beside(quick(), 8, |parts| parts.pool = Arc::new(pool));
    house.vendor.otherwise(Answer::text("It is blue."));
    house.vendor.script("careful", [calling_as("careful")]);
    let house = house.at_work();
    let id = begun(&house, policy).await;
    let (_, _, first) = reply(&house, id, 0).await;
    (house, first)
}

/// The conversation with the results of all calls; the first result has this attachment.
fn answered_with(run: &Run, attach: impl Fn(&mut ToolResult)) -> Conversation {
    let mut messages = answered(run).messages().to_vec();
    let last = messages.last_mut().unwrap();
    let Some(Part::ToolResult(result)) = last.parts.first_mut() else { panic!("{last:?}") };
    attach(result);
    Conversation::new(messages).unwrap()
}

fn with_pdf(result: &mut ToolResult) {
    result.pdfs.push(Pdf { name: None, source: PdfSource::Data("JVBERi0=".to_owned()) });
}

fn with_image(result: &mut ToolResult) {
    result.images.push(Image::Url("https://example.org/a.png".to_owned()));
}

#[tokio::test]
async fn a_result_with_a_file_moves_its_step_to_a_worker_that_reads_it() {
    for attach in [with_pdf, with_image] {
        let (house, first) = waiting_for_files(&["checker"], policy()).await;
        let continued = continuing(policy(), answered_with(&first, attach));
        let submitted = house.engine.submit(continued).await.unwrap();
        assert_eq!(submitted.run_id(), first.id());
        let (_, _, second) = reply(&house, first.id(), 1).await;
        assert_eq!(second.answer(), Some("It is blue."), "{:?}", second.state());
        assert_eq!((house.vendor.calls_of("careful").len(), second.fallbacks()), (1, 1));
        let asked = house.vendor.calls_of("checker").pop().unwrap();
        assert_eq!(asked.messages.iter().flat_map(Message::attachments).count(), 1);
        assert!(house.vendor.calls_of("quick").is_empty());
    }
}

#[tokio::test]
async fn a_result_with_a_file_stays_with_a_worker_that_reads_it() {
    let (house, first) = waiting_for_files(&["careful", "checker"], policy()).await;
    house.engine.submit(continuing(policy(), answered_with(&first, with_pdf))).await.unwrap();
    let (_, _, second) = reply(&house, first.id(), 1).await;
    assert_eq!((second.answer(), second.fallbacks()), (Some("It is blue."), 0));
}

#[tokio::test]
async fn a_result_with_a_file_that_no_worker_reads_is_refused_by_name() {
    let (house, first) = waiting_for_files(&[], policy()).await;
    let refused =
        house.engine.submit(continuing(policy(), answered_with(&first, with_pdf))).await.unwrap_err();
    assert!(matches!(&refused, SubmitError::NoneTakes(none) if none.feature == Feature::Pdf), "{refused}");
    // The run still waits, so a result without the file continues it.
    let submitted = house.engine.submit(continuing(policy(), answered(&first))).await.unwrap();
    assert_eq!(submitted, Submitted::Continued { run: first.id(), reply: 1 });
}

#[tokio::test]
async fn a_result_with_a_file_begins_a_new_run_if_its_step_may_not_move() {
    let fixed = Policy { fallback: PoolRule::None, ..policy() };
    let (house, first) = waiting_for_files(&["checker"], fixed.clone()).await;
    house.conductor.otherwise(plan_of(&[("checker", "Look.", &[])]));
    let submitted = house.engine.submit(continuing(fixed, answered_with(&first, with_pdf))).await.unwrap();
    assert_ne!(submitted.run_id(), first.id());
    let (_, _, second) = reply(&house, submitted.run_id(), 0).await;
    assert_eq!(second.answer(), Some("It is blue."));
}
