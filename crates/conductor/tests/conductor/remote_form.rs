//! Output constraints: they allow every valid plan and no other, and the output is parsed like any other text.

use std::collections::BTreeSet;
use std::sync::Arc;

use podium_conductor::{RemoteConductor, RemoteOptions};
use podium_domain::ids::WorkerId;
use podium_domain::plan::PlanDraft;
use podium_domain::policy::WorkersAllowed;
use podium_domain::pool::{Pool, Worker};
use podium_domain::prompt::Earlier;
use podium_domain::run::Planned;
use podium_ports::conductor::{Conductor, PlanOutcome, PlanRequest};
use podium_ports::vendor::{AnswerForm, ChatRequest, JsonSchema};
use podium_testkit::{Answer, Fault, OpenLimiter, ScriptedVendor, a_pool};
use regex::Regex;
use tokio_util::sync::CancellationToken;

use crate::{planned, request};

const LISTS: &str = "One drafts, one checks.\nmodel_id = [0, 2]\nsubtasks = [\"Draft \\\"it\\\".\", \"Check.\"]\n\
                     access_list = [[], [0]]";
const JSON: &str = r#"{"reasoning": "One drafts [then]\none checks.", "model_id": [0, 2], "subtasks": ["Draft \"it\".", "Check."],
    "access_list": [[], [0]]}"#;

fn model(features: &str) -> Worker {
    let pool = Pool::parse(&format!(
        r#"
        schema = 1
        name = "conductors"
        version = "1"
        vendors = [{{ id = "north", api = "openai-chat", base_url = "http://127.0.0.1:1/v1" }}]
        [[workers]]
        id = "planner"
        vendor = "north"
        model = "planner-1"
        description = "plans"
        context_tokens = 8192
        usd_per_million_tokens = {{ input = 1.0, output = 10.0 }}
        features = {features}
        "#
    ));
    pool.unwrap().workers()[0].clone()
}

async fn plan_with(
    features: &str,
    request: &PlanRequest,
    answers: impl IntoIterator<Item = Answer>,
) -> (PlanOutcome, Vec<ChatRequest>) {
    let vendor = ScriptedVendor::new();
    vendor.script("planner", answers);
    let (vendors, pool) = (Arc::new(vendor.clone()), Arc::new(a_pool()));
    let conductor = RemoteConductor::new(
        vendors,
        Arc::new(OpenLimiter::default()),
        model(features),
        pool,
        RemoteOptions::default(),
    );
    let outcome = conductor.plan(request, &|_| {}, &CancellationToken::new()).await.unwrap();
    (outcome, vendor.calls_of("planner"))
}

/// The regular expression that the endpoint receives.
async fn regex(request: &PlanRequest) -> Regex {
    let (_, calls) = plan_with("[\"regex\", \"json_schema\"]", request, [Answer::text(LISTS)]).await;
    let AnswerForm::Regex(regex) = &calls[0].answer else { panic!("{:?}", calls[0].answer) };
    Regex::new(&format!("^(?:{regex})$")).unwrap()
}

#[tokio::test]
async fn the_regex_matches_exactly_the_well_formed_plans() {
    let request = request();
    let regex = regex(&request).await;
    let with = |access: &str| {
        let lists = format!("model_id = [0, 1, 2]\nsubtasks = [\"a\", \"b\", \"c\"]\naccess_list = {access}");
        (regex.is_match(&lists), PlanDraft::parse(&lists).unwrap().check(&a_pool(), &request.policy).is_ok())
    };
    assert!(regex.is_match(LISTS));
    for access in ["[[], [], []]", "[[], [0], [0, 1]]", "[[], [\"all\"], [1]]", "[[], [0], [\"all\"]]"] {
        assert_eq!(with(access), (true, true), "{access}");
    }
    for access in ["[[], []]", "[[0], [], []]", "[[], [1], []]", "[[], [], [2]]", "[[], [], [], []]"] {
        assert_eq!(with(access), (false, false), "{access}");
    }
    for text in [
        "I would ask a friend.",
        "model_id = [9]\nsubtasks = [\"a\"]\naccess_list = [[]]",
        "model_id = [0, 1]\nsubtasks = [\"a\"]\naccess_list = [[], []]",
        "model_id = []\nsubtasks = []\naccess_list = []",
        "model_id = [0, 0, 0, 0, 0, 0]\nsubtasks = [\"a\", \"a\", \"a\", \"a\", \"a\", \"a\"]\naccess_list = [[], [], [], [], [], []]",
        "model_id = [0]\nsubtasks = [\"a\"]\naccess_list = [[]] and more",
    ] {
        assert!(!regex.is_match(text), "{text}");
    }
}

#[tokio::test]
async fn the_regex_obeys_the_policy_and_may_keep_an_answer() {
    let mut narrow = request();
    narrow.earlier = Some(Earlier { text: "<step number=\"1\">...</step>".to_owned(), gave_answer: true });
    narrow.policy.workers_allowed = WorkersAllowed::Only(BTreeSet::from([
        WorkerId::new("quick").unwrap(),
        WorkerId::new("checker").unwrap(),
    ]));
    let regex = regex(&narrow).await;
    assert!(regex.is_match("Fine.\nmodel_id = []\nsubtasks = []\naccess_list = []"));
    assert!(regex.is_match("model_id = [2]\nsubtasks = [\"a\"]\naccess_list = [[]]"));
    assert!(!regex.is_match("model_id = [1]\nsubtasks = [\"a\"]\naccess_list = [[]]"));
}

#[tokio::test]
async fn a_json_plan_has_its_members_in_reading_order() {
    let (outcome, calls) = plan_with("[\"json_schema\"]", &request(), [Answer::text(JSON)]).await;
    let Planned { plan, reasoning, .. } = planned(&outcome);
    assert_eq!(reasoning, "One drafts [then]\none checks.");
    let subtasks: Vec<_> = plan.steps().iter().map(|step| step.subtask.as_str()).collect();
    assert_eq!(subtasks, ["Draft \"it\".", "Check."]);
    let AnswerForm::JsonSchema(JsonSchema { schema, .. }) = &calls[0].answer else {
        panic!("{:?}", calls[0].answer)
    };
    // Models write the members in the order of the schema, and workers begin while the rest is being written.
    let members: Vec<_> = schema["properties"].as_object().unwrap().keys().collect();
    assert_eq!(members, ["reasoning", "model_id", "subtasks", "access_list"]);
    assert!(calls[0].messages[0].text.ends_with("in place of \"all\"."));
}

#[tokio::test]
async fn output_is_checked_even_if_the_endpoint_accepts_the_form() {
    let other = r#"{"reasoning": "", "model_id": [0, 9], "subtasks": ["a"], "access_list": [[]]}"#;
    let (outcome, calls) =
        plan_with("[\"json_schema\"]", &request(), [Answer::text(other), Answer::text(LISTS)]).await;
    assert_eq!(planned(&outcome).plan.len(), 2);
    assert_eq!(planned(&outcome).reasoning, "One drafts, one checks.");
    assert_eq!(calls.len(), 2);
}

#[tokio::test]
async fn a_rejected_response_format_is_not_sent_again() {
    let refusal = Fault::Refused { message: "response_format: this schema is not supported".to_owned() };
    let answers = [Answer::refuse(refusal), Answer::text("No."), Answer::text(LISTS)];
    let (outcome, calls) = plan_with("[\"json_schema\"]", &request(), answers).await;
    assert_eq!(planned(&outcome).plan.len(), 2);
    let forms: Vec<_> = calls.iter().map(|call| call.answer != AnswerForm::Text).collect();
    assert_eq!(forms, [true, false, false]);
}
