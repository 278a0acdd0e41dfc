"""Agents of the `openai-agents` package, over Chat Completions and over Responses."""

import json
from collections.abc import Iterator

import agents
import openai
import pydantic
import pytest
from conftest import PATIENCE_S, Podium

MODEL = "sim-echo"
QUESTION = "How warm is it in Oslo and in Rome?"
SCRIPT = [
    {
        "when": {"last": "user", "last_contains": QUESTION},
        "calls": [
            {"name": "weather", "arguments": {"city": "Oslo"}},
            {"name": "weather", "arguments": {"city": "Rome"}},
        ],
    },
    {"when": {"last": "tool", "last_contains": "Oslo: 5"}, "text": "Rome is warmer than Oslo."},
    {"when": {"last": "user", "last_contains": "Translate"}, "calls": [{"name": "transfer_to_translator", "arguments": {}}]},
    {"when": {"last": "tool", "any_contains": "You translate."}, "text": "Bonjour."},
]


class City(pydantic.BaseModel):
    name: str
    inhabitants: int


@agents.function_tool
def weather(city: str) -> str:
    """The weather of a city."""
    return f"{city}: {len(city) + 1} degrees"


@pytest.fixture(params=["chat", "responses"])
def model(request: pytest.FixtureRequest, versatile: Podium) -> Iterator[agents.Model]:
    agents.set_tracing_disabled(True)
    client = openai.AsyncOpenAI(base_url=f"{versatile.http}/v1", api_key="none", max_retries=0, timeout=PATIENCE_S)
    kind = {"chat": agents.OpenAIChatCompletionsModel, "responses": agents.OpenAIResponsesModel}[request.param]
    with versatile.replying(MODEL, SCRIPT):
        yield kind(model="podium-mini", openai_client=client)


async def test_an_agent_answers(model: agents.Model) -> None:
    agent = agents.Agent(name="Echo", instructions="Be brief.", model=model)
    result = await agents.Runner.run(agent, "Hello there")
    assert result.final_output == "Hello there"
    assert result.context_wrapper.usage.output_tokens > 0


async def test_an_agent_calls_two_tools_at_once(model: agents.Model) -> None:
    agent = agents.Agent(name="Meteorologist", instructions="Use the tool.", tools=[weather], model=model)
    result = await agents.Runner.run(agent, QUESTION)
    assert result.final_output == "Rome is warmer than Oslo."
    outputs = [item.output for item in result.new_items if isinstance(item, agents.ToolCallOutputItem)]
    assert outputs == ["Oslo: 5 degrees", "Rome: 5 degrees"]


async def test_a_streamed_agent_has_the_same_result(model: agents.Model) -> None:
    agent = agents.Agent(name="Meteorologist", instructions="Use the tool.", tools=[weather], model=model)
    result = agents.Runner.run_streamed(agent, QUESTION)
    deltas = []
    async for event in result.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            deltas.append(event.data.delta)
    assert "".join(deltas) == result.final_output == "Rome is warmer than Oslo."


async def test_an_agent_hands_over_to_another(model: agents.Model) -> None:
    translator = agents.Agent(name="Translator", instructions="You translate.", model=model)
    agent = agents.Agent(name="Reception", instructions="Hand over.", handoffs=[translator], model=model)
    result = await agents.Runner.run(agent, "Translate good morning")
    assert result.last_agent is translator
    assert result.final_output == "Bonjour."


async def test_an_agent_returns_an_object(model: agents.Model) -> None:
    agent = agents.Agent(name="Geographer", output_type=City, model=model)
    result = await agents.Runner.run(agent, "Lisbon")
    assert result.final_output == City(name="Lisbon", inhabitants=1)


async def test_a_tool_may_be_required(model: agents.Model) -> None:
    settings = agents.ModelSettings(tool_choice="required", parallel_tool_calls=False, temperature=0.2)
    agent = agents.Agent(
        name="Meteorologist", tools=[weather], model=model, model_settings=settings, tool_use_behavior="stop_on_first_tool"
    )
    result = await agents.Runner.run(agent, "Madrid")
    assert result.final_output == "Madrid: 7 degrees"


async def test_a_session_repeats_the_conversation(model: agents.Model, versatile: Podium) -> None:
    agent = agents.Agent(name="Meteorologist", tools=[weather], model=model)
    session = agents.SQLiteSession("one")
    await agents.Runner.run(agent, QUESTION, session=session)
    result = await agents.Runner.run(agent, "And tomorrow?", session=session)
    assert result.final_output == "And tomorrow?"
    kinds = [item.get("type", item.get("role")) for item in await session.get_items()]
    assert kinds.count("function_call") == kinds.count("function_call_output") == 2
    assert "Rome is warmer than Oslo." in json.dumps(await session.get_items())
