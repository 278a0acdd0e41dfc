"""The HTTP API, through the official `anthropic` package."""

import datetime
import json
import uuid

import anthropic
import httpx
import pytest
from conftest import ANSWER, PATIENCE_S, QUESTION, ROOT, Podium

WORDS_QUESTION = "Write 123456 in words."
WORDS_ANSWER = "one hundred and twenty-three thousand four hundred and fifty-six"
IMAGE = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
PDF = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}


def client(podium: Podium, **options: object) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=podium.http, api_key="none", max_retries=0, timeout=PATIENCE_S, **options)


def request(question: str | list[dict] = WORDS_QUESTION, **parameters: object) -> dict:
    messages = [{"role": "user", "content": question}]
    return {"model": "podium-ultra", "max_tokens": 200, "messages": messages, **parameters}


def ask(podium: Podium, question: str | list[dict] = WORDS_QUESTION, **parameters: object) -> anthropic.types.Message:
    return client(podium).messages.create(**request(question, **parameters))


def refusal(kind: type, podium: Podium, **parameters: object) -> anthropic.APIStatusError:
    with pytest.raises(kind) as caught:
        ask(podium, **parameters)
    error = caught.value
    assert error.body["type"] == "error"
    assert error.body["request_id"] == error.request_id
    return error


def test_a_question_is_answered_by_a_workflow(podium: Podium) -> None:
    message = ask(podium, QUESTION)
    assert [block.text for block in message.content] == [ANSWER]
    assert (message.role, message.type, message.model) == ("assistant", "message", "podium-ultra")
    assert (message.stop_reason, message.stop_sequence) == ("end_turn", None)
    assert message.usage.input_tokens > 0 and message.usage.output_tokens > 0
    podium_object = message.model_extra["podium"]
    assert podium_object["cost_nano_usd"] == sum(step["cost_nano_usd"] for step in podium_object["steps"]) > 0
    assert message.id.startswith("msg_")


def test_the_run_of_a_message_is_found_by_its_id(podium: Podium) -> None:
    raw = client(podium).messages.with_raw_response.create(**request())
    run_id = raw.headers["x-podium-run-id"]
    message = raw.parse()
    assert message.id == f"msg_{uuid.UUID(run_id).hex}"
    run = httpx.get(f"{podium.http}/v1/runs/{run_id}").json()
    assert run["answer"] == message.content[0].text
    usage = message.usage
    prompt = usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens
    assert run["usage"]["prompt_tokens"] == prompt
    assert run["usage"]["completion_tokens"] == usage.output_tokens


def test_a_streamed_message_is_the_plain_one_in_pieces(direct: Podium) -> None:
    plain = ask(direct)
    assert plain.content[0].text == WORDS_ANSWER
    with client(direct).messages.stream(**request()) as stream:
        pieces = list(stream.text_stream)
        streamed = stream.get_final_message()
    assert len(pieces) > 1 and "".join(pieces) == WORDS_ANSWER
    assert streamed.content[0].text == WORDS_ANSWER
    assert (streamed.stop_reason, streamed.usage.output_tokens) == ("end_turn", plain.usage.output_tokens)
    assert streamed.usage.input_tokens == plain.usage.input_tokens


def test_the_events_of_a_stream_have_the_order_of_the_api(direct: Podium) -> None:
    events = list(client(direct).messages.create(**request(), stream=True))
    kinds = [event.type for event in events]
    middle = kinds[2:-3]
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert middle and set(middle) == {"content_block_delta"}
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert events[0].message.usage.input_tokens > 0
    assert events[-2].model_extra["podium"]["fallbacks"] == 0


def test_instructions_and_earlier_turns_reach_the_worker(able: Podium) -> None:
    marked = {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}
    turns = [
        {"role": "user", "content": "What is blue?"},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "The sky."}]},
        {"role": "user", "content": [{"type": "text", "text": "And"}, {"type": "text", "text": "green?"}]},
    ]
    answer = ask(able, system=[marked], messages=turns)
    assert answer.content[0].text == "And\ngreen?"
    # The simulated worker repeats the last question, and counts the tokens of all that it got.
    alone = ask(able, messages=turns[-1:])
    assert answer.usage.input_tokens > alone.usage.input_tokens


def test_an_image_reaches_the_worker(able: Podium) -> None:
    question = [{"type": "text", "text": "What is this?"}, {"type": "image", "source": IMAGE}]
    answer = ask(able, question).content[0].text
    assert "What is this?" in answer and "[image data:image/png;base64,iVBORw0KGgo=" in answer


def test_a_pdf_reaches_the_worker(able: Podium) -> None:
    question = [{"type": "text", "text": "What is this?"}, {"type": "document", "title": "Report", "source": PDF}]
    answer = ask(able, question).content[0].text
    assert "What is this?" in answer and "[pdf Report.pdf data:application/pdf;base64,JVBERi0=]" in answer
    counted = client(able).messages.count_tokens(model="podium-ultra", messages=[{"role": "user", "content": question}])
    assert 3000 <= counted.input_tokens < 3100


def test_what_no_worker_takes_is_refused(podium: Podium, able: Podium) -> None:
    url = {"type": "url", "url": "https://example.org/a.pdf"}
    for server, worker, block, feature in [
        (podium, "sim-words", {"type": "image", "source": IMAGE}, "image"),
        (podium, "sim-words", {"type": "document", "source": PDF}, "pdf"),
        # The worker's own API, Chat Completions, cannot name the URL of a file.
        (able, "sim-words", {"type": "document", "source": url}, "pdf by URL"),
    ]:
        error = refusal(anthropic.BadRequestError, server, question=[{"type": "text", "text": "What is this?"}, block])
        assert error.type == "invalid_request_error"
        assert f"worker `{worker}` does not take {feature}" in error.api_message


def test_an_answer_follows_a_schema(able: Podium) -> None:
    schema = {"type": "object", "properties": {"why": {"type": "string"}}, "required": ["why"], "additionalProperties": False}
    config = {"format": {"type": "json_schema", "schema": schema}}
    answer = ask(able, "Why is the sky blue?", output_config=config).content[0].text
    assert json.loads(answer) == {"why": "Why is the sky blue?"}


def test_a_tool_is_called_and_its_result_is_answered(calling: Podium) -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    options = {"model": "podium-mini", "tools": [{"name": "weather", "description": "The weather.", "input_schema": schema}]}
    question = "Ask weather, please."
    asked = ask(calling, question, **options)
    (call,) = asked.content
    assert (asked.stop_reason, call.type, call.name, call.input) == ("tool_use", "tool_use", "weather", {"city": question})
    with client(calling).messages.stream(**request(question, **options)) as stream:
        (streamed,) = stream.get_final_message().content
    assert (streamed.type, streamed.name, streamed.input) == (call.type, call.name, call.input)
    turns = [
        {"role": "user", "content": question},
        {"role": "assistant", "content": [call.model_dump(exclude_none=True)]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "cold"}]},
    ]
    answer = ask(calling, messages=turns, **options)
    assert (answer.stop_reason, answer.content[0].text) == ("end_turn", "The tools gave: cold")


def test_the_ultra_tier_continues_its_run_with_the_results(calling: Podium) -> None:
    names = ["look", "clock"]
    tools = [{"name": name, "input_schema": {"type": "object", "properties": {}}} for name in names]
    first = ask(calling, "Ask look and clock.", tools=tools)
    calls = [block for block in first.content if block.type == "tool_use"]
    assert (first.stop_reason, [call.name for call in calls]) == ("tool_use", names)
    run = first.id.removeprefix("msg_")
    state = lambda: httpx.get(f"{calling.http}/v1/runs/{uuid.UUID(run)}").json()["state"]  # noqa: E731
    assert state() == "suspended"
    results = [{"type": "tool_result", "tool_use_id": call.id, "content": f"{call.name} is fine"} for call in calls]
    turns = [
        {"role": "user", "content": "Ask look and clock."},
        {"role": "assistant", "content": [block.to_dict() for block in first.content]},
        {"role": "user", "content": results},
    ]
    second = client(calling).messages.create(model="podium-ultra", max_tokens=200, messages=turns, tools=tools)
    assert second.content[0].text == "The tools gave: look is fine; clock is fine"
    assert second.id == f"{first.id}_1" and state() == "succeeded"
    with client(calling).messages.stream(model="podium-ultra", max_tokens=200, messages=turns, tools=tools) as stream:
        assert stream.get_final_message().content[0].text == second.content[0].text


def test_an_answer_ends_before_a_stop_sequence(direct: Podium) -> None:
    message = ask(direct, stop_sequences=[" and "])
    assert message.content[0].text == "one hundred"
    # The simulated worker's vendor has OpenAI's format, which does not say what ended an answer.
    assert (message.stop_reason, message.stop_sequence) == ("end_turn", None)


def test_what_changes_nothing_is_accepted(direct: Podium) -> None:
    extra = {"temperature": 0.1, "top_p": 0.9, "top_k": 40, "context_management": {"edits": []}}
    message = ask(
        direct,
        metadata={"user_id": "me"},
        service_tier="auto",
        thinking={"type": "enabled", "budget_tokens": 1024},
        tools=[],
        extra_body=extra,
        extra_headers={"anthropic-beta": "context-management-2025-06-27"},
    )
    assert message.content[0].text == WORDS_ANSWER


def test_a_model_name_may_ask_for_a_long_context(direct: Podium) -> None:
    assert ask(direct, model="podium-mini[1m]").model == "podium-mini"


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"container": "c"}, "container"),
        ({"stop_sequences": ["a"] * 5}, "stop_sequences"),
        ({"output_config": {"effort": "extreme"}}, "output_config.effort"),
        ({"extra_body": {"colour": "red"}}, "colour"),
        ({"extra_body": {"temperature": 1.5}}, "temperature"),
        ({"extra_body": {"podium": {"steps_max": 17}}}, "podium.steps_max"),
    ],
)
def test_a_wrong_parameter_is_refused_by_name(podium: Podium, parameters: dict, named: str) -> None:
    error = refusal(anthropic.BadRequestError, podium, **parameters)
    assert error.type == "invalid_request_error" and named in error.api_message


def test_every_parameter_of_the_package_is_known_and_documented(podium: Podium) -> None:
    plain, beta = anthropic.types.message_create_params, anthropic.types.beta.message_create_params
    of_headers = {"betas", "user_profile_id", "workspace_id"}
    kinds = (plain.MessageCreateParamsBase, plain.MessageCreateParamsStreaming, beta.MessageCreateParamsBase)
    names = {name for kind in kinds for name in kind.__annotations__} - of_headers
    page = (ROOT / "docs/messages-api.md").read_text()
    assert len(names) > 20 and [name for name in sorted(names) if f"`{name}" not in page] == []
    for name in names:
        wrong = httpx.post(f"{podium.http}/v1/messages", json={**request(), name: {"wrong": [1]}}, timeout=PATIENCE_S)
        assert wrong.status_code in (200, 400), (name, wrong.text)
        assert f"unknown parameter `{name}`" not in wrong.text


def test_an_unknown_model_is_not_found(podium: Podium) -> None:
    error = refusal(anthropic.NotFoundError, podium, model="claude-opus-5")
    assert (error.status_code, error.type) == (404, "not_found_error")


def test_a_run_that_fails_is_an_error_that_is_not_paid_again(fresh: Podium) -> None:
    error = {"kind": "server_error"}
    with fresh.behaving("sim-words", error), fresh.behaving("sim-generalist", error):
        calls = len(fresh.calls())
        retrying = client(fresh).with_options(max_retries=2)
        with pytest.raises(anthropic.InternalServerError) as caught:
            retrying.messages.create(**request())
        assert caught.value.type == "api_error"
        assert len(fresh.calls()) == calls + 6, "three attempts with each of two workers, and no second run"
        with pytest.raises(anthropic.APIStatusError) as caught:
            list(client(fresh).messages.create(**request(), stream=True))
        assert caught.value.type == "api_error"


def test_a_repeated_request_with_a_key_is_paid_once(direct: Podium) -> None:
    headers = {"Idempotency-Key": str(uuid.uuid4())}
    first = ask(direct, extra_headers=headers)
    calls = len(direct.calls())
    assert ask(direct, extra_headers=headers) == first
    with client(direct).messages.stream(**request(), extra_headers=headers) as stream:
        assert stream.get_final_message().content[0].text == WORDS_ANSWER
    assert len(direct.calls()) == calls


def test_tokens_are_counted_before_a_request(direct: Podium) -> None:
    calls = len(direct.calls())
    messages = [{"role": "user", "content": WORDS_QUESTION}]
    count = client(direct).messages.count_tokens(model="podium-ultra", messages=messages)
    assert 0 < count.input_tokens < 100
    longer = client(direct).beta.messages.count_tokens(model="podium-ultra", messages=messages, system="Be brief.")
    assert longer.input_tokens > count.input_tokens
    assert len(direct.calls()) == calls


def test_models_are_listed_and_found(podium: Podium) -> None:
    models = list(client(podium).models.list())
    assert [model.id for model in models][:2] == ["podium-mini", "podium-ultra"]
    found = client(podium).models.retrieve("podium-ultra")
    assert found.created_at.tzinfo is not None
    assert (found.display_name, found.created_at.date()) == ("podium-ultra", datetime.datetime.now(datetime.UTC).date())
    with pytest.raises(anthropic.NotFoundError):
        client(podium).models.retrieve("claude-opus-5")


def test_the_server_says_hello(podium: Podium) -> None:
    assert httpx.head(f"{podium.http}/api/hello").status_code == 200
