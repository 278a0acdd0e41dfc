//! OpenAI Chat Completions: an answer as one object, or as the chunks of a stream.

mod request;

use serde_json::{Value, json};

use super::{
    ask::Delivery,
    completion::{Call, Completion, End},
    format::unnamed,
};

pub(super) use request::parse;

const FINGERPRINT: &str = concat!("fp_sim_", env!("CARGO_PKG_VERSION"));

/// The whole answer.
pub(super) fn whole(completion: &Completion) -> Value {
    let calls: Vec<_> =
        completion.calls.iter().enumerate().map(|(index, call)| call_body(completion, index, call)).collect();
    let mut message = json!({ "role": "assistant", "content": completion.text(), "refusal": null });
    if completion.end == End::Declined {
        message["content"] = Value::Null;
        message["refusal"] = json!(completion.text());
    }
    if !calls.is_empty() {
        if completion.pieces.is_empty() {
            message["content"] = Value::Null;
        }
        message["tool_calls"] = Value::Array(calls);
    }
    json!({
        "id": id(completion),
        "object": "chat.completion",
        "created": completion.created,
        "model": completion.model,
        "choices": [{
            "index": 0,
            "message": message,
            "logprobs": null,
            "finish_reason": finish_reason(completion.end),
        }],
        "usage": usage(completion),
        "service_tier": "default",
        "system_fingerprint": FINGERPRINT,
    })
}

/// The chunks of the stream in order: role, text pieces, tool calls, finish reason, and the usage if requested.
pub(super) fn frames(completion: &Completion, delivery: Delivery) -> Vec<String> {
    let mut deltas = vec![json!({ "role": "assistant", "content": "", "refusal": null })];
    let member = if completion.end == End::Declined { "refusal" } else { "content" };
    deltas.extend(completion.pieces.iter().map(|piece| json!({ member: piece })));
    for (index, call) in completion.calls.iter().enumerate() {
        let mut head = call_body(completion, index, call);
        head["function"]["arguments"] = json!("");
        head["index"] = json!(index);
        deltas.push(json!({ "tool_calls": [head] }));
        let piece = |text| json!({ "tool_calls": [{ "index": index, "function": { "arguments": text } }] });
        deltas.extend(call.pieces().into_iter().map(piece));
    }
    let mut chunks: Vec<_> = deltas.iter().map(|delta| chunk(completion, delta, None, delivery)).collect();
    chunks.push(chunk(completion, &json!({}), Some(finish_reason(completion.end)), delivery));
    if delivery == Delivery::StreamWithUsage {
        let mut last = envelope(completion, Value::Array(Vec::new()), delivery);
        last["usage"] = usage(completion);
        chunks.push(last);
    }
    chunks.iter().map(unnamed).collect()
}

fn chunk(completion: &Completion, delta: &Value, finish_reason: Option<&str>, delivery: Delivery) -> Value {
    let choice = json!({ "index": 0, "delta": delta, "logprobs": null, "finish_reason": finish_reason });
    envelope(completion, Value::Array(vec![choice]), delivery)
}

fn envelope(completion: &Completion, choices: Value, delivery: Delivery) -> Value {
    let mut chunk = json!({
        "id": id(completion),
        "object": "chat.completion.chunk",
        "created": completion.created,
        "model": completion.model,
        "service_tier": "default",
        "system_fingerprint": FINGERPRINT,
    });
    chunk["choices"] = choices;
    if delivery == Delivery::StreamWithUsage {
        chunk["usage"] = Value::Null;
    }
    chunk
}

fn id(completion: &Completion) -> String {
    format!("chatcmpl-sim{:016x}", completion.draw)
}

fn call_body(completion: &Completion, index: usize, call: &Call) -> Value {
    json!({
        "id": format!("call_{:016x}_{index}", completion.draw),
        "type": "function",
        "function": { "name": call.name, "arguments": call.arguments },
    })
}

fn finish_reason(end: End) -> &'static str {
    match end {
        // OpenAI ends a refusal like any other answer.
        End::Stop | End::StopSequence(_) | End::Declined => "stop",
        End::Length => "length",
        End::ToolCalls => "tool_calls",
    }
}

fn usage(completion: &Completion) -> Value {
    let completion_tokens = completion.completion_tokens();
    json!({
        "prompt_tokens": completion.prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": completion.prompt_tokens + completion_tokens,
        "prompt_tokens_details": { "cached_tokens": completion.cached_tokens, "audio_tokens": 0 },
        "completion_tokens_details": {
            "reasoning_tokens": completion.reasoning_tokens(), "audio_tokens": 0,
            "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0,
        },
    })
}
