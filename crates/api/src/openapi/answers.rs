//! The schemas of answers. Tests with real clients compare them with the answers of every route.

use serde_json::{Map, Value, json};

/// The schemas by their names.
pub(super) fn schemas() -> Map<String, Value> {
    let named = [
        ("ChatCompletion", chat_completion()),
        ("Usage", usage("prompt", "completion")),
        ("ResponseUsage", usage("input", "output")),
        ("Podium", podium()),
        ("ToolCall", tool_call()),
        ("Response", response()),
        ("Item", item()),
        ("ItemList", list(&reference("Item"), &pages())),
        ("Compaction", compaction()),
        (
            "InputTokens",
            members(&[("object", json!({"const": "response.input_tokens"})), ("input_tokens", count())]),
        ),
        ("Conversation", conversation()),
        ("Removed", members(&[("id", text()), ("object", text()), ("deleted", json!({"const": true}))])),
        ("Message", message()),
        ("TokenCount", members(&[("input_tokens", count())])),
        ("Estimate", estimate()),
        ("BudgetList", list(&budget(), &[])),
        ("RunList", list(&run_summary(), &pages())),
        ("Run", run()),
        (
            "Rating",
            with(
                members(&[("object", text()), ("run_id", text()), ("score", number())]),
                &[("comment", text())],
            ),
        ),
        ("Model", json!({"anyOf": [model(), anthropic_model()]})),
        ("ModelList", model_list()),
        ("Document", document()),
    ];
    named.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect()
}

fn document() -> Value {
    members(&[
        ("openapi", text()),
        ("info", any_object()),
        ("paths", any_object()),
        ("components", any_object()),
        ("security", array(&any_object())),
    ])
}

fn text() -> Value {
    json!({"type": "string"})
}

fn count() -> Value {
    json!({"type": "integer", "minimum": 0})
}

fn number() -> Value {
    json!({"type": "number"})
}

fn flag() -> Value {
    json!({"type": "boolean"})
}

fn any_object() -> Value {
    json!({"type": "object"})
}

fn one_of(names: &[&str]) -> Value {
    json!({ "enum": names })
}

fn maybe(schema: &Value) -> Value {
    json!({"anyOf": [schema, {"type": "null"}]})
}

fn array(schema: &Value) -> Value {
    json!({"type": "array", "items": schema})
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// An object that always has these members.
fn members(always: &[(&str, Value)]) -> Value {
    let names: Vec<_> = always.iter().map(|(name, _)| *name).collect();
    with(json!({"type": "object", "properties": {}, "required": names}), always)
}

/// The same object, which may have more members.
fn with(mut object: Value, more: &[(&str, Value)]) -> Value {
    if let Some(properties) = object["properties"].as_object_mut() {
        properties.extend(more.iter().map(|(name, schema)| ((*name).to_owned(), schema.clone())));
    }
    object
}

/// A list whose entries have this schema, with further members.
fn list(entry: &Value, more: &[(&str, Value)]) -> Value {
    members(&[&[("object", json!({"const": "list"})), ("data", array(entry))], more].concat())
}

/// The members of a list that has pages.
fn pages() -> [(&'static str, Value); 3] {
    [("first_id", maybe(&text())), ("last_id", maybe(&text())), ("has_more", flag())]
}

fn podium() -> Value {
    let step = members(&[("round", count()), ("step", count()), ("worker", text()), ("reason", text())]);
    let shown_step = members(&[
        ("round", count()),
        ("step", count()),
        ("worker", text()),
        ("state", text()),
        ("attempts", count()),
        ("prompt_tokens", count()),
        ("completion_tokens", count()),
        ("cost_nano_usd", count()),
        ("latency_ms", maybe(&count())),
    ]);
    let object = members(&[
        ("conductor", text()),
        ("pool", text()),
        ("cost_nano_usd", count()),
        ("wasted_cost_nano_usd", count()),
        ("fallbacks", count()),
        ("failed_steps", array(&step)),
        ("degraded", flag()),
        ("refused", flag()),
    ]);
    with(
        object,
        &[
            ("replanned_because", failure()),
            ("steps", array(&shown_step)),
            ("tools_left_out", array(&text())),
            ("error_code", text()),
        ],
    )
}

fn failure() -> Value {
    members(&[("code", text()), ("message", text())])
}

/// The usage of an API that has these names for the tokens of the prompt and of the answer.
fn usage(prompt: &str, answer: &str) -> Value {
    let of_prompt = members(&[
        ("cached_tokens", count()),
        ("cache_write_tokens", count()),
        ("orchestration_input_tokens", count()),
        ("orchestration_input_cached_tokens", count()),
    ]);
    let of_prompt = with(of_prompt, &[("step_cache_input_tokens", count())]);
    let of_answer = members(&[("reasoning_tokens", count()), ("orchestration_output_tokens", count())]);
    let of_answer = with(of_answer, &[("step_cache_output_tokens", count())]);
    members(&[
        (format!("{prompt}_tokens").as_str(), count()),
        (format!("{answer}_tokens").as_str(), count()),
        ("total_tokens", count()),
        (format!("{prompt}_tokens_details").as_str(), of_prompt),
        (format!("{answer}_tokens_details").as_str(), of_answer),
    ])
}

fn tool_call() -> Value {
    let function = members(&[("name", text()), ("arguments", text())]);
    members(&[("id", text()), ("type", json!({"const": "function"})), ("function", function)])
}

fn chat_completion() -> Value {
    let message = members(&[
        ("role", json!({"const": "assistant"})),
        ("content", maybe(&text())),
        ("refusal", maybe(&text())),
    ]);
    let message = with(message, &[("reasoning", text()), ("tool_calls", array(&reference("ToolCall")))]);
    let choice = members(&[
        ("index", count()),
        ("message", message),
        ("logprobs", json!({"type": "null"})),
        ("finish_reason", one_of(&["stop", "length", "content_filter", "tool_calls"])),
    ]);
    members(&[
        ("id", text()),
        ("object", json!({"const": "chat.completion"})),
        ("created", count()),
        ("model", text()),
        ("system_fingerprint", text()),
        ("choices", array(&choice)),
        ("usage", reference("Usage")),
        ("podium", reference("Podium")),
    ])
}

fn response() -> Value {
    let format = json!({"type": "object", "required": ["type"], "properties": {
        "type": one_of(&["text", "json_object", "json_schema"]),
        "name": text(), "description": maybe(&text()), "schema": {}, "strict": flag(),
    }});
    let always = [
        ("id", text()),
        ("object", json!({"const": "response"})),
        ("created_at", count()),
        ("completed_at", maybe(&count())),
        ("status", one_of(&["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"])),
        ("background", flag()),
        ("error", maybe(&failure())),
        ("incomplete_details", maybe(&members(&[("reason", text())]))),
        ("instructions", maybe(&text())),
        ("max_output_tokens", maybe(&count())),
        ("max_tool_calls", maybe(&count())),
        ("model", text()),
        ("output", array(&reference("Item"))),
        ("parallel_tool_calls", flag()),
        ("previous_response_id", maybe(&text())),
        ("prompt_cache_key", maybe(&text())),
        ("reasoning", members(&[("effort", text()), ("summary", maybe(&text()))])),
        ("safety_identifier", maybe(&text())),
        ("service_tier", text()),
        ("store", flag()),
        ("temperature", number()),
        ("text", members(&[("format", format), ("verbosity", text())])),
        ("tool_choice", json!({"type": ["string", "object"]})),
        ("tools", array(&any_object())),
        ("top_logprobs", count()),
        ("top_p", number()),
        ("presence_penalty", number()),
        ("frequency_penalty", number()),
        ("truncation", one_of(&["auto", "disabled"])),
        ("usage", maybe(&reference("ResponseUsage"))),
        ("user", maybe(&text())),
        ("metadata", metadata()),
    ];
    let sometimes = [
        ("conversation", members(&[("id", text())])),
        ("prompt_cache_retention", text()),
        ("podium", reference("Podium")),
    ];
    with(members(&always), &sometimes)
}

fn metadata() -> Value {
    json!({"type": "object", "additionalProperties": text()})
}

/// An item of a response or a conversation; its type says which other members it has.
fn item() -> Value {
    let content = with(
        members(&[("type", one_of(&["input_text", "input_image", "input_file", "output_text", "refusal"]))]),
        &[
            ("text", text()),
            ("image_url", text()),
            ("detail", text()),
            ("filename", text()),
            ("file_data", text()),
            ("annotations", array(&json!({}))),
            ("logprobs", array(&json!({}))),
            ("refusal", text()),
        ],
    );
    let kinds = [
        "message",
        "reasoning",
        "function_call",
        "function_call_output",
        "custom_tool_call",
        "custom_tool_call_output",
        "tool_search_call",
        "tool_search_output",
    ];
    let sometimes = [
        ("status", one_of(&["in_progress", "completed", "incomplete"])),
        ("role", one_of(&["user", "assistant", "system"])),
        ("content", array(&content)),
        ("phase", one_of(&["commentary", "final_answer"])),
        ("summary", array(&members(&[("type", json!({"const": "summary_text"})), ("text", text())]))),
        ("encrypted_content", text()),
        ("call_id", text()),
        ("namespace", text()),
        ("name", text()),
        ("arguments", json!({"type": ["string", "object"]})),
        ("input", text()),
        ("output", json!({"anyOf": [text(), array(&content)]})),
        ("execution", text()),
        ("tools", array(&json!({}))),
    ];
    with(members(&[("type", one_of(&kinds)), ("id", text())]), &sometimes)
}

fn compaction() -> Value {
    let summary =
        members(&[("type", json!({"const": "compaction"})), ("id", text()), ("encrypted_content", text())]);
    let item = json!({"anyOf": [reference("Item"), summary]});
    members(&[
        ("id", text()),
        ("object", json!({"const": "response.compaction"})),
        ("created_at", count()),
        ("output", array(&item)),
        ("usage", reference("ResponseUsage")),
        ("podium", reference("Podium")),
    ])
}

fn conversation() -> Value {
    members(&[
        ("id", text()),
        ("object", json!({"const": "conversation"})),
        ("created_at", count()),
        ("metadata", metadata()),
    ])
}

fn message() -> Value {
    let block = with(
        members(&[("type", one_of(&["thinking", "text", "tool_use"]))]),
        &[
            ("thinking", text()),
            ("signature", text()),
            ("text", text()),
            ("citations", json!({"type": "null"})),
            ("id", text()),
            ("name", text()),
            ("input", any_object()),
        ],
    );
    let details = members(&[("type", text()), ("category", maybe(&text())), ("explanation", maybe(&text()))]);
    let usage = members(&[
        ("input_tokens", count()),
        ("cache_creation_input_tokens", count()),
        ("cache_read_input_tokens", count()),
        ("output_tokens", count()),
        ("output_tokens_details", members(&[("thinking_tokens", count())])),
        ("orchestration_input_tokens", count()),
        ("orchestration_output_tokens", count()),
    ]);
    members(&[
        ("id", text()),
        ("type", json!({"const": "message"})),
        ("role", json!({"const": "assistant"})),
        ("model", text()),
        ("content", array(&block)),
        ("stop_reason", one_of(&["end_turn", "max_tokens", "stop_sequence", "tool_use", "refusal"])),
        ("stop_sequence", maybe(&text())),
        ("stop_details", maybe(&details)),
        ("usage", usage),
        ("podium", reference("Podium")),
    ])
}

fn estimate() -> Value {
    let step = members(&[("worker", text()), ("cost_max_nano_usd", count())]);
    let typical = members(&[("cost_nano_usd", count()), ("runs", count())]);
    members(&[
        ("object", json!({"const": "estimate"})),
        ("cost_max_nano_usd", count()),
        ("planning_cost_max_nano_usd", count()),
        ("cost_min_nano_usd", count()),
        ("steps", array(&step)),
        ("typical", maybe(&typical)),
    ])
}

fn budget() -> Value {
    members(&[
        ("object", json!({"const": "budget"})),
        ("payer", text()),
        ("period", text()),
        ("period_start_ms", count()),
        ("cap_nano_usd", maybe(&count())),
        ("spent_nano_usd", count()),
        ("reserved_nano_usd", count()),
    ])
}

fn run_state() -> Value {
    one_of(&["active", "suspended", "succeeded", "failed", "cancelled"])
}

fn run_summary() -> Value {
    members(&[
        ("id", text()),
        ("object", json!({"const": "run.summary"})),
        ("state", run_state()),
        ("model", text()),
        ("question", text()),
        ("created", count()),
        ("ended", maybe(&count())),
        ("step_count", count()),
        ("cost_nano_usd", count()),
        ("wasted_cost_nano_usd", count()),
        ("fallbacks", count()),
        ("failed_step_count", maybe(&count())),
        ("degraded", maybe(&flag())),
        ("refused", maybe(&flag())),
    ])
}

fn run() -> Value {
    let step = members(&[
        ("round", count()),
        ("index", count()),
        ("worker", text()),
        ("fell_back_to", maybe(&text())),
        ("state", text()),
        ("subtask", text()),
        ("attempts", count()),
        ("cost_nano_usd", count()),
    ]);
    let always = [
        ("id", text()),
        ("object", json!({"const": "run"})),
        ("trace_id", text()),
        ("state", run_state()),
        ("model", text()),
        ("created", count()),
        ("deadline", count()),
        ("ended", maybe(&count())),
        ("answer", maybe(&text())),
        ("error", maybe(&failure())),
        ("usage", reference("Usage")),
        ("podium", reference("Podium")),
        ("steps", array(&step)),
    ];
    with(members(&always), &[("results_due", count()), ("tool_calls", array(&reference("ToolCall")))])
}

/// A model, for clients without the header `anthropic-version`.
fn model() -> Value {
    members(&[
        ("id", text()),
        ("object", json!({"const": "model"})),
        ("created", count()),
        ("owned_by", text()),
    ])
}

fn anthropic_model() -> Value {
    members(&[
        ("type", json!({"const": "model"})),
        ("id", text()),
        ("display_name", text()),
        ("created_at", text()),
        ("lifecycle", text()),
    ])
}

fn model_list() -> Value {
    let page = members(&[&[("data", array(&anthropic_model()))], pages().as_slice()].concat());
    json!({"anyOf": [list(&model(), &[("models", array(&json!({})))]), page]})
}
