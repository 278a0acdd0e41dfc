"""Our adapters against aimock, an emulator of the vendors that others wrote: `podium pool check --call` in all four formats.

Not part of `make test`: what aimock does is not ours to keep. `make test-emulators` fetches and runs it.
"""

import pathlib
import subprocess
from collections.abc import Iterator

import pytest
from conftest import PATIENCE_S, Process, binary, free_ports

HERE = pathlib.Path(__file__).resolve().parent
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
context_tokens = 8192
usd_per_million_tokens = {{ input = 1.0, output = 1.0 }}
"""


@pytest.fixture
def check(tmp_path: pathlib.Path) -> Iterator[object]:
    """Calls a worker of each format, served by aimock with the given options."""
    started = []

    def run(*options: str) -> subprocess.CompletedProcess:
        (port,) = free_ports(1)
        aimock = HERE / "node_modules/@copilotkit/aimock/dist/cli.js"
        arguments = ["node", str(aimock), "--port", str(port), "--fixtures", str(HERE / "fixtures.json"), *options]
        process = Process(arguments, tmp_path / "log")
        started.append(process)
        process.wait_for_port(port)
        url = f"http://127.0.0.1:{port}"
        workers = [VENDOR.format(format=name, url=url, path=path) for name, path in FORMATS.items()]
        pool = tmp_path / "pool.toml"
        pool.write_text('schema = 1\nname = "aimock"\nversion = "1"\n' + "".join(workers))
        command = [binary("podium", "PODIUM_BIN"), "pool", "check", str(pool), "--call"]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)

    yield run
    for process in started:
        process.stop()


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
