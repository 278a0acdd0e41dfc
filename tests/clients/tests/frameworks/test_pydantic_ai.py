"""Agents of the `pydantic-ai-slim` package, over Chat Completions, Responses and Messages."""

import base64
from collections.abc import Iterator

import pydantic
import pydantic_ai
import pytest
from conftest import Podium
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.profiles.anthropic import AnthropicModelProfile
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

MODEL = "sim-echo"
QUESTION = "How warm is it in Oslo and in Rome?"
ANSWER = "Rome is warmer than Oslo, by far."
SCRIPT = [
    {
        "when": {"last": "user", "last_contains": QUESTION},
        "text": "I look.",
        "calls": [
            {"name": "weather", "arguments": {"city": "Oslo"}},
            {"name": "weather", "arguments": {"city": "Rome"}},
        ],
    },
    {"when": {"last": "tool", "last_contains": "Oslo: 5"}, "text": ANSWER},
    {"when": {"last": "user", "last_contains": "Gotham"}, "calls": [{"name": "weather", "arguments": {"city": "Gotham"}}]},
    {"when": {"last": "tool", "last_contains": "there is no Gotham"}, "text": "No such city."},
    {"when": {"last_contains": "As JSON"}, "text": '{"name": "Lisbon", "inhabitants": 3}'},
]
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


class City(pydantic.BaseModel):
    name: str
    inhabitants: int


def weather(city: str) -> str:
    """The weather of a city."""
    if city == "Gotham":
        raise pydantic_ai.ModelRetry("there is no Gotham")
    return f"{city}: {len(city) + 1} degrees"


@pytest.fixture(params=["chat", "responses", "messages"])
def model(request: pytest.FixtureRequest, versatile: Podium) -> Iterator[Model]:
    openai = OpenAIProvider(base_url=f"{versatile.http}/v1", api_key="none")
    with versatile.replying(MODEL, SCRIPT):
        if request.param == "chat":
            yield OpenAIChatModel("podium-mini", provider=openai)
        elif request.param == "responses":
            yield OpenAIResponsesModel("podium-mini", provider=openai)
        else:
            # The package knows what a model supports by its name only.
            profile = AnthropicModelProfile(supports_json_schema_output=True)
            provider = AnthropicProvider(base_url=versatile.http, api_key="none")
            yield AnthropicModel("podium-mini", provider=provider, profile=profile)


async def test_an_agent_answers(model: Model) -> None:
    result = await pydantic_ai.Agent(model, instructions="Be brief.").run("Hello there")
    assert result.output == "Hello there"
    assert result.usage.input_tokens > 0 and result.usage.output_tokens > 0


@pytest.mark.parametrize("kind", [OpenAIChatModel, OpenAIResponsesModel])
async def test_an_agent_follows_instructions_without_a_question(kind: type[Model], versatile: Podium) -> None:
    # The package sends instructions and no question, or a blank one.
    provider = OpenAIProvider(base_url=f"{versatile.http}/v1", api_key="none")
    result = await pydantic_ai.Agent(kind("podium-mini", provider=provider), instructions="Greet in one word.").run()
    assert result.output == "Follow the instructions."


async def test_an_agent_calls_two_tools_at_once(model: Model) -> None:
    result = await pydantic_ai.Agent(model, tools=[weather]).run(QUESTION)
    assert result.output == ANSWER
    returned = [
        part.content for message in result.all_messages() for part in message.parts if part.part_kind == "tool-return"
    ]
    assert returned == ["Oslo: 5 degrees", "Rome: 5 degrees"]


async def test_a_streamed_agent_has_the_same_result(model: Model) -> None:
    async with pydantic_ai.Agent(model).run_stream("One two three four five") as result:
        pieces = [piece async for piece in result.stream_text(delta=True, debounce_by=None)]
    assert "".join(pieces) == "One two three four five"
    assert len(pieces) > 1


async def test_an_agent_streams_a_run_with_tools(model: Model) -> None:
    text = []
    async with pydantic_ai.Agent(model, tools=[weather]).iter(QUESTION) as run:
        async for node in run:
            if pydantic_ai.Agent.is_model_request_node(node):
                async with node.stream(run.ctx) as stream:
                    text += [piece async for piece in stream.stream_text(delta=True, debounce_by=None)]
    assert run.result.output == ANSWER
    assert "".join(text) == f"I look.{ANSWER}"


@pytest.mark.parametrize("form", [pydantic_ai.ToolOutput, pydantic_ai.NativeOutput, pydantic_ai.PromptedOutput])
async def test_an_agent_returns_an_object(model: Model, form: type) -> None:
    question = "As JSON: Lisbon" if form is pydantic_ai.PromptedOutput else "Lisbon"
    result = await pydantic_ai.Agent(model, output_type=form(City)).run(question)
    assert isinstance(result.output, City) and result.output.name == "Lisbon"


async def test_a_tool_that_fails_is_asked_again(model: Model) -> None:
    result = await pydantic_ai.Agent(model, tools=[weather]).run("How warm is it in Gotham?")
    assert result.output == "No such city."


async def test_a_conversation_continues(model: Model) -> None:
    agent = pydantic_ai.Agent(model, tools=[weather])
    first = await agent.run(QUESTION)
    second = await agent.run("And tomorrow?", message_history=first.all_messages())
    assert second.output == "And tomorrow?"


async def test_an_image_is_accepted(model: Model) -> None:
    parts = ["What is this?", pydantic_ai.BinaryContent(data=PNG, media_type="image/png")]
    result = await pydantic_ai.Agent(model).run(parts)
    assert "What is this?" in result.output


async def test_a_pdf_is_accepted(model: Model) -> None:
    parts = ["What is this?", pydantic_ai.BinaryContent(data=b"%PDF-1.4", media_type="application/pdf")]
    result = await pydantic_ai.Agent(model).run(parts)
    assert "What is this?" in result.output and "[pdf " in result.output
