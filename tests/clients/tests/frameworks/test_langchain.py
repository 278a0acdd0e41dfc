"""LangChain's own tests of chat models, unmodified, through its packages for OpenAI and for Anthropic.

The suite downloads an image and a PDF from the web. `offline` answers these two downloads from here, so that the tests run
without the internet; nothing else of the suite is replaced."""

import base64
import re
from collections.abc import Iterator

import httpx
import pytest
from conftest import Podium
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import BaseChatModel
from langchain_openai import ChatOpenAI
from langchain_tests.integration_tests import ChatModelIntegrationTests

# A PNG of one pixel.
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
# A PDF of one blank page.
PDF = (
    b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n"
    b"3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 99 99]>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF\n"
)
# Replies as the suite expects them of a language model. The simulated worker would call other tools or write other JSON.
REPLIES = [
    {
        "when": {"last_contains": "JSON with 'setup' and 'punchline'"},
        "text": '{"setup": "Why do cats purr?", "punchline": "They can."}',
    },
    {
        "when": {"last": "user", "last_contains": "magic_function(3)"},
        "calls": [{"name": "magic_function", "arguments": {"input": 3}}],
    },
    {
        "when": {"last": "user", "last_contains": "weather in San Francisco"},
        "calls": [{"name": "get_weather", "arguments": {"location": "San Francisco, CA"}}],
    },
]


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def get(url: str, **_: object) -> httpx.Response:
        ending = re.search(r"\.(png|pdf)$", url)
        assert ending, f"the suite asks for {url}"
        return httpx.Response(200, content=PNG if ending[1] == "png" else PDF)

    monkeypatch.setattr(httpx, "get", get)


@pytest.fixture(scope="class", autouse=True)
def under_test(request: pytest.FixtureRequest, versatile: Podium) -> Iterator[None]:
    request.cls.podium = versatile
    with versatile.replying("sim-echo", REPLIES):
        yield


class Suite(ChatModelIntegrationTests):
    """The properties of Podium that the suite must know."""

    podium: Podium

    @property
    def model_override_value(self) -> str:
        return "podium-ultra"

    @property
    def supports_image_inputs(self) -> bool:
        return True

    @property
    def supports_image_urls(self) -> bool:
        return True

    @property
    def supports_image_tool_message(self) -> bool:
        return True

    @property
    def supports_pdf_inputs(self) -> bool:
        return True

    @property
    def supports_pdf_tool_message(self) -> bool:
        return True

    @property
    def supports_json_mode(self) -> bool:
        return True

    @property
    def supports_anthropic_inputs(self) -> bool:
        return True


class TestChatCompletions(Suite):
    @property
    def chat_model_class(self) -> type[BaseChatModel]:
        return ChatOpenAI

    @property
    def chat_model_params(self) -> dict:
        # The package asks for the usage of a stream by itself only at OpenAI's own address.
        server = {"base_url": f"{self.podium.http}/v1", "api_key": "none", "model": "podium-mini"}
        return {**server, "max_retries": 0, "stream_usage": True}


class TestResponses(TestChatCompletions):
    @property
    def chat_model_params(self) -> dict:
        return {**super().chat_model_params, "use_responses_api": True}


class TestMessages(Suite):
    @property
    def chat_model_class(self) -> type[BaseChatModel]:
        return ChatAnthropic

    @property
    def chat_model_params(self) -> dict:
        return {"base_url": self.podium.http, "api_key": "none", "model": "podium-mini", "max_retries": 0}

    @property
    def supports_json_mode(self) -> bool:
        # `ChatAnthropic` has no such method.
        return False
