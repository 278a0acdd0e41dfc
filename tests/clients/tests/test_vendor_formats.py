"""The wire formats of `vendor-sim`, through the vendors' own packages: what they accept, the real vendors' clients accept."""

import json
from collections.abc import Iterator

import anthropic
import httpx
import openai
import pytest
from conftest import PATIENCE_S
from google import genai
from google.genai import errors, types

TEXT = "Žluťoučký kůň 🙂 早, twice."
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
ASK_TOOLS = "Ask weather and clock."


@pytest.fixture
def openai_client(vendor: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{vendor}/v1", api_key="none", max_retries=0, timeout=PATIENCE_S)


@pytest.fixture
def anthropic_client(vendor: str) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=vendor, api_key="none", max_retries=0, timeout=PATIENCE_S)


@pytest.fixture
def gemini_client(vendor: str) -> genai.Client:
    options = types.HttpOptions(base_url=vendor, timeout=PATIENCE_S * 1000)
    return genai.Client(api_key="none", vertexai=False, http_options=options)


@pytest.fixture
def failing(vendor: str) -> Iterator[object]:
    """Makes the next call of `sim-echo` meet a fault."""
    route = f"{vendor}/control/behaviour/sim-echo"
    before = httpx.get(route).json()

    def fail(**fault: object) -> None:
        faults = [{"fault": fault, "next_calls": 1}]
        httpx.put(route, json={**before, "faults": faults}).raise_for_status()

    yield fail
    httpx.put(route, json=before).raise_for_status()


class TestChatCompletions:
    MESSAGES = [{"role": "user", "content": TEXT}]

    def test_text(self, openai_client: openai.OpenAI) -> None:
        answer = openai_client.chat.completions.create(model="sim-echo", messages=self.MESSAGES, seed=1, stop=["zz"])
        assert answer.choices[0].message.content == TEXT
        assert answer.choices[0].finish_reason == "stop"
        assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens

    def test_a_stream(self, openai_client: openai.OpenAI) -> None:
        options = {"stream": True, "stream_options": {"include_usage": True}}
        chunks = list(openai_client.chat.completions.create(model="sim-echo", messages=self.MESSAGES, **options))
        pieces = [choice.delta.content or "" for chunk in chunks for choice in chunk.choices]
        assert "".join(pieces) == TEXT and len(pieces) > 3
        assert chunks[-1].usage.completion_tokens > 0

    def test_tools(self, openai_client: openai.OpenAI) -> None:
        tools = [
            {"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in ("weather", "clock")
        ]
        messages = [{"role": "user", "content": ASK_TOOLS}]
        create = openai_client.chat.completions.create
        asked = create(model="sim-echo", messages=messages, tools=tools).choices[0]
        assert asked.finish_reason == "tool_calls"
        calls = asked.message.tool_calls
        assert [call.function.name for call in calls] == ["weather", "clock"]
        assert json.loads(calls[0].function.arguments) == {"city": ASK_TOOLS}
        messages.append(asked.message)
        messages += [{"role": "tool", "tool_call_id": call.id, "content": f"{call.id[-1]} done"} for call in calls]
        answer = create(model="sim-echo", messages=messages, tools=tools).choices[0]
        assert answer.message.content == "The tools gave: 0 done; 1 done"

    def test_streamed_tools(self, openai_client: openai.OpenAI) -> None:
        tools = [{"type": "function", "function": {"name": "clock", "parameters": SCHEMA, "strict": True}}]
        messages = [{"role": "user", "content": "Ask clock."}]
        with openai_client.chat.completions.stream(model="sim-echo", messages=messages, tools=tools) as stream:
            final = stream.get_final_completion()
        assert final.choices[0].message.tool_calls[0].function.arguments == '{"city":"Ask clock."}'

    def test_a_schema(self, openai_client: openai.OpenAI) -> None:
        form = {"type": "json_schema", "json_schema": {"name": "city", "schema": SCHEMA, "strict": True}}
        messages = [{"role": "user", "content": "Oslo"}]
        answer = openai_client.chat.completions.create(model="sim-echo", messages=messages, response_format=form)
        assert json.loads(answer.choices[0].message.content) == {"city": "Oslo"}

    def test_errors_are_of_their_types(self, openai_client: openai.OpenAI, failing: object) -> None:
        create = openai_client.chat.completions.create
        failing(kind="rate_limit", retry_after_s=2)
        with pytest.raises(openai.RateLimitError) as caught:
            create(model="sim-echo", messages=self.MESSAGES)
        assert caught.value.response.headers["retry-after"] == "2"
        failing(kind="server_error")
        with pytest.raises(openai.InternalServerError):
            create(model="sim-echo", messages=self.MESSAGES)
        with pytest.raises(openai.NotFoundError):
            create(model="no-such-model", messages=self.MESSAGES)
        with pytest.raises(openai.BadRequestError) as caught:
            create(model="sim-echo", messages=self.MESSAGES, temperature=9)
        assert caught.value.param == "temperature"


class TestResponses:
    def test_text(self, openai_client: openai.OpenAI) -> None:
        answer = openai_client.responses.create(model="sim-echo", input=TEXT, instructions="Repeat.", store=False)
        assert (answer.output_text, answer.status) == (TEXT, "completed")
        assert answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens

    def test_a_stream(self, openai_client: openai.OpenAI) -> None:
        reasoning = {"effort": "low", "summary": "auto"}
        with openai_client.responses.stream(model="sim-echo", input=TEXT, reasoning=reasoning) as stream:
            events = list(stream)
            final = stream.get_final_response()
        deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
        assert "".join(deltas) == TEXT and len(deltas) > 2
        assert final.output_text == TEXT
        assert final.output[0].type == "reasoning" and "simulation" in final.output[0].summary[0].text
        assert [event.sequence_number for event in events] == list(range(len(events)))

    def test_tools(self, openai_client: openai.OpenAI) -> None:
        tools = [{"type": "function", "name": name, "parameters": SCHEMA, "strict": True} for name in ("weather", "clock")]
        items = [{"role": "user", "content": ASK_TOOLS}]
        with openai_client.responses.stream(model="sim-echo", input=items, tools=tools) as stream:
            asked = stream.get_final_response()
        calls = [item for item in asked.output if item.type == "function_call"]
        assert [call.name for call in calls] == ["weather", "clock"]
        assert json.loads(calls[0].arguments) == {"city": ASK_TOOLS}
        items += [item.model_dump(exclude={"parsed_arguments"}) for item in asked.output]
        items += [{"type": "function_call_output", "call_id": call.call_id, "output": call.name} for call in calls]
        answer = openai_client.responses.create(model="sim-echo", input=items, tools=tools)
        assert answer.output_text == "The tools gave: weather; clock"

    def test_a_limit_leaves_it_incomplete(self, openai_client: openai.OpenAI) -> None:
        answer = openai_client.responses.create(model="sim-echo", input="abcdefghijkl", max_output_tokens=2)
        assert (answer.output_text, answer.status) == ("abcdefgh", "incomplete")
        assert answer.incomplete_details.reason == "max_output_tokens"

    def test_errors_are_of_their_types(self, openai_client: openai.OpenAI, failing: object) -> None:
        failing(kind="rate_limit", retry_after_s=2)
        with pytest.raises(openai.RateLimitError):
            openai_client.responses.create(model="sim-echo", input=TEXT)
        with pytest.raises(openai.BadRequestError):
            openai_client.responses.create(model="sim-echo", input=TEXT, extra_body={"colour": "red"})


class TestMessages:
    MESSAGES = [{"role": "user", "content": TEXT}]

    def test_text(self, anthropic_client: anthropic.Anthropic) -> None:
        answer = anthropic_client.messages.create(
            model="sim-echo", max_tokens=100, messages=self.MESSAGES, system="Repeat.", stop_sequences=["zz"]
        )
        assert answer.content[0].text == TEXT
        assert answer.stop_reason == "end_turn"
        assert answer.usage.input_tokens > 0 and answer.usage.output_tokens > 0

    def test_a_stream_with_thinking(self, anthropic_client: anthropic.Anthropic) -> None:
        thinking = {"type": "enabled", "budget_tokens": 1024}
        with anthropic_client.messages.stream(
            model="sim-echo", max_tokens=2048, messages=self.MESSAGES, thinking=thinking
        ) as stream:
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
        assert text == TEXT
        assert [block.type for block in final.content] == ["thinking", "text"]
        assert final.content[0].signature
        assert final.stop_reason == "end_turn"

    def test_tools(self, anthropic_client: anthropic.Anthropic) -> None:
        tools = [{"name": name, "input_schema": SCHEMA} for name in ("weather", "clock")]
        messages = [{"role": "user", "content": ASK_TOOLS}]
        options = {"model": "sim-echo", "max_tokens": 100, "tools": tools}
        with anthropic_client.messages.stream(messages=messages, **options) as stream:
            asked = stream.get_final_message()
        assert asked.stop_reason == "tool_use"
        calls = [block for block in asked.content if block.type == "tool_use"]
        assert [(call.name, call.input) for call in calls] == [
            ("weather", {"city": ASK_TOOLS}),
            ("clock", {"city": ASK_TOOLS}),
        ]
        results = [{"type": "tool_result", "tool_use_id": call.id, "content": call.name} for call in calls]
        messages += [{"role": "assistant", "content": asked.content}, {"role": "user", "content": results}]
        answer = anthropic_client.messages.create(messages=messages, **options)
        assert answer.content[0].text == "The tools gave: weather; clock"

    def test_errors_are_of_their_types(self, anthropic_client: anthropic.Anthropic, failing: object) -> None:
        def create(**options: object) -> object:
            return anthropic_client.messages.create(
                **{"model": "sim-echo", "max_tokens": 100, "messages": self.MESSAGES, **options}
            )

        failing(kind="rate_limit", retry_after_s=2)
        with pytest.raises(anthropic.RateLimitError) as caught:
            create()
        assert caught.value.response.headers["retry-after"] == "2"
        failing(kind="overloaded")
        with pytest.raises(anthropic.APIStatusError) as caught:
            create()
        assert caught.value.status_code == 529
        assert caught.value.body["error"]["type"] == "overloaded_error"
        with pytest.raises(anthropic.NotFoundError):
            create(model="no-such-model")
        with pytest.raises(anthropic.BadRequestError):
            create(extra_body={"temperature": 0.5})
        with pytest.raises(anthropic.BadRequestError):
            create(messages=[{"role": "user", "content": [{"type": "text", "text": " "}]}])


class TestGemini:
    def test_text(self, gemini_client: genai.Client) -> None:
        config = types.GenerateContentConfig(system_instruction="Repeat.", temperature=0.5, seed=1, stop_sequences=["zz"])
        answer = gemini_client.models.generate_content(model="sim-echo", contents=TEXT, config=config)
        assert answer.text == TEXT
        assert answer.candidates[0].finish_reason == types.FinishReason.STOP
        counts = answer.usage_metadata
        assert counts.total_token_count == counts.prompt_token_count + counts.candidates_token_count

    def test_a_stream_with_thoughts(self, gemini_client: genai.Client) -> None:
        config = types.GenerateContentConfig(thinking_config=types.ThinkingConfig(include_thoughts=True))
        stream = gemini_client.models.generate_content_stream(model="sim-echo", contents=TEXT, config=config)
        parts = [part for chunk in stream for part in chunk.candidates[0].content.parts or []]
        assert "".join(part.text for part in parts if not part.thought) == TEXT
        assert "".join(part.text for part in parts if part.thought).startswith("This is a simulation")

    def test_tools(self, gemini_client: genai.Client) -> None:
        declared = [types.FunctionDeclaration(name=name, parameters_json_schema=SCHEMA) for name in ("weather", "clock")]
        config = types.GenerateContentConfig(
            tools=[types.Tool(function_declarations=declared)],
            automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
        )
        contents = [types.Content(role="user", parts=[types.Part(text=ASK_TOOLS)])]
        asked = gemini_client.models.generate_content(model="sim-echo", contents=contents, config=config)
        assert [(call.name, call.args) for call in asked.function_calls] == [
            ("weather", {"city": ASK_TOOLS}),
            ("clock", {"city": ASK_TOOLS}),
        ]
        results = [
            types.Part.from_function_response(name=call.name, response={"output": call.name})
            for call in asked.function_calls
        ]
        contents += [asked.candidates[0].content, types.Content(role="user", parts=results)]
        answer = gemini_client.models.generate_content(model="sim-echo", contents=contents, config=config)
        assert answer.text == "The tools gave: weather; clock"

    def test_a_schema(self, gemini_client: genai.Client) -> None:
        config = types.GenerateContentConfig(response_mime_type="application/json", response_json_schema=SCHEMA)
        answer = gemini_client.models.generate_content(model="sim-echo", contents="Oslo", config=config)
        assert json.loads(answer.text) == {"city": "Oslo"}

    def test_errors_are_of_their_types(self, gemini_client: genai.Client, failing: object) -> None:
        def generate(model: str = "sim-echo", **options: object) -> object:
            return gemini_client.models.generate_content(
                model=model, contents=TEXT, config=types.GenerateContentConfig(**options)
            )

        failing(kind="rate_limit", retry_after_s=2)
        with pytest.raises(errors.ClientError) as caught:
            generate()
        assert (caught.value.code, caught.value.status) == (429, "RESOURCE_EXHAUSTED")
        assert caught.value.details["error"]["details"][0]["retryDelay"] == "2s"
        failing(kind="overloaded")
        with pytest.raises(errors.ServerError) as caught:
            generate()
        assert (caught.value.code, caught.value.status) == (503, "UNAVAILABLE")
        with pytest.raises(errors.ClientError) as caught:
            generate(model="no-such-model")
        assert caught.value.code == 404
        with pytest.raises(errors.ClientError) as caught:
            generate(temperature=9)
        assert caught.value.status == "INVALID_ARGUMENT"


class TestPdfs:
    """A PDF in the form of each package."""

    DATA = "data:application/pdf;base64,JVBERi0="

    def test_chat_completions(self, openai_client: openai.OpenAI) -> None:
        part = {"type": "file", "file": {"filename": "a.pdf", "file_data": self.DATA}}
        messages = [{"role": "user", "content": [part]}]
        answer = openai_client.chat.completions.create(model="sim-echo", messages=messages)
        assert answer.choices[0].message.content == f"[pdf a.pdf {self.DATA}]"

    def test_responses(self, openai_client: openai.OpenAI) -> None:
        held = {"type": "input_file", "filename": "a.pdf", "file_data": self.DATA}
        named = {"type": "input_file", "file_url": "https://example.org/b.pdf"}
        response = openai_client.responses.create(model="sim-echo", input=[{"role": "user", "content": [held, named]}])
        assert response.output_text == f"[pdf a.pdf {self.DATA}][pdf https://example.org/b.pdf]"

    def test_messages(self, anthropic_client: anthropic.Anthropic) -> None:
        held = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}
        blocks = [
            {"type": "document", "title": "A", "source": held},
            {"type": "document", "source": {"type": "url", "url": "https://example.org/b.pdf"}},
        ]
        messages = [{"role": "user", "content": blocks}]
        answer = anthropic_client.messages.create(model="sim-echo", max_tokens=100, messages=messages)
        assert answer.content[0].text == "[pdf A application/pdf JVBERi0=][pdf https://example.org/b.pdf]"

    def test_gemini(self, gemini_client: genai.Client) -> None:
        parts = [
            types.Part.from_bytes(data=b"%PDF-", mime_type="application/pdf"),
            types.Part.from_uri(file_uri="https://example.org/b.pdf", mime_type="application/pdf"),
        ]
        answer = gemini_client.models.generate_content(model="sim-echo", contents=parts)
        assert answer.text == "[pdf application/pdf JVBERi0=][pdf https://example.org/b.pdf]"
