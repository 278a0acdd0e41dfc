"""The Responses API, through the official `openai` package."""

import json
import time

import httpx
import openai
import pydantic
import pytest
from conftest import ANSWER, PATIENCE_S, QUESTION, Podium

WORDS_QUESTION = "Write 123456 in words."
WORDS_ANSWER = "one hundred and twenty-three thousand four hundred and fifty-six"


def ask(podium: Podium, text: str | list[dict] = QUESTION, **parameters: object) -> object:
    client = podium.openai(max_retries=0)
    return client.responses.create(**{"model": "podium-ultra", "input": text, **parameters})


def test_a_question_is_answered_by_a_workflow(podium: Podium) -> None:
    response = ask(podium, metadata={"a": "b"}, instructions="be brief")
    assert (response.output_text, response.status) == (ANSWER, "completed")
    assert response.metadata == {"a": "b"}
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens
    assert response.model_extra["podium"]["cost_nano_usd"] > 0


def test_a_stream_gives_the_stored_response(direct: Podium) -> None:
    client = direct.openai()
    with client.responses.stream(model="podium-mini", input=WORDS_QUESTION) as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert [event.sequence_number for event in events if hasattr(event, "sequence_number")]
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert len(deltas) > 1 and "".join(deltas) == WORDS_ANSWER
    assert client.responses.retrieve(final.id).output_text == final.output_text == WORDS_ANSWER


def test_a_stream_is_resumed_after_any_event(direct: Podium) -> None:
    client = direct.openai()
    first = list(client.responses.create(model="podium-mini", input=WORDS_QUESTION, stream=True))
    response = first[0].response.id
    for after in [0, 4, len(first) - 2]:
        again = list(client.responses.retrieve(response, stream=True, starting_after=after))
        assert [event.to_dict() for event in again] == [event.to_dict() for event in first[after + 1 :]]


def test_a_response_in_the_background_completes(direct: Podium) -> None:
    client = direct.openai()
    response = client.responses.create(model="podium-mini", input=WORDS_QUESTION, background=True)
    assert response.status == "queued"
    deadline = time.monotonic() + PATIENCE_S
    while response.status in ("queued", "in_progress"):
        assert time.monotonic() < deadline
        response = client.responses.retrieve(response.id)
    assert (response.status, response.output_text) == ("completed", WORDS_ANSWER)


def test_a_response_in_the_background_is_cancelled_twice(fresh: Podium) -> None:
    client = fresh.openai()
    with fresh.behaving("sim-words", {"kind": "hang"}):
        response = client.responses.create(model="podium-mini", input=WORDS_QUESTION, background=True)
        assert client.responses.cancel(response.id).status == "cancelled"
        assert client.responses.cancel(response.id).status == "cancelled"


def test_a_conversation_goes_on_by_the_previous_response(able: Podium) -> None:
    first = ask(able, "My name is Alice.", model="podium-mini", instructions="Be brief.")
    second = ask(able, "What is my name?", model="podium-mini", previous_response_id=first.id)
    assert second.previous_response_id == first.id
    assert second.output_text == "What is my name?"
    # The simulated worker repeats the last question, and counts the tokens of all that it got.
    alone = ask(able, "What is my name?", model="podium-mini")
    assert second.usage.input_tokens > alone.usage.input_tokens
    items = able.openai().responses.input_items.list(second.id)
    assert [item.content[0].text for item in items] == ["What is my name?"]
    reference = [{"type": "item_reference", "id": first.output[0].id}, {"role": "user", "content": "And?"}]
    assert ask(able, reference, model="podium-mini").status == "completed"


class Reason(pydantic.BaseModel):
    why: str
    sure: bool


def test_an_answer_follows_a_schema(able: Podium) -> None:
    responses = able.openai(max_retries=0).responses
    response = responses.parse(model="podium-mini", input="Why is the sky blue?", text_format=Reason)
    assert response.output_parsed == Reason(why="Why is the sky blue?", sure=True)
    assert response.text.format.name == "Reason"


def test_an_image_is_shown_to_the_worker(able: Podium) -> None:
    image = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo=", "detail": "auto"}
    text = {"type": "input_text", "text": "What is this?"}
    assert ask(able, [{"role": "user", "content": [text, image]}], model="podium-mini").status == "completed"


def test_a_pdf_is_shown_to_the_worker_and_in_the_input_items(able: Podium) -> None:
    file = {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="}
    text = {"type": "input_text", "text": "What is this?"}
    response = ask(able, [{"role": "user", "content": [text, file]}], model="podium-mini")
    assert "[pdf a.pdf data:application/pdf;base64,JVBERi0=]" in response.output_text
    (item,) = able.openai().responses.input_items.list(response.id)
    assert item.content[1].to_dict() == file


def test_a_function_is_called_and_its_output_is_answered(calling: Podium) -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    tool = {"type": "function", "name": "weather", "description": "The weather.", "parameters": schema, "strict": False}
    options = {"model": "podium-mini", "tools": [tool]}
    question = "Ask weather, please."
    asked = ask(calling, question, **options)
    (call,) = asked.output
    assert (call.type, call.name, json.loads(call.arguments)) == ("function_call", "weather", {"city": question})
    with calling.openai().responses.stream(input=question, **options) as stream:
        (streamed,) = stream.get_final_response().output
    assert (streamed.type, streamed.arguments) == (call.type, call.arguments)
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "cold"}
    answer = ask(calling, [output], previous_response_id=asked.id, **options)
    assert answer.output_text == "The tools gave: cold"
    repeated = [{"role": "user", "content": question}, call.to_dict(), output]
    assert ask(calling, repeated, store=False, **options).output_text == "The tools gave: cold"


@pytest.mark.parametrize(
    ("parameters", "kind", "param"),
    [
        ({"temperature": 9}, openai.BadRequestError, "temperature"),
        ({"model": "gpt-5"}, openai.NotFoundError, "model"),
        ({"input": []}, openai.BadRequestError, "input"),
        ({"top_logprobs": 3}, openai.BadRequestError, "top_logprobs"),
        ({"previous_response_id": "resp_none"}, openai.BadRequestError, "previous_response_id"),
    ],
)
def test_errors_name_the_parameter(
    podium: Podium, parameters: dict, kind: type[openai.APIStatusError], param: str
) -> None:
    with pytest.raises(kind) as caught:
        ask(podium, **parameters)
    assert caught.value.param == param


def test_a_response_that_was_not_stored_is_not_found(podium: Podium) -> None:
    response = ask(podium, store=False)
    with pytest.raises(openai.NotFoundError):
        podium.openai().responses.retrieve(response.id)


def test_a_failed_stream_ends_with_a_failed_response(fresh: Podium) -> None:
    with fresh.behaving("sim-words", {"kind": "cut_stream", "after_chunks": 2}):
        fallback = {"podium": {"fallback": "none"}}
        events = list(ask(fresh, WORDS_QUESTION, stream=True, extra_body=fallback))
    assert events[-1].type == "response.failed"
    assert events[-1].response.error.code == "server_error"


LOOK = {
    "type": "function",
    "name": "look",
    "parameters": {"type": "object", "properties": {}, "additionalProperties": False},
    "strict": False,
}
CLOCK = {**LOOK, "name": "clock"}
BOTH = "Ask look and clock."
LOOKED = "The tools gave: look is fine; clock is fine"


def outputs_of(response: object) -> list[dict]:
    calls = [item for item in response.output if item.type == "function_call"]
    assert [call.name for call in calls] == ["look", "clock"]
    return [{"type": "function_call_output", "call_id": call.call_id, "output": f"{call.name} is fine"} for call in calls]


def run_of(podium: Podium, response: str) -> dict:
    digits = response.removeprefix("resp_")[:32]
    return next(run for run in httpx.get(f"{podium.http}/v1/runs?limit=200").json()["data"] if run["id"].replace("-", "") == digits)


def test_a_suspended_run_continues_by_its_previous_response(calling: Podium) -> None:
    client, options = calling.openai(max_retries=0), {"tools": [LOOK, CLOCK]}
    first = ask(calling, BOTH, **options)
    assert (first.status, run_of(calling, first.id)["state"]) == ("completed", "suspended")
    results = outputs_of(first)
    second = ask(calling, results, previous_response_id=first.id, **options)
    assert second.output_text == LOOKED
    assert second.id == f"{first.id}_r1" and second.previous_response_id == first.id
    again = ask(calling, results, previous_response_id=first.id, **options)
    assert again.to_dict() == second.to_dict()
    # Both responses are stored as they were.
    for response in (first, second):
        assert client.responses.retrieve(response.id).to_dict() == response.to_dict()
    given = list(client.responses.input_items.list(second.id, order="asc"))
    assert [(item.type, item.output) for item in given] == [("function_call_output", result["output"]) for result in results]
    run = httpx.get(f"{calling.http}/v1/runs/{run_of(calling, first.id)['id']}").json()
    assert run["usage"]["total_tokens"] == first.usage.total_tokens + second.usage.total_tokens
    third = ask(calling, "and now?", previous_response_id=second.id, **options)
    assert third.status == "completed" and third.id[:37] != first.id


def test_a_continued_response_is_streamed_as_it_is_stored(calling: Podium) -> None:
    client, options = calling.openai(max_retries=0), {"tools": [LOOK, CLOCK], "model": "podium-ultra", "stream": True}
    first = list(client.responses.create(input=BOTH, **options))
    assert first[-1].type == "response.completed"
    asked = first[-1].response
    second = list(client.responses.create(input=outputs_of(asked), previous_response_id=asked.id, **options))
    assert second[-1].response.output_text == LOOKED
    for events in (first, second):
        again = list(client.responses.retrieve(events[-1].response.id, stream=True))
        assert [event.to_dict() for event in again] == [event.to_dict() for event in events]
    item = second[-1].response.output[0].id
    answer = ask(calling, [{"type": "item_reference", "id": item}, {"role": "user", "content": "thanks"}])
    assert answer.status == "completed"


def test_an_unstored_response_continues_with_its_reasoning_items(calling: Podium) -> None:
    options = {"tools": [LOOK, CLOCK], "store": False, "include": ["reasoning.encrypted_content"]}
    first = ask(calling, BOTH, **options)
    assert first.output[-1].type == "reasoning" and first.output[-1].encrypted_content
    kept = [item.to_dict() for item in first.output]
    second = ask(calling, [{"role": "user", "content": BOTH}, *kept, *outputs_of(first)], **options)
    assert second.output_text == LOOKED and second.id == f"{first.id}_r1"
    assert run_of(calling, first.id)["state"] == "succeeded"


def test_a_conversation_continues_its_suspended_run(calling: Podium) -> None:
    client, options = calling.openai(max_retries=0), {"tools": [LOOK, CLOCK]}
    conversation = client.conversations.create().id
    first = ask(calling, BOTH, conversation=conversation, **options)
    second = ask(calling, outputs_of(first), conversation=conversation, **options)
    assert second.output_text == LOOKED and second.id == f"{first.id}_r1"
    kinds = [item.type for item in client.conversations.items.list(conversation, order="asc")]
    assert kinds == ["message", "function_call", "function_call", "function_call_output", "function_call_output", "message"]
    third = ask(calling, "and now?", conversation=conversation, **options)
    assert third.status == "completed"


def test_a_response_in_the_background_continues_its_suspended_run(calling: Podium) -> None:
    client, options = calling.openai(max_retries=0), {"tools": [LOOK, CLOCK], "background": True}

    def completed(response: object) -> object:
        deadline = time.monotonic() + PATIENCE_S
        while response.status in ("queued", "in_progress"):
            assert time.monotonic() < deadline
            response = client.responses.retrieve(response.id)
        return response

    first = completed(ask(calling, BOTH, **options))
    with pytest.raises(openai.ConflictError) as caught:
        client.responses.cancel(first.id)
    assert caught.value.code == "run_ended"
    begun = ask(calling, outputs_of(first), previous_response_id=first.id, **options)
    assert begun.id == f"{first.id}_r1"
    assert completed(begun).output_text == LOOKED


def test_results_begin_a_new_run_if_the_suspended_one_expired(calling: Podium) -> None:
    client, options = calling.openai(max_retries=0), {"tools": [LOOK, CLOCK]}
    first = ask(calling, BOTH, extra_body={"podium": {"suspended_ms_max": 1000}}, **options)
    deadline = time.monotonic() + PATIENCE_S
    while run_of(calling, first.id)["state"] == "suspended":
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert client.responses.retrieve(first.id).to_dict() == first.to_dict()
    second = ask(calling, outputs_of(first), previous_response_id=first.id, **options)
    assert second.output_text == LOOKED and second.id[:37] != first.id


def test_a_conversation_is_compacted(direct: Podium) -> None:
    turns = [{"role": "user", "content": WORDS_QUESTION}, {"role": "assistant", "content": WORDS_ANSWER}]
    body = {"model": "podium-mini", "input": turns}
    answer = httpx.post(f"{direct.http}/v1/responses/compact", json=body, timeout=PATIENCE_S).json()
    assert (answer["object"], answer["output"][-1]["type"]) == ("response.compaction", "compaction")
    assert ask(direct, [*answer["output"], {"role": "user", "content": WORDS_QUESTION}]).status == "completed"


def test_a_conversation_collects_items_and_responses(able: Podium) -> None:
    client = able.openai(max_retries=0)
    first = {"type": "message", "role": "user", "content": "my name is Ada"}
    conversation = client.conversations.create(items=[first], metadata={"a": "b"})
    response = client.responses.create(model="podium-mini", conversation=conversation.id, input="who am I?")
    assert response.conversation.id == conversation.id
    with client.responses.stream(model="podium-mini", conversation=conversation.id, input="again?") as stream:
        assert stream.get_final_response().status == "completed"
    items = list(client.conversations.items.list(conversation.id, order="asc", limit=2))
    assert [item.role for item in items] == ["user", "user", "assistant", "user", "assistant"]
    assert items[1].content[0].text == "who am I?"
    client.conversations.items.delete(items[0].id, conversation_id=conversation.id)
    assert client.conversations.items.retrieve(items[2].id, conversation_id=conversation.id).id == items[2].id
    added = client.conversations.items.create(conversation.id, items=[first])
    assert added.data[0].content[0].text == "my name is Ada"
    assert client.conversations.update(conversation.id, metadata={"c": "d"}).metadata == {"c": "d"}
    assert client.conversations.delete(conversation.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.conversations.retrieve(conversation.id)


def test_a_deleted_response_does_not_exist(able: Podium) -> None:
    client = able.openai(max_retries=0)
    response = client.responses.create(model="podium-mini", input="hello")
    client.responses.delete(response.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(response.id)
