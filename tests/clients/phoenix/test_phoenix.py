"""Arize Phoenix receives real runs of `podium serve` and shows each as a tree of chain, agent, LLM and tool spans.

`PHOENIX` names the program; by default `uvx` fetches this version (1 GB).
"""

import os
import pathlib
import shlex
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import httpx
import pytest
from conftest import PATIENCE_S, QUESTION, WORKFLOW, Process, free_ports, roomy_pool, serve, serve_pool

PHOENIX = "uvx --from arize-phoenix==20.26.1 phoenix"
# The first start creates its database, and may fetch it.
STARTS_S = 900


@dataclass
class Phoenix:
    http: str
    collector: str

    def spans(self, trace_id: str) -> list[dict]:
        """The spans of a trace so far."""
        found = httpx.get(f"{self.http}/v1/projects/default/spans", params={"limit": 1000}, timeout=PATIENCE_S)
        if found.status_code == 404:
            # The project begins with its first span.
            return []
        spans = found.raise_for_status().json()["data"]
        return [span for span in spans if span["context"]["trace_id"] == trace_id]

    def trace(self, trace_id: str, is_complete: Callable[[list[dict]], bool]) -> list[dict]:
        deadline = time.monotonic() + PATIENCE_S
        while not is_complete(spans := self.spans(trace_id)):
            assert time.monotonic() < deadline, spans
            time.sleep(0.5)
        return spans


@pytest.fixture(scope="module")
def phoenix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Phoenix]:
    folder: pathlib.Path = tmp_path_factory.mktemp("phoenix")
    http, collector = free_ports(2)
    arguments = ["env", f"PHOENIX_WORKING_DIR={folder}", "PHOENIX_HOST=127.0.0.1", f"PHOENIX_PORT={http}"]
    arguments += [f"PHOENIX_GRPC_PORT={collector}", "PHOENIX_TELEMETRY_ENABLED=false"]
    process = Process([*arguments, *shlex.split(os.environ.get("PHOENIX", PHOENIX)), "serve"], folder / "log")
    try:
        deadline = time.monotonic() + STARTS_S
        while True:
            assert process.process.poll() is None, process.log.read_text()
            try:
                if httpx.get(f"http://127.0.0.1:{http}/healthz", timeout=5).is_success:
                    break
            except httpx.HTTPError:
                pass
            assert time.monotonic() < deadline, process.log.read_text()
            time.sleep(1)
        yield Phoenix(f"http://127.0.0.1:{http}", f"http://127.0.0.1:{collector}")
    finally:
        process.stop()


def by_parent(spans: list[dict]) -> dict[str | None, list[dict]]:
    children: dict[str | None, list[dict]] = {}
    # A plan that needs no model ends in the millisecond in which its first step begins.
    for span in sorted(spans, key=lambda span: (span["start_time"], span["span_kind"] != "CHAIN")):
        children.setdefault(span["parent_id"], []).append(span)
    return children


def tree(spans: list[dict], parent: str | None = None) -> list[tuple]:
    """Name, kind and children of each span below `parent`, in the order of their starts."""
    children = by_parent(spans)
    return [
        (span["name"], span["span_kind"], tree(spans, span["context"]["span_id"]))
        for span in children.get(parent, [])
    ]


def test_a_run_is_a_tree_of_chain_agent_and_llm_spans(
    tmp_path: pathlib.Path, vendor: str, phoenix: Phoenix
) -> None:
    (tmp_path / "workflow.yaml").write_text(WORKFLOW)
    process, server = serve(tmp_path, vendor, f"fixed:{tmp_path}/workflow.yaml", "--otlp-endpoint", phoenix.collector)
    try:
        messages = [{"role": "user", "content": QUESTION}]
        raw = server.openai().chat.completions.with_raw_response.create(model="podium-ultra", messages=messages)
        spans = phoenix.trace(raw.headers["x-podium-trace-id"], lambda spans: len(spans) >= 8)
    finally:
        process.stop()
    steps = [
        (f"invoke_agent {worker}", "AGENT", [(f"chat {worker}", "LLM", [])])
        for worker in ("sim-dates", "sim-arithmetic", "sim-words")
    ]
    (root,) = tree(spans)
    assert root[:2] == ("invoke_workflow podium-ultra", "CHAIN")
    plan, *rest = root[2]
    assert plan[:2] == ("plan three-steps-1", "CHAIN")
    assert rest == steps
    calls = [span for span in spans if span["span_kind"] == "LLM"]
    for call in calls:
        attributes = call["attributes"]
        assert attributes["llm.model_name"] == call["name"].removeprefix("chat ")
        assert attributes["llm.token_count.prompt"] > 0 and attributes["llm.token_count.completion"] > 0
    assert all(span["status_code"] != "ERROR" for span in spans)
    # Nothing that a person wrote is in the trace.
    assert "multiply" not in str(spans)


TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Looks a word up.",
        "parameters": {"type": "object", "properties": {"word": {"type": "string"}}},
    },
}


def test_a_tool_loop_has_tool_spans_and_the_content_of_a_tenant_that_the_settings_name(
    tmp_path: pathlib.Path, vendor: str, phoenix: Phoenix
) -> None:
    pool = roomy_pool(vendor, caller="sim-echo")
    options = ["--otlp-endpoint", phoenix.collector, "--set", "trace_content=*"]
    process, server = serve_pool(tmp_path, vendor, "direct:caller", pool, *options)
    try:
        create = server.openai(max_retries=0).chat.completions.with_raw_response.create
        messages: list[dict] = [{"role": "user", "content": "Ask look_up, please."}]
        raw = create(model="podium-ultra", messages=messages, tools=[TOOL])
        asked = raw.parse().choices[0].message
        messages.append(asked.model_dump(exclude_none=True))
        for call in asked.tool_calls:
            messages.append({"role": "tool", "tool_call_id": call.id, "content": "the tide is low"})
        raw = create(model="podium-ultra", messages=messages, tools=[TOOL])
        answer = raw.parse().choices[0].message.content
        spans = phoenix.trace(raw.headers["x-podium-trace-id"], lambda spans: len(spans) >= 6)
    finally:
        process.stop()
    (root,) = tree(spans)
    assert [child[:2] for child in root[2]] == [("plan direct-caller", "CHAIN"), ("invoke_agent caller", "AGENT")]
    below = [child[:2] for child in root[2][1][2]]
    assert below == [("chat sim-echo", "LLM"), ("execute_tool look_up", "TOOL"), ("chat sim-echo", "LLM")]
    (whole,) = [span for span in spans if span["parent_id"] is None]
    assert whole["attributes"]["input.value"] == "Ask look_up, please."
    assert whole["attributes"]["output.value"] == answer
    (tool,) = [span for span in spans if span["span_kind"] == "TOOL"]
    assert "the tide is low" in str(tool["attributes"])
    calls = [str(span["attributes"]) for span in spans if span["span_kind"] == "LLM"]
    assert all("Ask look_up, please." in call for call in calls) and "look_up" in calls[0]
