//! Tools that the client executes, under the policy that a run ends with the calls of its final step: the next run continues the
//! loop.

use std::sync::Arc;

use futures::StreamExt;
use podium_domain::content::{Part, Reasoning, Seal, ToolCall, ToolResult};
use podium_domain::conversation::{Conversation, Message, Role};
use podium_domain::ids::{TenantId, WorkerId};
use podium_domain::policy::{Effort, Policy, StepTools, Tier};
use podium_domain::pool::Pool;
use podium_domain::run::{FinishReason, Run, RunState};
use podium_domain::tools::{CallsAtOnce, Tool, ToolChoice, ToolUse};
use podium_engine::{AnswerPart, Submit};
use podium_testkit::{Answer, Fault, plan_of};

use crate::house::{House, quick, request, with, within};

/// The workers of the test pool, all of which call tools.
pub(crate) fn pool() -> Pool {
    let head = "schema = 1\nname = \"tools\"\nversion = \"1\"\n\
                vendors = [{ id = \"v\", api = \"openai-chat\", base_url = \"http://127.0.0.1:1/v1\" }]\n";
    let workers = ["quick", "careful", "checker"].map(|id| {
        format!(
            "[[workers]]\nid = \"{id}\"\nvendor = \"v\"\nmodel = \"m\"\ndescription = \"d\"\nfeatures = [\"tools\"]\n\
             context_tokens = 32768\nusd_per_million_tokens = {{ input = 1.0, output = 1.0 }}\n"
        )
    });
    Pool::parse(&format!("{head}{}", workers.concat())).unwrap()
}

/// An engine at work whose conductor plans a draft by `careful` and an answer by `checker`.
async fn house() -> House {
    let house = House::idle(quick(), |store| store).await;
    house.conductor.otherwise(plan_of(&[("careful", "Draft it.", &[]), ("checker", "Decide.", &[0])]));
    let house = house.beside(quick(), 8, |parts| parts.pool = Arc::new(pool()));
    house.vendor.otherwise(Answer::text("a draft"));
    house.at_work()
}

pub(crate) fn tools(at_once: CallsAtOnce) -> ToolUse {
    let (name, schema) = ("look".to_owned(), Tool::no_parameters());
    let tools = vec![Tool { name, description: String::new(), schema, strict: None }];
    ToolUse { tools, choice: ToolChoice::Auto, at_once }
}

/// A request under whose policy a run ends with the calls of its final step.
fn offering(at_once: CallsAtOnce) -> Submit {
    let policy = Policy { tools: StepTools::Last, ..Policy::new(Tier::Ultra, Effort::Medium) };
    with(request(policy), |request| request.tools = Some(tools(at_once)))
}

pub(crate) fn seal(mark: &str) -> Seal {
    Seal { worker: WorkerId::new("checker").unwrap(), mark: mark.to_owned() }
}

const ARGUMENTS: &str = r#"{ "at": "sky" }"#;

/// An answer with thoughts, a text and two calls, the first of which is streamed.
pub(crate) fn calling() -> Answer {
    Answer::blank()
        .think("hm")
        .seal(seal("signature"))
        .say("I look.")
        .writes_call(0, "look", &[r#"{ "at""#, r#": "sky" }"#])
        .call(ToolCall::new("v-1", "look", ARGUMENTS))
        .call(ToolCall::new("v-2", "look", "{}"))
        .finish(FinishReason::ToolCalls)
}

/// The conversation of a client that executed the calls of `run`.
pub(crate) fn answered(run: &Run) -> Conversation {
    let calls = run.tool_calls();
    let sent =
        calls.iter().map(|call| ToolCall::new(call.id.clone(), call.name.clone(), call.arguments.clone()));
    let results = calls.iter().map(|call| Part::ToolResult(ToolResult::new(call.id.clone(), "", "blue")));
    let text = run.reply_text().unwrap_or_default();
    let mut messages = run.spec().request.conversation.messages().to_vec();
    messages.push(Message::new(Role::Assistant, text).with(sent.map(Part::ToolCall)));
    messages.push(Message::new(Role::User, "").with(results));
    Conversation::new(messages).unwrap()
}

async fn ended(house: &House, submit: Submit) -> Run {
    let id = house.engine.submit(submit).await.unwrap().run_id();
    house.answer(id).await.1
}

#[tokio::test]
async fn a_run_ends_with_the_calls_of_its_final_step_as_they_were_streamed() {
    let house = house().await;
    house.vendor.script("checker", [calling()]);
    let id = house.engine.submit(offering(CallsAtOnce::Several)).await.unwrap().run_id();
    let parts = within(house.engine.answer(id).await.unwrap().collect::<Vec<_>>()).await;
    let mut parts: Vec<_> = parts.into_iter().map(Result::unwrap).collect();
    let Some(AnswerPart::Ended(run)) = parts.pop() else { panic!("{parts:?}") };
    assert!(matches!(run.state(), RunState::Succeeded { .. }), "{:?}", run.state());
    let (mut text, mut calls) = (String::new(), Vec::new());
    for part in parts {
        match part {
            AnswerPart::Text(more) => text += &more,
            AnswerPart::CallBegun { index, id, name } => {
                assert_eq!(index, calls.len());
                calls.push((id, name, String::new()));
            }
            AnswerPart::CallArguments { index, text } => calls[index].2 += &text,
            part => panic!("it ended twice, or shows reasoning: {part:?}"),
        }
    }
    assert_eq!((text.as_str(), run.answer()), ("I look.", Some("I look.")));
    let stored = run.tool_calls().into_iter().map(|call| (call.id, call.name, call.arguments));
    assert_eq!(calls, stored.collect::<Vec<_>>());
    assert_eq!((calls[0].2.as_str(), calls[1].2.as_str()), (ARGUMENTS, "{}"));
    assert!(house.vendor.calls_of("careful")[0].tools.is_none(), "only the final step is offered tools");
    assert_eq!(house.vendor.calls_of("checker")[0].tools, Some(tools(CallsAtOnce::Several)));
}

#[tokio::test]
async fn the_worker_that_called_gets_the_results_with_its_own_ids_and_seals() {
    let house = house().await;
    house.vendor.script("checker", [calling(), Answer::text("It is blue.")]);
    let first = ended(&house, offering(CallsAtOnce::Several)).await;
    let conversation = answered(&first);
    // Another process, which has seen nothing of the first run.
    let beside = house.beside(quick(), 9, |_| {});
    let submit = with(offering(CallsAtOnce::Several), |request| request.conversation = conversation);
    let id = beside.engine.submit(submit).await.unwrap().run_id();
    let second = house.answer(id).await.1;
    assert_eq!(second.answer(), Some("It is blue."));
    assert_eq!(second.rounds()[0].known_steps().len(), 1, "no conductor planned");
    let asked = house.vendor.calls_of("checker").pop().unwrap();
    let called = &asked.messages[1];
    assert_eq!(
        called.parts[0],
        Part::Reasoning(Reasoning { text: "hm".to_owned(), seal: Some(seal("signature")) })
    );
    assert_eq!(called.calls().map(|call| call.id.as_str()).collect::<Vec<_>>(), ["v-1", "v-2"]);
    let results = asked.messages[2].results().map(|result| (result.call_id.as_str(), result.name.as_str()));
    assert_eq!(results.collect::<Vec<_>>(), [("v-1", "look"), ("v-2", "look")]);
}

#[tokio::test]
async fn another_worker_continues_without_seals_if_the_first_fails() {
    let house = house().await;
    house.vendor.script("checker", [calling(), Answer::refuse(Fault::Unpaid)]);
    let first = ended(&house, offering(CallsAtOnce::Several)).await;
    let conversation = answered(&first);
    let sent: Vec<_> = conversation.messages()[1].calls().map(|call| call.id.clone()).collect();
    let second = with(offering(CallsAtOnce::Several), |request| request.conversation = conversation);
    let second = ended(&house, second).await;
    assert_eq!((second.answer(), second.fallbacks()), (Some("a draft"), 1));
    let (worker, asked) = house.vendor.calls().pop().unwrap();
    assert_ne!(worker.as_str(), "checker");
    let called = &asked.messages[1];
    // The adapter sends a seal to the worker that issued it only.
    assert_eq!(called.calls().map(|call| call.id.clone()).collect::<Vec<_>>(), sent);
}

#[tokio::test]
async fn calls_of_another_tenant_or_system_are_history() {
    let house = house().await;
    house.vendor.script("checker", [calling(), Answer::text("planned"), Answer::text("planned")]);
    let first = ended(&house, offering(CallsAtOnce::Several)).await;
    let stolen = with(offering(CallsAtOnce::Several), |request| request.conversation = answered(&first));
    let stolen = Submit { tenant: TenantId::new("other").unwrap(), ..stolen };
    let foreign = with(offering(CallsAtOnce::Several), |request| {
        let mut messages: Vec<_> = answered(&first).into();
        for part in messages.iter_mut().flat_map(|message| &mut message.parts) {
            match part {
                Part::ToolCall(call) => call.id = call.id.replace("call_", "toolu_"),
                Part::ToolResult(result) => result.call_id = result.call_id.replace("call_", "toolu_"),
                _ => {}
            }
        }
        request.conversation = Conversation::new(messages).unwrap();
    });
    for submit in [stolen, foreign] {
        let run = ended(&house, submit).await;
        assert_eq!((run.answer(), run.rounds()[0].known_steps().len()), (Some("planned"), 2));
        let messages = run.spec().request.conversation.messages();
        assert!(messages[1].calls().all(|call| call.own_id.is_none() && call.seal.is_none()));
        assert!(!messages[1].parts.iter().any(|part| matches!(part, Part::Reasoning(_))));
    }
}

#[tokio::test]
async fn one_call_at_a_time_keeps_the_first_call_only() {
    let house = house().await;
    house.vendor.script("checker", [calling()]);
    let run = ended(&house, offering(CallsAtOnce::One)).await;
    let calls = run.tool_calls();
    assert_eq!(calls.iter().map(|call| call.arguments.as_str()).collect::<Vec<_>>(), [ARGUMENTS]);
}

#[tokio::test]
async fn tools_without_a_worker_that_calls_them_are_refused() {
    let house = House::with_plan(plan_of(&[("careful", "Solve it.", &[])])).await;
    let refused = house.engine.submit(offering(CallsAtOnce::Several)).await.unwrap_err().to_string();
    assert!(refused.contains("worker `careful` does not take tools"), "{refused}");
}
