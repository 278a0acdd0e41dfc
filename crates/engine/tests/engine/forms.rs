//! Images, PDFs, response formats and stop sequences: the workers that support them, and the requests that contain them.

use std::sync::Arc;

use podium_domain::answer::{AnswerForm, JsonSchema};
use podium_domain::content::{Image, MediaType, Part, Pdf, PdfSource};
use podium_domain::conversation::{Conversation, Message, Role};
use podium_domain::ids::WorkerId;
use podium_domain::policy::{Effort, Policy, Tier, WorkersAllowed};
use podium_domain::pool::{Feature, Modality};
use podium_domain::stops::Stops;
use podium_engine::{Submit, SubmitError};
use podium_testkit::{Answer, a_pool, plan_of};
use serde_json::json;

use crate::house::{House, Parts, quick, request, with};

fn ultra() -> Policy {
    Policy::new(Tier::Ultra, Effort::Medium)
}

fn picture() -> Part {
    Part::Image(Image::Data { media_type: MediaType::Png, base64: "iVBORw0KGgo=".to_owned() })
}

fn asking(text: &str) -> Submit {
    let conversation = Conversation::new(vec![Message::new(Role::User, text).with([picture()])]).unwrap();
    with(request(ultra()), |request| request.conversation = conversation)
}

fn formed(answer: AnswerForm) -> Submit {
    with(request(ultra()), |request| request.answer = answer)
}

fn a_schema() -> AnswerForm {
    let schema = json!({ "type": "object", "properties": { "why": { "type": "string" } } });
    AnswerForm::JsonSchema(JsonSchema { name: "reason".to_owned(), schema, strict: true })
}

/// An engine where these workers support images and JSON, and two others of the pool do not.
async fn house(able: &[&str]) -> House {
    let able: Vec<_> = able.iter().map(|id| WorkerId::new(*id).unwrap()).collect();
    let tamper = |parts: &mut Parts| {
        let mut workers = a_pool().workers().to_vec();
        for worker in workers.iter_mut().filter(|worker| able.contains(&worker.id)) {
            worker.modalities.push(Modality::Image);
            worker.features.extend([Feature::JsonObject, Feature::JsonSchema]);
        }
        parts.pool = Arc::new(a_pool().with_workers(workers));
    };
    let idle = House::idle(quick(), |store| store).await;
    idle.beside(quick(), 8, tamper).at_work()
}

#[tokio::test]
async fn every_step_goes_to_workers_that_support_the_images() {
    let house = house(&["quick", "careful"]).await;
    house.conductor.otherwise(plan_of(&[("quick", "look", &[]), ("careful", "tell", &[0])]));
    house.vendor.otherwise(Answer::text("a cat"));
    let run = house.engine.submit(asking("What is this?")).await.unwrap().run_id();
    let run = house.ended(run).await;
    assert_eq!(run.answer(), Some("a cat"));
    let able = ["quick", "careful"].map(|id| WorkerId::new(id).unwrap());
    let able = WorkersAllowed::Only(able.into());
    assert_eq!(run.spec().request.policy.workers_allowed, able);
    let planned = house.conductor.requests().remove(0);
    assert_eq!(
        (planned.policy.workers_allowed, planned.question.as_str()),
        (able, "What is this?\n[image 1]")
    );
    for worker in ["quick", "careful"] {
        let call = house.vendor.calls_of(worker).remove(0);
        let asked = call.messages.last().unwrap();
        assert!(asked.text.contains("<question>\nWhat is this?\n[image 1]\n</question>"), "{asked:?}");
        assert_eq!(asked.parts, [Part::Text("\n[image 1]\n".to_owned()), picture()]);
    }
}

#[tokio::test]
async fn every_step_sees_the_pdfs_and_is_done_by_a_worker_that_reads_them() {
    let tamper = |parts: &mut Parts| {
        let mut workers = a_pool().workers().to_vec();
        for worker in workers.iter_mut().filter(|worker| worker.id.as_str() != "checker") {
            worker.modalities.push(Modality::Pdf);
        }
        parts.pool = Arc::new(a_pool().with_workers(workers));
    };
    let idle = House::idle(quick(), |store| store).await;
    let house = idle.beside(quick(), 8, tamper).at_work();
    house.conductor.otherwise(plan_of(&[("quick", "read", &[]), ("careful", "tell", &[0])]));
    house.vendor.otherwise(Answer::text("a report"));
    let pdf =
        Part::Pdf(Pdf { name: Some("a.pdf".to_owned()), source: PdfSource::Data("JVBERi0=".to_owned()) });
    let conversation = vec![Message::new(Role::User, "What is this?").with([pdf.clone()])];
    let submit =
        with(request(ultra()), |request| request.conversation = Conversation::new(conversation).unwrap());
    let run = house.engine.submit(submit).await.unwrap().run_id();
    let run = house.ended(run).await;
    let able = ["quick", "careful"].map(|id| WorkerId::new(id).unwrap());
    assert_eq!(run.spec().request.policy.workers_allowed, WorkersAllowed::Only(able.into()));
    assert_eq!(house.conductor.requests()[0].question, "What is this?\n[PDF 1: a.pdf]");
    for worker in ["quick", "careful"] {
        let call = house.vendor.calls_of(worker).remove(0);
        let expected = [Part::Text("\n[PDF 1: a.pdf]\n".to_owned()), pdf.clone()];
        assert_eq!(call.messages.last().unwrap().parts, expected);
    }
}

#[tokio::test]
async fn a_question_for_one_worker_keeps_its_images() {
    let house = house(&["quick"]).await;
    house.conductor.otherwise(plan_of(&[("quick", "What is this?\n[image 1]", &[])]));
    house.vendor.otherwise(Answer::text("a cat"));
    let asked = asking("What is this?");
    let run = house.engine.submit(asked.clone()).await.unwrap().run_id();
    house.ended(run).await;
    assert_eq!(house.vendor.calls_of("quick").remove(0).messages, asked.request.conversation.messages());
}

#[tokio::test]
async fn only_the_final_step_has_the_response_format() {
    let house = house(&["quick", "careful"]).await;
    house.conductor.otherwise(plan_of(&[("quick", "think", &[]), ("careful", "tell", &[0])]));
    house.vendor.otherwise(Answer::text("{}"));
    for (form, words) in [
        (AnswerForm::JsonObject, "Write it as a JSON object."),
        (
            a_schema(),
            r#"schema:
{"type":"object","properties":{"why":{"type":"string"}}}"#,
        ),
    ] {
        let run = house.engine.submit(formed(form.clone())).await.unwrap().run_id();
        let run = house.ended(run).await;
        assert_eq!(run.spec().request.answer, form);
        let asked = |worker: &str| house.vendor.calls_of(worker).pop().unwrap();
        assert_eq!((asked("quick").answer, asked("careful").answer), (AnswerForm::Text, form));
        let said = |worker: &str| asked(worker).messages.last().unwrap().text.ends_with(words);
        assert!(!said("quick") && said("careful"), "{:?}", asked("careful").messages);
    }
}

#[tokio::test]
async fn only_the_final_step_has_the_stop_sequences() {
    let house = house(&[]).await;
    house.conductor.otherwise(plan_of(&[("quick", "think", &[]), ("careful", "tell", &[0])]));
    house.vendor.otherwise(Answer::text("fine"));
    let stops = Stops::new(vec!["END".to_owned(), "\n\n".to_owned()]).unwrap();
    let submit = with(request(ultra()), |request| request.stops = stops.clone());
    let run = house.ended(house.engine.submit(submit).await.unwrap().run_id()).await;
    assert_eq!((run.answer(), &run.spec().request.stops), (Some("fine"), &stops));
    let asked = |worker: &str| house.vendor.calls_of(worker).pop().unwrap();
    assert_eq!(
        (asked("quick").stops.as_slice(), asked("careful").stops.as_slice()),
        (&[][..], stops.as_slice())
    );
}

#[tokio::test]
async fn a_question_without_the_word_json_gets_a_note_on_json() {
    let house = house(&["quick"]).await;
    house.vendor.otherwise(Answer::text("{}"));
    for (question, form, turns) in [
        ("Why is the sky blue?", AnswerForm::JsonObject, 2),
        ("Why is the sky blue? In Json.", AnswerForm::JsonObject, 1),
        ("Why is the sky blue?", a_schema(), 1),
    ] {
        house.conductor.otherwise(plan_of(&[("quick", question, &[])]));
        let conversation = Conversation::question_only(question).unwrap();
        let submit = with(formed(form.clone()), |request| request.conversation = conversation);
        let run = house.engine.submit(submit).await.unwrap().run_id();
        house.ended(run).await;
        let call = house.vendor.calls_of("quick").pop().unwrap();
        assert_eq!((call.messages.len(), call.answer), (turns, form));
    }
}

#[tokio::test]
async fn a_request_that_no_worker_supports_is_rejected_at_once() {
    let house = house(&["quick"]).await;
    let others = ["careful", "checker"].map(|id| WorkerId::new(id).unwrap());
    let policy = Policy { workers_allowed: WorkersAllowed::Only(others.into()), ..ultra() };
    for (submit, feature) in [
        (asking("What is this?"), "image"),
        (formed(AnswerForm::JsonObject), "json_object"),
        (formed(a_schema()), "json_schema"),
    ] {
        let submit = with(submit, |request| request.policy = policy.clone());
        let estimated = house.engine.estimate(&submit).await.unwrap_err().to_string();
        let refused = house.engine.submit(submit).await.unwrap_err();
        assert!(matches!(&refused, SubmitError::NoneTakes(e) if e.feature.as_str() == feature));
        assert_eq!(refused.to_string(), estimated);
        assert_eq!(
            estimated,
            format!(
                "no worker can be asked for this: worker `careful` does not take {feature}, worker `checker` does not \
                 take {feature}"
            )
        );
    }
    let nameless = JsonSchema { name: String::new(), schema: json!({}), strict: true };
    let refused = house.engine.submit(formed(AnswerForm::JsonSchema(nameless))).await.unwrap_err();
    assert!(matches!(refused, SubmitError::Answer(_)), "{refused}");
    assert_eq!(house.vendor.calls().len() + house.conductor.requests().len(), 0);
}

#[tokio::test]
async fn an_image_counts_by_its_tokens_and_not_its_bytes() {
    let house = house(&["quick"]).await;
    let large = Part::Image(Image::Data { media_type: MediaType::Png, base64: "AAAA".repeat(1000) });
    let cost = async |parts: Vec<Part>| {
        let conversation = Conversation::new(vec![Message::new(Role::User, "What is this?").with(parts)]);
        let submit = with(request(ultra()), |request| request.conversation = conversation.unwrap());
        house.engine.estimate(&submit).await.unwrap().cost_min.nano_usd()
    };
    assert_eq!(cost(vec![large]).await, cost(vec![picture()]).await);
    assert!(cost(vec![picture(), picture()]).await > cost(vec![picture()]).await);
}
