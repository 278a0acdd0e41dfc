"""The HTTP API, through the official `openai` package."""

import json
import time
import uuid

import httpx
import openai
import pydantic
import pytest
from conftest import ANSWER, PATIENCE_S, QUESTION, ROOT, Podium
from openai.types.chat import completion_create_params

TOOL = {"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "properties": {}}}}
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
PDF = {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="}}
WORDS_QUESTION = "Write 123456 in words."
WORDS_ANSWER = "one hundred and twenty-three thousand four hundred and fifty-six"


def ask(podium: Podium, question: str | list[dict] = QUESTION, **parameters: object) -> object:
    messages = [{"role": "user", "content": question}]
    return podium.openai(max_retries=0).chat.completions.create(
        **{"model": "podium-ultra", "messages": messages, **parameters}
    )


def refusal(kind: type, podium: Podium, **parameters: object) -> openai.APIStatusError:
    with pytest.raises(kind) as caught:
        ask(podium, **parameters)
    return caught.value


def test_a_question_is_answered_by_a_workflow(podium: Podium) -> None:
    completion = ask(podium)
    assert completion.choices[0].message.content == ANSWER
    assert completion.choices[0].message.role == "assistant"
    assert completion.choices[0].finish_reason == "stop"
    assert completion.model == "podium-ultra"
    assert completion.object == "chat.completion"
    assert completion.system_fingerprint == "three-steps-1/demo-1"


def test_the_usage_adds_up_and_tells_the_share_of_planning(podium: Podium) -> None:
    usage = ask(podium).usage
    assert usage.prompt_tokens > 0 and usage.completion_tokens > 0
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert usage.prompt_tokens_details.model_extra["orchestration_input_tokens"] == 0
    assert usage.completion_tokens_details.model_extra["orchestration_output_tokens"] == 0


def test_a_completion_tells_what_it_cost_and_what_was_in_vain(podium: Podium, direct: Podium) -> None:
    told = ask(podium).model_extra["podium"]
    assert told["cost_nano_usd"] > 0
    assert (told["wasted_cost_nano_usd"], told["fallbacks"]) == (0, 0)
    with direct.behaving("sim-words", {"kind": "server_error"}):
        parameters = {"stream": True, "stream_options": {"include_usage": True}}
        *chunks, last = list(ask(direct, WORDS_QUESTION, **parameters))
        assert last.model_extra["podium"]["fallbacks"] == 1
        assert all("podium" not in chunk.model_extra for chunk in chunks)


def test_a_streamed_answer_is_the_plain_one_in_pieces(direct: Podium) -> None:
    plain = ask(direct, WORDS_QUESTION).choices[0].message.content
    assert plain == WORDS_ANSWER
    chunks = list(ask(direct, WORDS_QUESTION, stream=True))
    assert chunks[0].choices[0].delta.role == "assistant"
    pieces = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices[0].delta.content]
    assert len(pieces) > 1, pieces
    assert "".join(pieces) == plain
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert len({chunk.id for chunk in chunks}) == 1
    assert all(chunk.usage is None for chunk in chunks)


def test_a_stream_that_the_vendor_cuts_goes_on_with_the_next_attempt_if_that_is_wanted(direct: Podium) -> None:
    with direct.behaving("sim-words", {"kind": "cut_stream", "after_chunks": 4}, calls=1):
        calls = len(direct.calls())
        again = {"podium": {"broken_answer": "again"}}
        chunks = list(ask(direct, WORDS_QUESTION, stream=True, extra_body=again))
        assert len(direct.calls()) == calls + 2
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == WORDS_ANSWER
    assert chunks[-1].choices[0].finish_reason == "stop"


@pytest.mark.parametrize("stream", [True, False])
def test_an_answer_that_the_vendor_cuts_is_not_paid_twice(direct: Podium, stream: bool) -> None:
    with direct.behaving("sim-words", {"kind": "cut_stream", "after_chunks": 4}):
        calls = len(direct.calls())
        with pytest.raises(openai.APIError) as caught:
            list(ask(direct, WORDS_QUESTION, stream=stream, extra_body={"podium": {"fallback": "none"}}))
        assert caught.value.code == "final_step_failed"
        assert "not tried again: its answer had begun" in str(caught.value)
        assert len(direct.calls()) == calls + 1


def test_only_the_final_step_is_streamed(podium: Podium) -> None:
    chunks = ask(podium, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == ANSWER


def test_a_stream_tells_the_usage_last_when_asked(direct: Podium) -> None:
    chunks = list(ask(direct, WORDS_QUESTION, stream=True, stream_options={"include_usage": True}))
    assert chunks[-1].choices == []
    assert chunks[-1].usage.total_tokens > 0
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_the_stream_ends_with_done(direct: Podium) -> None:
    body = {"model": "podium-mini", "stream": True, "messages": [{"role": "user", "content": WORDS_QUESTION}]}
    response = httpx.post(f"{direct.http}/v1/chat/completions", json=body, timeout=PATIENCE_S)
    assert response.headers["content-type"].startswith("text/event-stream")
    uuid.UUID(response.headers["x-podium-run-id"])
    events = [line for line in response.text.split("\n\n") if line]
    assert events[-1] == "data: [DONE]"


def test_models_are_listed_and_found(podium: Podium) -> None:
    client = podium.openai()
    names = [model.id for model in client.models.list()]
    assert names == ["podium-mini", "podium-ultra", "podium-mini@three-steps-1", "podium-ultra@three-steps-1"]
    assert all(client.models.retrieve(name).id == name for name in names)
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-5")


def test_a_pinned_model_answers_and_another_pin_is_refused(podium: Podium) -> None:
    assert ask(podium, model="podium-ultra@three-steps-1").choices[0].message.content == ANSWER
    error = refusal(openai.NotFoundError, podium, model="podium-ultra@nano-1")
    assert (error.code, error.param) == ("model_not_found", "model")


def test_a_bad_model_name_is_not_found(podium: Podium) -> None:
    error = refusal(openai.NotFoundError, podium, model="gpt-5")
    assert (error.status_code, error.code, error.param) == (404, "model_not_found", "model")
    assert error.type == "invalid_request_error"


def test_a_wrong_value_is_named_with_those_that_are_right(podium: Podium) -> None:
    error = refusal(openai.BadRequestError, podium, reasoning_effort="extreme")
    assert (error.code, error.param) == ("invalid_value", "reasoning_effort")
    assert "`xhigh`" in error.message


def test_an_empty_conversation_is_refused(podium: Podium) -> None:
    error = refusal(openai.BadRequestError, podium, messages=[])
    assert (error.code, error.param) == ("invalid_value", "messages")


def test_an_unknown_parameter_is_refused(podium: Podium) -> None:
    error = refusal(openai.BadRequestError, podium, extra_body={"colour": "red"})
    assert (error.code, error.param) == ("unknown_parameter", "colour")


def test_bounds_of_a_run_come_in_the_extra_body(podium: Podium) -> None:
    bounds = {"steps_max": 3, "rounds_max": 1, "attempts_max": 2, "deadline_ms": 60_000, "fallback": "none"}
    bounds |= {"cost_max_nano_usd": 1_000_000_000, "output_bytes_max": 4096, "workers_allowed": []}
    completion = ask(podium, extra_body={"podium": bounds})
    assert completion.choices[0].message.content == ANSWER
    calls = len(podium.calls())
    error = refusal(openai.RateLimitError, podium, extra_body={"podium": {"cost_max_nano_usd": 1}})
    assert (error.code, len(podium.calls())) == ("cost_cap_reached", calls)


@pytest.mark.parametrize(
    ("bounds", "code", "param"),
    [
        ({"mood": "good"}, "unknown_parameter", "podium.mood"),
        ({"steps_max": 17}, "invalid_value", "podium.steps_max"),
        ({"fallback": "everybody"}, "invalid_value", "podium.fallback"),
        ({"broken_answer": "twice"}, "invalid_value", "podium.broken_answer"),
        ({"workers_allowed": ["sim-words", ""]}, "invalid_value", "podium.workers_allowed[1]"),
        ("fast", "invalid_value", "podium"),
    ],
)
def test_a_wrong_bound_is_refused_by_name(podium: Podium, bounds: object, code: str, param: str) -> None:
    error = refusal(openai.BadRequestError, podium, extra_body={"podium": bounds})
    assert (error.code, error.param) == (code, param)


def test_a_step_keeps_to_its_worker_where_the_request_says_so(direct: Podium) -> None:
    with direct.behaving("sim-words", {"kind": "server_error"}):
        calls = len(direct.calls())
        bounds = {"podium": {"fallback": "none", "attempts_max": 2}}
        error = refusal(openai.InternalServerError, direct, question=WORDS_QUESTION, extra_body=bounds)
        assert (error.code, len(direct.calls())) == ("final_step_failed", calls + 2)


@pytest.mark.parametrize(
    ("name", "value"),
    [("n", 2), ("logprobs", True), ("functions", [TOOL["function"]])],
)
def test_what_cannot_be_honoured_is_refused(podium: Podium, name: str, value: object) -> None:
    error = refusal(openai.BadRequestError, podium, **{name: value})
    assert (error.code, error.param) == ("unsupported_parameter", name)


def test_what_no_worker_takes_is_refused_by_worker_and_feature(podium: Podium) -> None:
    calls = len(podium.calls())
    schema = {"name": "s", "schema": {"type": "object"}}
    for form, feature in [({"type": "json_object"}, "json_object"), ({"type": "json_schema", "json_schema": schema}, "json_schema")]:
        error = refusal(openai.BadRequestError, podium, response_format=form)
        assert (error.code, error.param) == ("no_worker_allowed", "response_format")
        assert f"worker `sim-words` does not take {feature}" in str(error)
    error = refusal(openai.BadRequestError, podium, question=[{"type": "text", "text": "What is this?"}, PICTURE])
    assert (error.code, error.param) == ("no_worker_allowed", "messages")
    assert "worker `sim-words` does not take image" in str(error)
    assert len(podium.calls()) == calls


def test_an_answer_ends_before_any_of_its_stops(podium: Podium, direct: Podium) -> None:
    assert ask(direct, WORDS_QUESTION, stop=" and ").choices[0].message.content == "one hundred"
    chunks = list(ask(direct, WORDS_QUESTION, stop=["nine", " hundred"], stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "one"
    assert chunks[-1].choices[0].finish_reason == "stop"
    # The steps before the last one write "440" and "5280", and are not cut.
    assert ask(podium, stop="4").choices[0].message.content == ANSWER
    assert ask(podium, stop=[ANSWER.split()[1]]).choices[0].message.content == ANSWER.split()[0] + " "


def test_a_stop_at_the_first_word_gives_an_empty_answer(fresh: Podium) -> None:
    before = len(fresh.calls())
    completion = ask(fresh, WORDS_QUESTION, stop="one hundred")
    assert (completion.choices[0].message.content, completion.choices[0].finish_reason) == ("", "stop")
    assert completion.usage.completion_tokens >= 0
    assert len(fresh.calls()) == before + 1
    chunks = list(ask(fresh, WORDS_QUESTION, stop="one hundred", stream=True))
    assert chunks[-1].choices[0].finish_reason == "stop"


@pytest.mark.parametrize("stop", ["", ["a"] * 5, ["x" * 65]])
def test_stops_that_are_too_many_or_too_long_are_refused_by_name(podium: Podium, stop: object) -> None:
    error = refusal(openai.BadRequestError, podium, stop=stop)
    assert (error.code, error.param) == ("invalid_value", "stop")


def test_a_picture_reaches_the_worker(able: Podium) -> None:
    question = [{"type": "text", "text": "What is this?"}, PICTURE, {"type": "text", "text": "A cat?"}]
    answer = ask(able, question=question).choices[0].message.content
    assert "What is this?" in answer and "[image data:image/png;base64,iVBORw0KGgo=" in answer and "A cat?" in answer


def test_a_pdf_reaches_the_worker(able: Podium) -> None:
    answer = ask(able, question=[{"type": "text", "text": "What is this?"}, PDF]).choices[0].message.content
    assert "What is this?" in answer and "[pdf a.pdf data:application/pdf;base64,JVBERi0=]" in answer


class Reason(pydantic.BaseModel):
    why: str
    sure: bool


def test_an_answer_follows_the_schema_that_the_client_parses(able: Podium) -> None:
    messages = [{"role": "user", "content": "Why is the sky blue?"}]
    completions = able.openai(max_retries=0).chat.completions
    parsed = completions.parse(model="podium-ultra", messages=messages, response_format=Reason).choices[0].message.parsed
    assert parsed == Reason(why="Why is the sky blue?", sure=True)
    with completions.stream(model="podium-mini", messages=messages, response_format=Reason) as stream:
        assert stream.get_final_completion().choices[0].message.parsed == parsed
    answer = ask(able, question="Why?", response_format={"type": "json_object"}).choices[0].message.content
    assert json.loads(answer) == {"answer": "Why?"}


def test_what_changes_nothing_is_accepted(podium: Podium) -> None:
    completion = ask(podium, user="me", metadata={"a": "b"}, store=True, seed=7, temperature=0.1, top_p=0.9, n=1)
    assert completion.choices[0].message.content == ANSWER


def test_every_parameter_of_the_package_is_known_and_documented(podium: Podium) -> None:
    base, streaming = completion_create_params.CompletionCreateParamsBase, completion_create_params.CompletionCreateParamsStreaming
    names = set(base.__annotations__) | set(streaming.__annotations__)
    page = (ROOT / "docs/http.md").read_text()
    table = page.split("## Parameters of Chat Completions")[1].split("\n## ")[0]
    assert len(names) > 30 and [name for name in sorted(names) if f"`{name}`" not in table] == []
    body = {"model": "podium-ultra", "messages": [{"role": "user", "content": WORDS_QUESTION}]}
    for name in names:
        wrong = httpx.post(f"{podium.http}/v1/chat/completions", json={**body, name: {"wrong": [1]}}, timeout=PATIENCE_S)
        code = wrong.json().get("error", {}).get("code")
        # Parameters that are ignored may be any object.
        assert wrong.status_code in (200, 400) and code != "unknown_parameter" or name == "stream_options", (name, wrong.text)


def test_a_repeated_request_with_a_key_is_paid_once(podium: Podium) -> None:
    headers = {"Idempotency-Key": str(uuid.uuid4())}
    first = ask(podium, extra_headers=headers)
    calls = len(podium.calls())
    second = ask(podium, extra_headers=headers)
    assert second == first
    assert "".join(c.choices[0].delta.content or "" for c in ask(podium, extra_headers=headers, stream=True)) == ANSWER
    assert len(podium.calls()) == calls
    assert ask(podium).id != first.id


def test_a_bad_key_is_refused(podium: Podium) -> None:
    error = refusal(openai.BadRequestError, podium, extra_headers={"Idempotency-Key": "a b"})
    assert error.param == "idempotency-key"


def test_a_run_that_fails_is_an_error_that_is_not_paid_again(fresh: Podium) -> None:
    messages = [{"role": "user", "content": WORDS_QUESTION}]
    error = {"kind": "server_error"}
    with fresh.behaving("sim-words", error), fresh.behaving("sim-generalist", error):
        calls = len(fresh.calls())
        with pytest.raises(openai.InternalServerError) as caught:
            fresh.openai(max_retries=2).chat.completions.create(model="podium-ultra", messages=messages)
        assert len(fresh.calls()) == calls + 6, "three attempts with each of two workers, and no second run"
        assert (caught.value.code, caught.value.type) == ("final_step_failed", "server_error")
        with pytest.raises(openai.APIError) as caught:
            list(ask(fresh, WORDS_QUESTION, stream=True))
        assert caught.value.code == "final_step_failed"


def test_a_run_that_has_ended_is_rated(podium: Podium) -> None:
    def rate(run_id: str, body: dict) -> tuple[int, dict]:
        response = httpx.post(f"{podium.http}/v1/runs/{run_id}/rating", json=body, timeout=PATIENCE_S)
        return response.status_code, response.json()

    messages = [{"role": "user", "content": WORDS_QUESTION}]
    raw = podium.openai().chat.completions.with_raw_response.create(model="podium-ultra", messages=messages)
    run_id = raw.headers["x-podium-run-id"]
    rated = {"object": "run.rating", "run_id": run_id, "score": 1.0, "comment": "right"}
    assert rate(run_id, {"thumb": "up", "comment": "right"}) == (200, rated)
    assert rate(run_id, {"score": 0.25})[1]["score"] == 0.25
    status, body = rate(run_id, {"score": 7})
    assert (status, body["error"]["param"]) == (400, "score")
    assert rate(str(uuid.uuid4()), {"score": 1})[0] == 404
    assert rate("nothing", {"score": 1})[0] == 400


def test_errors_of_the_door_itself_have_the_same_shape(podium: Podium) -> None:
    def error(method: str, path: str, **options: object) -> tuple[int, str]:
        response = httpx.request(method, f"{podium.http}{path}", timeout=PATIENCE_S, **options)
        body = response.json()["error"]
        assert set(body) == {"message", "type", "param", "code"}
        assert response.headers["x-request-id"]
        return response.status_code, body["code"]

    chat = "/v1/chat/completions"
    assert error("GET", "/v1/nothing") == (404, "unknown_url")
    assert error("GET", chat) == (405, "method_not_allowed")
    assert error("POST", chat, content=b"{") == (400, "invalid_json")
    assert error("POST", chat, content=b" " * (3 << 20)) == (413, "request_too_large")


def test_the_door_is_healthy_and_ready_and_names_requests(podium: Podium) -> None:
    assert httpx.get(f"{podium.http}/healthz").status_code == 200
    assert httpx.get(f"{podium.http}/readyz").status_code == 200
    response = httpx.get(f"{podium.http}/healthz", headers={"x-request-id": "mine-1"})
    assert response.headers["x-request-id"] == "mine-1"


def test_a_client_that_times_out_cancels_its_run(fresh: Podium) -> None:
    with fresh.behaving("sim-words", {"kind": "hang"}):
        impatient = fresh.openai(max_retries=0).with_options(timeout=1)
        messages = [{"role": "user", "content": WORDS_QUESTION}]
        with pytest.raises(openai.APITimeoutError):
            impatient.chat.completions.create(model="podium-ultra", messages=messages)
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            (run,) = httpx.get(f"{fresh.http}/v1/runs").json()["data"]
            if run["state"] != "active":
                break
            time.sleep(0.05)
        assert run["state"] == "cancelled"


def test_an_idempotency_key_of_another_request_is_a_conflict(direct: Podium) -> None:
    key = {"idempotency-key": str(uuid.uuid4())}
    ask(direct, WORDS_QUESTION, extra_headers=key)
    error = refusal(openai.ConflictError, direct, question="Write 7 in words.", extra_headers=key)
    assert (error.code, error.response.headers["x-should-retry"]) == ("idempotency_mismatch", "false")


def test_a_conversation_that_fits_no_worker_is_refused_by_its_code(direct: Podium) -> None:
    error = refusal(openai.BadRequestError, direct, question="word " * 40_000)
    assert (error.code, error.param) == ("context_length_exceeded", "messages")


def test_a_worker_that_declines_is_a_refusal(fresh: Podium) -> None:
    question = "What is the number of days between 3 March 2024 and 17 May 2025?"
    message = ask(fresh, question).choices[0].message
    assert message.content is None and "word questions" in message.refusal
    chunks = [chunk.choices[0].delta for chunk in ask(fresh, question, stream=True) if chunk.choices]
    assert [delta.refusal for delta in chunks if delta.refusal] == [message.refusal]


def test_an_answer_says_how_long_it_took_and_may_be_compressed(direct: Podium) -> None:
    for _ in range(4):  # A short list is not compressed.
        ask(direct, WORDS_QUESTION)
    raw = direct.openai(max_retries=0).chat.completions.with_raw_response.create(
        model="podium-ultra", messages=[{"role": "user", "content": WORDS_QUESTION}]
    )
    assert int(raw.headers["openai-processing-ms"]) >= 0
    run = raw.headers["x-podium-run-id"]
    listed = httpx.get(f"{direct.http}/v1/runs", params={"limit": 200}, headers={"accept-encoding": "gzip"})
    assert listed.headers["content-encoding"] == "gzip"
    assert run in [entry["id"] for entry in listed.json()["data"]]
