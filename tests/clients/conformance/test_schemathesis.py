"""Requests that schemathesis makes from the OpenAPI document, unmodified from PyPI. `make test-conformance` runs this.

The seed is fixed, so the same document gives the same requests."""

import pathlib
import re
import shutil
import subprocess
import sys

import httpx
from conftest import Podium

SEED = 175044335043377906851085196893710017237
EXAMPLES = 10
# Each answer has a documented status, type and body, and no request makes the server fail. Two checks are left out, because a
# schema cannot say how the parts of a request refer to each other: whether a request that it allows is accepted, and whether one
# that it forbids is rejected.
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


def test_every_answer_is_documented(versatile: Podium, tmp_path: pathlib.Path) -> None:
    program = shutil.which("schemathesis", path=str(pathlib.Path(sys.executable).parent))
    assert program, "schemathesis is not installed"
    options = ["--phases", "examples,coverage,fuzzing", "--checks", CHECKS, "--seed", str(SEED)]
    options += ["--max-examples", str(EXAMPLES), "--workers", "1", "--request-timeout", "60", "--no-color"]
    ended = subprocess.run(
        [program, "run", f"{versatile.http}/openapi.json", *options],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    # A run without requests would succeed too. The document itself is no operation under test.
    paths = httpx.get(f"{versatile.http}/openapi.json").json()["paths"]
    operations = sum(len(methods) for methods in paths.values()) - 1
    assert f"Tested: {operations}" in ended.stdout, ended.stdout
    passed = re.search(r"(\d+) generated, (\d+) passed", ended.stdout)
    assert passed and passed[1] == passed[2] and int(passed[1]) > 1000, ended.stdout
