"""The remote conductor against a real vLLM, which serves the conductor that ships. On a processor, so slow; `VLLM_URL` names a server
that runs already.

Not part of `make test`: vLLM takes gigabytes. `make test-vllm` says what it needs.
"""

import concurrent.futures
import os
import pathlib
import subprocess
import time
from collections.abc import Iterator

import httpx
import openai
import pytest
from conftest import ANSWER, DATES, QUESTION, ROOT, Process, binary, free_ports, serve
from conftest import vendor  # noqa: F401

HERE = pathlib.Path(__file__).resolve().parent
START_S = 600
PLAN_S = 180
PLAN = [
    ("sim-dates", DATES),
    ("sim-arithmetic", "multiply the result by 12"),
    ("sim-words", "write the result in words"),
]

MODEL = """
[[workers]]
id = "{name}"
vendor = "vllm"
model = "{model}"
description = "plans"
context_tokens = {context}
output_tokens_max = {tokens}
features = {features}
usd_per_million_tokens = {{ input = 0.0, output = 0.0 }}
"""
VENDOR = """
schema = 1
name = "vllm"
version = "1"

[[vendors]]
id = "vllm"
api = "openai-chat"
base_url = "{url}/v1"
"""


@pytest.fixture(scope="session")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if url := os.environ.get("VLLM_URL"):
        yield url
        return
    python = os.environ.get("VLLM_PYTHON")
    assert python, "VLLM_PYTHON must name the Python of an environment with vLLM and gguf"
    folder = tmp_path_factory.mktemp("vllm")
    weights = ROOT / "models/nano/nano.gguf"
    subprocess.run([python, str(HERE / "make_model.py"), str(weights), str(folder / "nano")], check=True)
    (port,) = free_ports(1)
    arguments = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder / "nano")]
    arguments += ["--served-model-name", "nano", "--host", "127.0.0.1", "--port", str(port), "--enforce-eager"]
    arguments += ["--dtype", "float32"]
    process = Process(arguments, folder / "log")
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + START_S
        while not is_ready(url):
            assert process.process.poll() is None, process.log.read_text()[-4000:]
            assert time.monotonic() < deadline, process.log.read_text()[-4000:]
            time.sleep(1)
        yield url
    finally:
        process.stop()


def is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health").is_success
    except httpx.TransportError:
        return False


def measured(vllm: str, name: str, label: str = "") -> float:
    """The sum of a metric of the server's over its labels, or over those with this one."""
    lines = httpx.get(f"{vllm}/metrics").text.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"{name}{{") and label in line)


def conductor(folder: pathlib.Path, vllm: str, **changes: object) -> str:
    said = {"name": "planner", "model": "nano", "context": 4096, "tokens": 192, "features": ["seed", "temperature"]}
    worker = MODEL.format(**{**said, **changes})
    (folder / "planner.toml").write_text(VENDOR.format(url=vllm) + worker)
    return f"model:{folder / 'planner.toml'}#planner"


def planned(folder: pathlib.Path, choice: str, question: str = QUESTION) -> tuple[list[tuple[str, str]], str]:
    """The steps of a plan, and the reason why the conductor did not write it, if so."""
    command = [binary("podium", "PODIUM_BIN"), "plan", "--data", str(folder / "data"), "--pool", "demo"]
    done = subprocess.run(
        [*command, "--conductor", choice, "-"], input=question, capture_output=True, text=True, timeout=PLAN_S
    )
    assert done.returncode == 0, done.stderr
    rows = [line.split("  ") for line in done.stdout.splitlines()]
    substitute = [line for line in done.stderr.splitlines() if "substitute" in line]
    return [(row[1], row[2]) for row in rows], "\n".join(substitute)


@pytest.mark.parametrize("features", [[], ["regex"]], ids=["asked", "regex"])
def test_it_plans_as_it_does_under_llama_cpp(tmp_path: pathlib.Path, vllm: str, features: list[str]) -> None:
    choice = conductor(tmp_path, vllm, features=[*features, "seed", "temperature"])
    assert planned(tmp_path, choice) == (PLAN, "")


def test_a_model_that_never_ends_is_asked_three_times_and_cut_each_time(tmp_path: pathlib.Path, vllm: str) -> None:
    # It was never shown JSON, and held to it, it goes on and on.
    choice = conductor(tmp_path, vllm, features=["json_schema", "seed", "temperature"], tokens=48)
    before = measured(vllm, "vllm:request_success_total", 'finished_reason="length"')
    steps, why = planned(tmp_path, choice)
    assert [worker for worker, _ in steps] == ["sim-generalist"]
    assert "no usable plan in 3 tries" in why and "cut off after 48 tokens" in why, why
    assert measured(vllm, "vllm:request_success_total", 'finished_reason="length"') == before + 3


def test_what_it_refuses_is_said_and_one_worker_gets_the_question(tmp_path: pathlib.Path, vllm: str) -> None:
    steps, why = planned(tmp_path, conductor(tmp_path, vllm, model="other"))
    assert [worker for worker, _ in steps] == ["sim-generalist"]
    assert "status 404" in why and "`other` does not exist" in why, why
    # The pool file says that the model takes more than it does, so that the server is who refuses.
    choice = conductor(tmp_path, vllm, context=1_000_000)
    steps, why = planned(tmp_path, choice, "Add 1 and 2. " * 3000)
    assert [worker for worker, _ in steps] == ["sim-generalist"]
    assert "in 1 tries" in why and "maximum context length" in why, why


def test_plans_are_written_side_by_side_and_their_runs_answered(
    tmp_path: pathlib.Path, vllm: str, vendor: str
) -> None:
    choice = conductor(tmp_path, vllm, features=["regex", "seed", "temperature"])
    process, podium = serve(tmp_path, vendor, choice)
    ask = lambda: podium.openai(max_retries=0).chat.completions.create(  # noqa: E731
        model="podium-ultra", messages=[{"role": "user", "content": QUESTION}]
    )
    try:
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            asked = [pool.submit(ask) for _ in range(12)]
            most = 0.0
            while not all(answer.done() for answer in asked):
                most = max(most, measured(vllm, "vllm:num_requests_running"))
        assert [answer.result().choices[0].message.content for answer in asked] == [ANSWER] * 12
        assert most > 1, "they were written one after the other"
    finally:
        process.stop()


def test_a_run_whose_deadline_passes_makes_it_stop_writing(tmp_path: pathlib.Path, vllm: str, vendor: str) -> None:
    choice = conductor(tmp_path, vllm, features=["json_schema"], tokens=4096, context=8192)
    finished = measured(vllm, "vllm:request_success_total")
    written = measured(vllm, "vllm:generation_tokens_total")
    process, podium = serve(tmp_path, vendor, choice)
    try:
        with pytest.raises(openai.APIError):
            podium.openai(max_retries=0).chat.completions.create(
                model="podium-ultra",
                messages=[{"role": "user", "content": QUESTION}],
                extra_body={"podium": {"deadline_ms": 2000}},
            )
        deadline = time.monotonic() + 5
        while measured(vllm, "vllm:num_requests_running") > 0:
            assert time.monotonic() < deadline, "it still writes"
            time.sleep(0.05)
        assert measured(vllm, "vllm:generation_tokens_total") > written, "it never began"
        assert measured(vllm, "vllm:request_success_total") == finished, "it came to an end of its own"
    finally:
        process.stop()
