"""Real answers of every route against the OpenAPI document."""

import copy
import json
from collections.abc import Iterator

import httpx
import jsonschema
import pytest
from conftest import PATIENCE_S, Podium

QUESTION = "Write 123456 in words."
FUNCTION = {"name": "look", "parameters": {"type": "object", "properties": {}}}
CHAT = {"model": "podium-mini", "messages": [{"role": "user", "content": QUESTION}]}
CHAT_TOOLS = [{"type": "function", "function": FUNCTION}]
RESPONSE = {"model": "podium-mini", "input": QUESTION}
RESPONSE_TOOLS = [{"type": "function", **FUNCTION, "strict": False}]
MESSAGE = {**CHAT, "max_tokens": 50}
MESSAGE_TOOLS = [{"name": "look", "input_schema": FUNCTION["parameters"]}]
PICTURE = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}
ANTHROPIC = {"anthropic-version": "2023-06-01"}


def closed(schema: object) -> object:
    """The same schemas, which allow no member that they do not name."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {name: closed(value) for name, value in schema.items()}
    if schema.get("type") == "object" and schema.get("properties"):
        schema.setdefault("additionalProperties", False)
    return schema


class Client:
    """Sends requests, and checks each answer."""

    def __init__(self, podium: Podium) -> None:
        self.http = podium.http
        self.document = httpx.get(f"{podium.http}/openapi.json").json()
        self.checked: set[tuple[str, str]] = set()

    def send(self, method: str, route: str, *ids: str, status: int = 200, **options: object) -> dict:
        path = route
        for name, value in zip(["{id}", "{item}"], ids, strict=False):
            path = path.replace(name, value)
        body = options.pop("body", None)
        answer = httpx.request(method, self.http + path, json=body, timeout=PATIENCE_S, **options)
        assert answer.status_code == status, answer.text
        responses = self.document["paths"][route][method.lower()]["responses"]
        expected = responses["200"] if status == 200 else self.resolved(responses["default"])
        if "content" not in expected:
            assert not answer.content
        else:
            kind = answer.headers["content-type"].split(";")[0]
            assert kind in expected["content"], f"{method} {route}: {kind}"
            if kind == "application/json":
                self.check(answer.json(), expected["content"][kind]["schema"])
        if status == 200:
            self.checked.add((method.lower(), route))
        return answer.json() if "json" in answer.headers.get("content-type", "") else {}

    def resolved(self, schema: dict) -> dict:
        for part in schema.get("$ref", "").split("/")[1:]:
            schema = self.document[part] if schema.get("$ref") else schema[part]
        return schema

    def check(self, value: object, schema: dict) -> None:
        components = closed(copy.deepcopy(self.document["components"]))
        errors = jsonschema.Draft202012Validator({**schema, "components": components}).iter_errors(value)
        problems = [f"{error.json_path}: {error.message}"[:500] for error in errors]
        assert not problems, problems


@pytest.fixture(scope="module")
def client(versatile: Podium) -> Iterator[Client]:
    yield Client(versatile)


def test_every_route_answers_as_documented(client: Client) -> None:
    chat = client.send("POST", "/v1/chat/completions", body={**CHAT, "stream": False})
    client.send("POST", "/v1/chat/completions", body={**CHAT, "stream": True})
    client.send("POST", "/v1/chat/completions", body={**CHAT, "tools": CHAT_TOOLS, "tool_choice": "required"})
    client.send("POST", "/v1/estimates", body=CHAT)
    client.send("GET", "/v1/budgets")
    run = client.send("GET", "/v1/runs", params={"limit": 5})["data"][0]["id"]
    client.send("GET", "/v1/runs/{id}", run)
    client.send("GET", "/v1/runs/{id}/events", run)
    client.send("POST", "/v1/runs/{id}/rating", run, body={"thumb": "up", "comment": "good"})
    suspended = {**CHAT, "model": "podium-ultra", "tools": CHAT_TOOLS, "messages": [{"role": "user", "content": "Ask look."}]}
    asked = client.send("POST", "/v1/chat/completions", body=suspended)
    assert asked["choices"][0]["finish_reason"] == "tool_calls" and asked["id"] != chat["id"]
    waiting = client.send("GET", "/v1/runs")["data"][0]
    assert waiting["state"] == "suspended"
    client.send("GET", "/v1/runs/{id}", waiting["id"])
    client.send("POST", "/v1/runs/{id}/cancel", waiting["id"])
    responses(client)
    conversations(client)
    client.send("POST", "/v1/messages", body=MESSAGE)
    client.send("POST", "/v1/messages", body={**MESSAGE, "tools": MESSAGE_TOOLS, "tool_choice": {"type": "any"}})
    client.send("POST", "/v1/messages/count_tokens", body=CHAT)
    for headers in ({}, ANTHROPIC):
        client.send("GET", "/v1/models", headers=headers)
        client.send("GET", "/v1/models/{id}", "podium-mini", headers=headers)
    for route in ("/healthz", "/readyz", "/api/hello", "/openapi.json"):
        client.send("GET", route)
    documented = {(method, route) for route, methods in client.document["paths"].items() for method in methods}
    assert client.checked == documented


def responses(client: Client) -> None:
    tooled = {**RESPONSE, "model": "podium-ultra", "tools": RESPONSE_TOOLS, "input": "Ask look."}
    asked = client.send("POST", "/v1/responses", body={**tooled, "include": ["reasoning.encrypted_content"]})
    (call,) = [item for item in asked["output"] if item["type"] == "function_call"]
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": [{"type": "input_text", "text": "x"}, PICTURE]}
    answered = client.send("POST", "/v1/responses", body={**tooled, "input": [output], "previous_response_id": asked["id"]})
    client.send("GET", "/v1/responses/{id}/input_items", answered["id"])
    custom = {**RESPONSE, "tools": [{"type": "custom", "name": "look"}], "tool_choice": "required"}
    client.send("POST", "/v1/responses", body=custom)
    content = [{"type": "input_text", "text": QUESTION}, PICTURE]
    body = {**RESPONSE, "input": [{"role": "user", "content": content}], "metadata": {"a": "b"}, "prompt_cache_retention": "24h"}
    made = client.send("POST", "/v1/responses", body=body)
    client.send("POST", "/v1/responses", body={**RESPONSE, "stream": True})
    client.send("POST", "/v1/responses/compact", body=RESPONSE)
    client.send("POST", "/v1/responses/input_tokens", body=RESPONSE)
    client.send("GET", "/v1/responses/{id}", made["id"])
    client.send("GET", "/v1/responses/{id}/input_items", made["id"])
    begun = client.send("POST", "/v1/responses", body={**RESPONSE, "background": True})
    assert begun["status"] == "queued"
    # A cancelled response stays so.
    client.send("POST", "/v1/responses/{id}/cancel", cancelled(client)["id"])
    client.send("DELETE", "/v1/responses/{id}", made["id"])
    client.send("GET", "/v1/responses/{id}", made["id"], status=404)


def cancelled(client: Client) -> dict:
    """A suspended response whose run was cancelled."""
    tooled = {**RESPONSE, "model": "podium-ultra", "tools": RESPONSE_TOOLS, "input": "Ask look."}
    asked = client.send("POST", "/v1/responses", body=tooled)
    client.send("POST", "/v1/responses/{id}/cancel", asked["id"], status=409)
    run = client.send("GET", "/v1/runs")["data"][0]
    assert run["state"] == "suspended"
    client.send("POST", "/v1/runs/{id}/cancel", run["id"])
    return asked


def conversations(client: Client) -> None:
    made = client.send("POST", "/v1/conversations")
    message = {"type": "message", "role": "user", "content": "hi"}
    client.send("GET", "/v1/conversations/{id}", made["id"])
    client.send("POST", "/v1/conversations/{id}", made["id"], body={"metadata": {"a": "b"}})
    added = client.send("POST", "/v1/conversations/{id}/items", made["id"], body={"items": [message]})
    client.send("POST", "/v1/responses", body={**RESPONSE, "conversation": made["id"]})
    assert len(client.send("GET", "/v1/conversations/{id}/items", made["id"])["data"]) == 3
    client.send("GET", "/v1/conversations/{id}/items/{item}", made["id"], added["data"][0]["id"])
    client.send("DELETE", "/v1/conversations/{id}/items/{item}", made["id"], added["data"][0]["id"])
    client.send("DELETE", "/v1/conversations/{id}", made["id"])


@pytest.mark.parametrize(
    ("method", "route", "ids", "status"),
    [
        ("POST", "/v1/chat/completions", (), 400),
        ("POST", "/v1/responses", (), 400),
        ("POST", "/v1/messages", (), 400),
        ("POST", "/v1/messages/count_tokens", (), 400),
        ("GET", "/v1/responses/{id}", ("resp_x",), 404),
        ("GET", "/v1/models/{id}", ("gpt-5",), 404),
    ],
)
def test_errors_are_documented(client: Client, method: str, route: str, ids: tuple[str, ...], status: int) -> None:
    body = {} if method == "POST" else None
    client.send(method, route, *ids, status=status, body=body)


def test_the_check_finds_an_undocumented_member(client: Client) -> None:
    model = json.loads(json.dumps(client.send("GET", "/v1/models/{id}", "podium-mini")))
    schema = {"$ref": "#/components/schemas/Model"}
    client.check(model, schema)
    with pytest.raises(AssertionError):
        client.check({**model, "colour": "red"}, schema)
    del model["id"]
    with pytest.raises(AssertionError):
        client.check(model, schema)
