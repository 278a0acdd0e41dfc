"""Reasoning of workers in each wire format, through the official packages."""

from collections.abc import Iterator

import anthropic
import openai
import pytest
from conftest import PATIENCE_S, Podium, serve_pool
from podium_client import Client, question

PATHS = {"openai-responses": "/v1", "anthropic": "/v1", "gemini": "/v1beta"}
POOL = """
schema = 1
name = "reasoning"
version = "1"
vendors = [{{ id = "sim", api = "{api}", base_url = "{base}" }}]

[[workers]]
id = "thinker"
vendor = "sim"
model = "sim-echo"
description = "Thinks."
features = ["effort", "reasoning_text", "tools"]
context_tokens = 100_000
output_tokens_max = 8_000
usd_per_million_tokens = {{ input = 1.0, output = 4.0 }}
"""
# The words of the simulated vendor.
REASONING = "This is a simulation: nobody reasons here."
QUESTION = {"role": "user", "content": "Say hello."}
LOOK = {"type": "object", "properties": {}}


@pytest.fixture(scope="module", params=PATHS)
def thinking(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, vendor: str) -> Iterator[Podium]:
    """A server with one worker, which shows its reasoning if it is asked to."""
    pool = POOL.format(api=request.param, base=vendor + PATHS[request.param])
    process, server = serve_pool(tmp_path_factory.mktemp("thinking"), vendor, "direct:thinker", pool)
    try:
        yield server
    finally:
        process.stop()


def messages(server: Podium) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=server.http, api_key="none", timeout=PATIENCE_S, max_retries=0)


def test_a_completion_shows_reasoning(thinking: Podium) -> None:
    client: openai.OpenAI = thinking.openai(max_retries=0)
    asked = {"model": "podium-mini", "messages": [QUESTION], "extra_body": {"include_reasoning": True}}
    message = client.chat.completions.create(**asked).choices[0].message
    assert message.reasoning == REASONING and message.content
    deltas = [chunk.choices[0].delta for chunk in client.chat.completions.create(**asked, stream=True) if chunk.choices]
    assert "".join(getattr(delta, "reasoning", "") for delta in deltas) == REASONING
    assert "".join(delta.content or "" for delta in deltas) == message.content
    plain = client.chat.completions.create(model="podium-mini", messages=[QUESTION]).choices[0].message
    assert not hasattr(plain, "reasoning")


def test_a_response_shows_a_summary(thinking: Podium) -> None:
    client = thinking.openai(max_retries=0)
    asked = {"model": "podium-mini", "input": [QUESTION], "reasoning": {"effort": "low", "summary": "auto"}}
    first = client.responses.create(**asked)
    reasoning, message = first.output
    assert [part.text for part in reasoning.summary] == [REASONING] and message.type == "message"
    with client.responses.stream(**asked) as stream:
        events = list(stream)
    deltas = [event.delta for event in events if event.type == "response.reasoning_summary_text.delta"]
    assert "".join(deltas) == REASONING
    assert events[-1].response.output_text == first.output_text
    # The items are part of the next input.
    following = client.responses.create(**{**asked, "input": [QUESTION, *first.output, QUESTION]})
    assert following.status == "completed"


def test_a_message_shows_thinking(thinking: Podium) -> None:
    client = messages(thinking)
    asked = {"model": "podium-mini", "max_tokens": 4000, "messages": [QUESTION], "thinking": {"type": "adaptive"}}
    first = client.messages.create(**asked)
    assert [block.type for block in first.content] == ["thinking", "text"]
    assert first.content[0].thinking == REASONING and first.content[0].signature
    with client.messages.stream(**asked) as stream:
        streamed = stream.get_final_message()
    assert [block.to_dict() for block in streamed.content] == [block.to_dict() for block in first.content]
    turns = [QUESTION, {"role": "assistant", "content": first.content}, QUESTION]
    assert client.messages.create(**{**asked, "messages": turns}).stop_reason == "end_turn"
    hidden = client.messages.create(**{**asked, "thinking": {"type": "disabled"}})
    assert [block.type for block in hidden.content] == ["text"]


def test_a_watcher_of_the_python_client_sees_reasoning(thinking: Podium) -> None:
    request = question("Say hello.")
    request.show_reasoning = True
    with Client(f"http://{thinking.grpc}") as client:
        run_id = client.create(request).run.run_id
        updates = list(client.watch(run_id))
        run = client.get(run_id)
    texts = [update.step_reasoning for update in updates if update.WhichOneof("update") == "step_reasoning"]
    # The watcher may come after the end of the run, which has no live text.
    assert "".join(text.text for text in texts) in ("", REASONING) and run.reasoning == REASONING
    (done,) = [update.event.step_done for update in updates if update.event.WhichOneof("kind") == "step_done"]
    assert done.reasoning == REASONING


def test_calls_follow_thinking_and_their_results_continue(thinking: Podium) -> None:
    client = messages(thinking)
    tools = [{"name": "look", "description": "Looks.", "input_schema": LOOK}]
    question = {"role": "user", "content": "Ask look."}
    asked = {"model": "podium-mini", "max_tokens": 4000, "tools": tools, "thinking": {"type": "enabled", "budget_tokens": 2000}}
    first = client.messages.create(**asked, messages=[question])
    assert [block.type for block in first.content] == ["thinking", "tool_use"]
    result = {"type": "tool_result", "tool_use_id": first.content[1].id, "content": "fine"}
    turns = [question, {"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
    second = client.messages.create(**asked, messages=turns)
    assert [block.type for block in second.content] == ["thinking", "text"] and "fine" in second.content[1].text
