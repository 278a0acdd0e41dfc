//! Messages of `podium.v1` as JSON, with the names of `proto/`. The JSON is made from the descriptors, so a new field needs no code.
//!
//! Numbers stay numbers, times are in RFC 3339, and the value of an enum is the last part of its name in lower case. Optional fields
//! are left out if they are absent.

use std::sync::LazyLock;

use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, Kind, MapKey, ReflectMessage as _, Value as Reflected};
use serde_json::{Map, Value, json};

use crate::v1::watch_run_response::Update;
use crate::{FILE_DESCRIPTORS, StreamEvent, v1};

static DESCRIPTORS: LazyLock<DescriptorPool> = LazyLock::new(|| {
    DescriptorPool::decode(FILE_DESCRIPTORS).expect("the build script wrote the descriptors")
});

/// An update of a watched run as a server-sent event, with the sequence number of a stored event. None for a heartbeat.
pub fn watch_event(update: &v1::WatchRunResponse) -> Option<(Option<u64>, StreamEvent)> {
    let (sequence, name, json) = match update.update.as_ref()? {
        Update::Event(event) => (Some(event.sequence), "event", json_of("RunEvent", event)),
        Update::PlanningText(text) => (None, "planning_text", json_of("PlanningText", text)),
        Update::StepText(text) => (None, "step_text", json_of("StepText", text)),
        Update::StepReasoning(text) => (None, "step_reasoning", json_of("StepReasoning", text)),
        Update::StepToolCall(call) => (None, "step_tool_call", json_of("StepToolCall", call)),
        Update::StepRestarted(restart) => (None, "step_restarted", json_of("StepRestarted", restart)),
        Update::Heartbeat(_) => return None,
    };
    Some((sequence, StreamEvent::named(name, json.to_string())))
}

/// A message as JSON; `name` is its name in the package `podium.v1`.
fn json_of(name: &str, message: &impl Message) -> Value {
    let descriptor = DESCRIPTORS.get_message_by_name(&format!("podium.v1.{name}"));
    let descriptor = descriptor.expect("the message is defined in `proto/`");
    let bytes = message.encode_to_vec();
    object(&DynamicMessage::decode(descriptor, &*bytes).expect("an encoded message can be decoded"))
}

fn object(message: &DynamicMessage) -> Value {
    if message.descriptor().full_name() == "google.protobuf.Timestamp" {
        return message
            .transcode_to::<prost_types::Timestamp>()
            .map_or(Value::Null, |at| at.to_string().into());
    }
    let mut members = Map::new();
    for field in message.descriptor().fields() {
        if !field.supports_presence() || message.has_field(&field) {
            members.insert(field.name().to_owned(), value(&message.get_field(&field), &field.kind()));
        }
    }
    Value::Object(members)
}

fn value(reflected: &Reflected, kind: &Kind) -> Value {
    match reflected {
        Reflected::Bool(value) => json!(value),
        Reflected::I32(value) => json!(value),
        Reflected::I64(value) => json!(value),
        Reflected::U32(value) => json!(value),
        Reflected::U64(value) => json!(value),
        Reflected::F32(value) => json!(value),
        Reflected::F64(value) => json!(value),
        Reflected::String(text) => json!(text),
        Reflected::Bytes(bytes) => json!(String::from_utf8_lossy(bytes)),
        Reflected::EnumNumber(number) => enum_name(*number, kind).map_or(json!(number), Value::String),
        Reflected::Message(message) => object(message),
        Reflected::List(elements) => elements.iter().map(|element| value(element, kind)).collect(),
        Reflected::Map(entries) => {
            let entries = entries.iter().map(|(key, entry)| (key_text(key), value(entry, kind)));
            Value::Object(entries.collect())
        }
    }
}

/// `stop` of `FINISH_REASON_STOP`. All values of an enum begin as its unspecified one does.
fn enum_name(number: i32, kind: &Kind) -> Option<String> {
    let kind = kind.as_enum()?;
    let unspecified = kind.default_value();
    let prefix = unspecified.name().strip_suffix("UNSPECIFIED")?;
    Some(kind.get_value(number)?.name().strip_prefix(prefix)?.to_ascii_lowercase())
}

fn key_text(key: &MapKey) -> String {
    match key {
        MapKey::Bool(key) => key.to_string(),
        MapKey::I32(key) => key.to_string(),
        MapKey::I64(key) => key.to_string(),
        MapKey::U32(key) => key.to_string(),
        MapKey::U64(key) => key.to_string(),
        MapKey::String(key) => key.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1::run_event::Kind as EventKind;

    #[test]
    fn an_event_has_the_names_of_its_proto() {
        let usage = v1::Usage { prompt_tokens: 7, completion_tokens: 3, ..Default::default() };
        let done = v1::StepDone {
            step: 2,
            attempt: 1,
            output: "blue".to_owned(),
            usage: Some(usage),
            finish_reason: v1::FinishReason::Stop.into(),
            ..Default::default()
        };
        let event = v1::RunEvent {
            sequence: 5,
            time: Some(prost_types::Timestamp { seconds: 1, nanos: 500_000_000 }),
            kind: Some(EventKind::StepDone(done)),
        };
        let update = v1::WatchRunResponse { update: Some(Update::Event(event)) };
        let (sequence, sent) = watch_event(&update).unwrap();
        assert_eq!((sequence, sent.name), (Some(5), Some("event")));
        let read: Value = serde_json::from_str(&sent.data).unwrap();
        assert_eq!((&read["sequence"], &read["time"]), (&json!(5), &json!("1970-01-01T00:00:01.500Z")));
        let done = &read["step_done"];
        assert_eq!((&done["step"], &done["round"], &done["output"]), (&json!(2), &json!(0), &json!("blue")));
        assert_eq!((&done["finish_reason"], &done["usage"]["prompt_tokens"]), (&json!("stop"), &json!(7)));
        assert!(
            done.get("first_token_ms").is_none()
                && done.get("saved").is_none()
                && read.get("failed").is_none()
        );
    }

    #[test]
    fn lists_absent_steps_and_tool_calls_are_written() {
        let step =
            v1::PlannedStep { index: 1, worker: "w".to_owned(), access: vec![0], ..Default::default() };
        let planned = v1::StepsPlanned { round: 0, steps: vec![step] };
        let written = json_of("StepsPlanned", &planned);
        assert_eq!(
            (&written["steps"][0]["worker"], &written["steps"][0]["access"]),
            (&json!("w"), &json!([0]))
        );
        assert_eq!(json_of("Task", &v1::Task { round: 3, step: None }), json!({"round": 3}));
        let call =
            v1::StepToolCall { id: "call_1".to_owned(), name: "look".to_owned(), ..Default::default() };
        let call = v1::WatchRunResponse { update: Some(Update::StepToolCall(call)) };
        let (sequence, sent) = watch_event(&call).unwrap();
        assert_eq!((sequence, sent.name), (None, Some("step_tool_call")));
        assert!(sent.data.contains(r#""id":"call_1","name":"look","arguments":"""#), "{}", sent.data);
        let heartbeat = Update::Heartbeat(v1::Heartbeat { sequence: 1 });
        assert!(watch_event(&v1::WatchRunResponse { update: Some(heartbeat) }).is_none());
    }
}
