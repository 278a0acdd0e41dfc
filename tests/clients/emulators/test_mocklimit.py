"""Our limits against mocklimit, a server by others that counts requests and tokens and refuses what is too much.

`podium-bench-limits` calls it from 32 executors for `MOCKLIMIT_SECONDS` (180) and fails below 95 % of what is allowed, or
from 1 % of calls answered 429 on. Not part of `make test`, since each case takes that long.
"""

import json
import os
import pathlib
import subprocess

import httpx
import pytest
from conftest import PATIENCE_S, Process, binary, free_ports

HERE = pathlib.Path(__file__).resolve().parent
SECONDS = int(os.environ.get("MOCKLIMIT_SECONDS", "180"))
REQUESTS, TOKENS, ANSWER_TOKENS = 600, 100_000, 60
CASES = [
    ("sliding_window", "requests"),
    ("sliding_window", "tokens"),
    ("fixed_window", "requests"),
    ("token_bucket", "tokens"),
]
# It counts a token for four bytes of a request's body.
BYTES_4 = {"strategy": "characters_div_4"}


def fixed(value: int) -> dict:
    return {"strategy": "fixed", "value": value}


def headers(kind: str) -> dict:
    return {what: f"x-ratelimit-{what}-{kind}" for what in ("limit", "remaining", "reset")}


def config(strategy: str) -> dict:
    """An account's limits as OpenAI states them. Each resource has the name of the field of the usage that counts it."""
    limits = [
        {"dimension": kind, "limit": limit, "window_seconds": 60, "headers": headers(kind)}
        for kind, limit in (("requests", REQUESTS), ("tokens", TOKENS))
    ]
    says = {"reset": "go_duration", "retry_after": {"header": "retry-after-ms", "unit": "milliseconds"}}
    policy = {
        "strategy": strategy,
        "limits": limits,
        "scope": "api_key",
        "format": says,
        "error_template": {"provider": "openai"},
    }
    resources = {
        "requests": {"input": fixed(1), "output": fixed(0)},
        "tokens": {"input": BYTES_4, "output": fixed(ANSWER_TOKENS)},
        "prompt_tokens": {"input": BYTES_4, "output": fixed(0)},
        "completion_tokens": {"input": fixed(0), "output": fixed(ANSWER_TOKENS)},
    }
    endpoint = {"methods": ["POST"], "policy": "account", "resources": resources, "timing": {"base_ms": [200, 800]}}
    return {"policies": {"account": policy}, "endpoints": {"/chat/completions": endpoint}}


@pytest.fixture
def mocklimit(tmp_path: pathlib.Path, strategy: str) -> object:
    (port,) = free_ports(1)
    limits = tmp_path / "limits.yaml"
    # JSON is YAML.
    limits.write_text(json.dumps(config(strategy)))
    spec = HERE / "mocklimit" / "openapi.yaml"
    arguments = ["mocklimit", "serve", "--spec", str(spec), "--rate-config", str(limits), "--port", str(port)]
    process = Process(arguments, tmp_path / "log")
    process.wait_for_port(port)
    yield f"http://127.0.0.1:{port}"
    process.stop()


@pytest.mark.parametrize(("strategy", "scarce"), CASES)
def test_32_executors_use_what_it_allows_and_are_hardly_refused(mocklimit: str, strategy: str, scarce: str) -> None:
    words = {"requests": 40, "tokens": 330}[scarce]
    command = [binary("podium-bench-limits", "PODIUM_BENCH_LIMITS_BIN"), "--base-url", f"{mocklimit}/v1"]
    command += ["--seconds", str(SECONDS), "--prompt-words", str(words)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS + PATIENCE_S)
    (counted,) = httpx.get(f"{mocklimit}/mocklimit/stats").json()["POST /chat/completions"].values()
    print(f"{strategy}, {scarce} are scarce: {result.stdout.strip()} mocklimit counted {counted}")
    assert result.returncode == 0, result.stderr
    said = json.loads(result.stdout)
    assert said["scarce"] == scarce
    # Calls under way at the end were counted there and not here.
    finished = said["answered"] + said["answered_429"]
    assert finished <= counted["total_requests"] <= finished + said["callers"]
    assert counted["total_429s"] < counted["total_requests"] / 100
