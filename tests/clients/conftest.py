"""The servers under test: the real binaries on free loopback ports, stopped whatever happens."""

import contextlib
import json
import os
import pathlib
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass

import grpc
import httpx
import openai
import pytest
from podium_client.v1 import event_pb2, podium_pb2, podium_pb2_grpc, run_pb2

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATIENCE_S = 60

DATES = "the number of days between 3 March 2024 and 17 May 2025"
QUESTION = f"Take {DATES}, multiply it by 12, and write the result in words."
ANSWER = "five thousand two hundred and eighty"

WORKFLOW = f"""
name: three-steps
version: "1"
steps:
  - worker: sim-dates
    subtask: {DATES}
  - worker: sim-arithmetic
    subtask: multiply the result by 12
    sees: [1]
  - worker: sim-words
    subtask: write the result in words
    sees: [2]
"""


def binary(name: str, variable: str) -> str:
    """The binary that is under test: named by the environment, or where cargo puts it."""
    target = os.environ.get("CARGO_TARGET_DIR", str(ROOT / "target"))
    path = pathlib.Path(os.environ.get(variable, f"{target}/debug/{name}"))
    assert path.is_file(), f"{path} is missing: run `cargo build` first, or set {variable}"
    return str(path)


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


class Process:
    """A server in a process of its own, with its log in a file."""

    def __init__(self, arguments: list[str], log: pathlib.Path) -> None:
        self.log = log
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PODIUM__")}
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                arguments, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment
            )

    def wait_for_port(self, port: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            assert self.process.poll() is None, f"it ended at once: {self.log.read_text()}"
            with socket.socket() as probe:
                probe.settimeout(1)
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.02)
        raise AssertionError(f"nothing listens on port {port}: {self.log.read_text()}")

    def memory_kb(self) -> int:
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        (line,) = (line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1])

    def files(self) -> int:
        """The number of its open files and connections."""
        return len(list(pathlib.Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@dataclass
class Podium:
    """A server and the addresses of its APIs."""

    http: str
    grpc: str
    vendor: str

    def openai(self, **options: object) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.http}/v1", api_key="none", timeout=PATIENCE_S, **options)

    @contextlib.contextmanager
    def behaving(self, model: str, fault: dict, calls: int | None = None) -> Iterator[None]:
        """So many calls of a worker, or every call, meet a fault meanwhile."""
        when = {"probability": 1.0} if calls is None else {"next_calls": calls}
        route = f"{self.vendor}/control/behaviour/{model}"
        before = httpx.get(route).json()
        httpx.put(route, json={**before, "faults": [{"fault": fault, **when}]}).raise_for_status()
        try:
            yield
        finally:
            httpx.put(route, json=before).raise_for_status()

    @contextlib.contextmanager
    def replying(self, model: str, replies: list[dict]) -> Iterator[None]:
        """A worker gives scripted replies meanwhile."""
        route = f"{self.vendor}/control/behaviour/{model}"
        before = httpx.get(route).json()
        httpx.put(route, json={**before, "replies": replies}).raise_for_status()
        try:
            yield
        finally:
            httpx.put(route, json=before).raise_for_status()

    def calls(self) -> list[dict]:
        """The calls that the simulated vendor received so far."""
        return httpx.get(f"{self.vendor}/control/calls").json()["calls"]


@pytest.fixture(scope="session")
def vendor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The simulated vendor; a token every 2 ms, so that streams have several chunks."""
    (port,) = free_ports(1)
    log = tmp_path_factory.mktemp("vendor") / "log"
    arguments = [binary("vendor-sim", "VENDOR_SIM_BIN"), "--listen", f"127.0.0.1:{port}", "--token-ms", "2"]
    process = Process(arguments, log)
    try:
        process.wait_for_port(port)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.stop()


ROOMY_POOL = """
schema = 1
name = "roomy"
version = "1"

[[vendors]]
id = "sim"
api = "openai-chat"
base_url = "{vendor}/v1"
"""
ROOMY_WORKER = """
[[workers]]
id = "{id}"
vendor = "sim"
model = "{model}"
description = "{description}"
modalities = ["text", "image", "pdf"]
features = ["temperature", "top_p", "stop", "seed", "tools", "one_tool_call", "json_object", "json_schema", "effort"]
context_tokens = 400_000
output_tokens_max = 64_000
usd_per_million_tokens = {{ input = 1.0, output = 4.0 }}
fallbacks = []
"""


def roomy_pool(vendor: str, **models: str) -> str:
    """A pool of workers that take long prompts and support everything: their models by their ids."""
    workers = [ROOMY_WORKER.format(id=id, model=model, description=f"The {id}.") for id, model in models.items()]
    return ROOMY_POOL.format(vendor=vendor) + "".join(workers)


def serve(
    folder: pathlib.Path, vendor: str, conductor: str, *options: str, **changes: str
) -> tuple[Process, Podium]:
    """Starts Podium with the pool of the demonstration, in which some lines are replaced."""
    pool = (ROOT / "pools/demo.toml").read_text()
    for line, instead in changes.items():
        assert pool.count(line) == 1
        pool = pool.replace(line, instead)
    pool, moved = re.subn(r'base_url = "[^"]*"', f'base_url = "{vendor}/v1"', pool)
    assert moved == 1
    return serve_pool(folder, vendor, conductor, pool, *options)


def serve_pool(
    folder: pathlib.Path, vendor: str, conductor: str, pool: str, *options: str
) -> tuple[Process, Podium]:
    (folder / "pool.toml").write_text(pool)
    http, grpc_port = free_ports(2)
    arguments = [binary("podium", "PODIUM_BIN"), "serve"]
    arguments += ["--listen", f"127.0.0.1:{http}", "--grpc-listen", f"127.0.0.1:{grpc_port}"]
    arguments += ["--data", str(folder / "data"), "--pool", str(folder / "pool.toml"), "--conductor", conductor]
    arguments += options
    process = Process(arguments, folder / "log")
    try:
        process.wait_for_port(http)
        process.wait_for_port(grpc_port)
    except BaseException:
        process.stop()
        raise
    return process, Podium(f"http://127.0.0.1:{http}", f"127.0.0.1:{grpc_port}", vendor)


@pytest.fixture(scope="session")
def podium(tmp_path_factory: pytest.TempPathFactory, vendor: str) -> Iterator[Podium]:
    """A server that runs every question as three steps."""
    folder = tmp_path_factory.mktemp("podium")
    (folder / "workflow.yaml").write_text(WORKFLOW)
    process, server = serve(folder, vendor, f"fixed:{folder}/workflow.yaml")
    try:
        yield server
    finally:
        process.stop()


@pytest.fixture(scope="session")
def direct(tmp_path_factory: pytest.TempPathFactory, vendor: str) -> Iterator[Podium]:
    """A server that hands every question to the worker that knows words."""
    process, server = serve(tmp_path_factory.mktemp("direct"), vendor, "direct:sim-words")
    try:
        yield server
    finally:
        process.stop()


@pytest.fixture
def fresh(tmp_path_factory: pytest.TempPathFactory, vendor: str) -> Iterator[Podium]:
    """As `direct`, but of one test: no failed call of another test has opened a circuit breaker."""
    process, server = serve(tmp_path_factory.mktemp("fresh"), vendor, "direct:sim-words")
    try:
        yield server
    finally:
        process.stop()


@pytest.fixture(scope="session")
def able(tmp_path_factory: pytest.TempPathFactory, vendor: str) -> Iterator[Podium]:
    """As `direct`, but that worker repeats what it is asked, and takes images, PDFs and response formats."""
    takes = 'modalities = ["text", "image", "pdf"]\nfeatures = ["json_object", "json_schema"]'
    changes = {'model = "sim-words"': f'model = "sim-echo"\n{takes}'}
    process, server = serve(tmp_path_factory.mktemp("able"), vendor, "direct:sim-words", **changes)
    try:
        yield server
    finally:
        process.stop()


@pytest.fixture(scope="session")
def calling(tmp_path_factory: pytest.TempPathFactory, vendor: str) -> Iterator[Podium]:
    """As `direct`, but that worker repeats what it is asked, and calls tools."""
    takes = 'features = ["tools", "one_tool_call", "json_schema"]'
    changes = {'model = "sim-words"': f'model = "sim-echo"\n{takes}'}
    process, server = serve(tmp_path_factory.mktemp("calling"), vendor, "direct:sim-words", **changes)
    try:
        yield server
    finally:
        process.stop()


@pytest.fixture(scope="session")
def versatile(tmp_path_factory: pytest.TempPathFactory, vendor: str) -> Iterator[Podium]:
    """As `direct`, but that worker repeats what it is asked, and supports everything that a request can ask for."""
    features = ["temperature", "top_p", "stop", "seed", "tools", "one_tool_call", "json_object", "json_schema"]
    takes = f'modalities = ["text", "image", "pdf"]\nfeatures = {json.dumps(features)}'
    changes = {'model = "sim-words"': f'model = "sim-echo"\n{takes}'}
    process, server = serve(tmp_path_factory.mktemp("versatile"), vendor, "direct:sim-words", **changes)
    try:
        yield server
    finally:
        process.stop()


@dataclass
class Generated:
    """The generated modules of the package `podium-client`."""

    podium: object
    run: object
    event: object
    service: object


@pytest.fixture(scope="session")
def generated() -> Generated:
    return Generated(podium=podium_pb2, run=run_pb2, event=event_pb2, service=podium_pb2_grpc)


@pytest.fixture
def channel(podium: Podium) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(podium.grpc) as channel:
        yield channel


@pytest.fixture
def stub(channel: grpc.Channel, generated: Generated) -> object:
    return generated.service.PodiumServiceStub(channel)
