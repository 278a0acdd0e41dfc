"""A real cluster for recordings: `podium-local-cluster`, further processes, clients that ask, and readings of `/metrics`."""

import contextlib
import json
import os
import re
import signal
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

FAKETIME = "faketime/libfaketimeMT.so.1"
SCRAPE_TIMEOUT_SECONDS = 2.0


def get(url: str, body: object | None = None, headers: dict[str, str] | None = None, method: str | None = None, timeout: float = 60) -> bytes:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json", **(headers or {})}, method=method)
    with urllib.request.urlopen(request, timeout=timeout) as response:
        return response.read()


@dataclass
class Process:
    """A process of the cluster: its job, where its metrics are, and how it was started if it was added."""

    job: str
    metrics: str
    child: subprocess.Popen[bytes] | None = None
    command: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)


class Cluster:
    """`podium-local-cluster`, and the processes that a recording adds to it."""

    def __init__(self, binaries: Path, work: Path, options: list[str], settings: dict[str, str] | None = None) -> None:
        self.binaries, self.work = binaries, work
        self.out = work / "out"
        environment = {f"PODIUM__{key.upper()}": value for key, value in (settings or {}).items()}
        with self.out.open("wb") as out:
            command = [str(binaries / "podium-local-cluster"), *options]
            self.child = subprocess.Popen(command, stdout=out, stderr=out, env={**os.environ, **environment})
        self.environment = environment
        while "Create key" not in (text := self.out.read_text()):
            if self.child.poll() is not None:
                raise SystemExit(f"the cluster did not start: {text}")
            time.sleep(0.2)
        self.text = text
        self.processes = [
            Process(f"podium-{role}", url)
            for role, urls in (
                ("gateway", re.findall(r"gateway .*\n\s+http://(\S+)/metrics", text)),
                ("planner", re.findall(r"planner +http://(\S+)/readyz", text)),
                ("executor", re.findall(r"executor +http://(\S+)/readyz", text)),
            )
            for url in urls
        ]
        self.gateway, self.grpc = self.found(r"gateway +http://(\S+)/v1"), self.found(r"gateway .*, (\S+) \(gRPC\)")
        self.database, self.vendor = self.found(r"Postgres +(\S+)"), self.found(r"workers +(http://[^/]+)")

    def found(self, pattern: str) -> str:
        match = re.search(pattern, self.text)
        if match is None:
            raise SystemExit(f"no {pattern} in {self.text}")
        return match.group(1)

    def pids_of(self, job: str) -> list[int]:
        """The processes of a job that the cluster started itself."""
        return [pid for pid in children(self.child.pid) if arguments(pid)[0].endswith(f"/{job}")]

    def setting(self, job: str, key: str) -> str:
        """The value of a setting in the command line of the cluster's own process of that job."""
        return next(value.removeprefix(f"{key}=") for value in arguments(self.pids_of(job)[0]) if value.startswith(f"{key}="))

    def add(self, job: str, settings: dict[str, str], metrics: str, clock_off_seconds: int = 0) -> Process:
        """Starts one more process with the settings of the cluster's own process of that job, and these."""
        extra = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
        command = [str(self.binaries / job), *arguments(self.pids_of(job)[0])[1:], *extra]
        environment = dict(self.environment)
        if clock_off_seconds:
            environment |= {"LD_PRELOAD": faketime(), "FAKETIME": f"{clock_off_seconds:+}s", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
        process = Process(job, metrics, None, command, environment)
        self.processes.append(process)
        self.start(process)
        return process

    def start(self, process: Process) -> None:
        with (self.work / f"{process.job}-{process.metrics.rsplit(':', 1)[1]}.log").open("ab") as log:
            process.child = subprocess.Popen(process.command, stdout=log, stderr=log, env={**os.environ, **process.environment})

    def kill(self, process: Process) -> None:
        if process.child is not None:
            process.child.kill()
            process.child.wait()

    def server(self, name: str) -> list[int]:
        """The processes of a server that the cluster started. Redis shows its address in its name."""
        return [pid for pid in children(self.child.pid) if Path(arguments(pid)[0].split(" ")[0]).name == name]

    def signal(self, pids: list[int], number: signal.Signals) -> None:
        for pid in pids:
            for each in children(pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(each, number)

    def behave(self, model: str, faults: list[dict[str, object]], first_token_ms: int = 0) -> None:
        """Sets how a model of the simulated vendor behaves."""
        delay = {"min": first_token_ms, "max": first_token_ms}
        get(f"{self.vendor}/control/behaviour/{model}", {"first_token_ms": delay, "faults": faults}, method="PUT")

    def podium(self, *words: str) -> str:
        """Runs a command of `podium` on the cluster's database, and returns its output."""
        ran = subprocess.run([str(self.binaries / "podium"), *words, "--postgres", self.database], capture_output=True, text=True)
        if ran.returncode:
            raise SystemExit(f"podium {' '.join(words)}: {ran.stdout}{ran.stderr}")
        return ran.stdout + ran.stderr

    def podium_at(self, server: str, *words: str) -> None:
        """Runs a command of `podium` on a gateway. It may fail."""
        subprocess.run([str(self.binaries / "podium"), *words, "--server", f"http://{server}"], capture_output=True)

    def key(self, tenant: str) -> str:
        output = self.podium("key", "create", "--tenant", tenant)
        key = re.search(r"pdm_\w+", output)
        if key is None:
            raise SystemExit(f"no key in {output}")
        return key.group(0)

    def stop(self) -> None:
        for process in self.processes:
            if process.child is not None:
                process.child.terminate()
        self.signal([self.child.pid], signal.SIGCONT)
        self.child.terminate()
        self.child.wait(120)


def children(pid: int) -> Iterator[int]:
    """The process and all its descendants."""
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in task.read_text().split():
                yield from children(int(child))


def arguments(pid: int) -> list[str]:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")[:-1] or [""]
    return [""]


def faketime() -> str:
    """The library that changes a process' clock, of Debian's package `faketime`."""
    found = next(Path("/usr/lib").glob(f"*/{FAKETIME}"), None)
    if found is None:
        raise SystemExit("libfaketime is missing; install Debian's package faketime")
    return str(found)


class Clients:
    """Threads that ask one question after the other until `stop`."""

    def __init__(self) -> None:
        self.stopped = threading.Event()

    def ask(self, count: int, address: str, body: Callable[[], dict[str, object]], key: str = "", pause: float = 0.2, once: bool = False) -> None:
        headers = {"authorization": f"Bearer {key}"} if key else {}

        def loop() -> None:
            while not self.stopped.is_set():
                with contextlib.suppress(OSError):
                    get(f"http://{address}/v1/chat/completions", body(), headers, timeout=1_500)
                if once:
                    return
                self.stopped.wait(pause)

        for _ in range(count):
            threading.Thread(target=loop, daemon=True).start()

    def repeat(self, act: Callable[[], object], pause: float) -> None:
        """Does something again and again."""

        def loop() -> None:
            while not self.stopped.wait(pause):
                act()

        threading.Thread(target=loop, daemon=True).start()

    def stop(self) -> None:
        self.stopped.set()


@dataclass
class Step:
    """Something that happens at a second of a recording."""

    at: float
    act: Callable[[], object]


@dataclass
class Sample:
    """One line of an exposition, with the time at which it was read."""

    series: str
    value: str
    at: float


class Scraper:
    """Reads `/metrics` of processes as Prometheus does, all at the same time."""

    def __init__(self) -> None:
        self.types: dict[str, str] = {"up": "gauge"}
        self.threads = ThreadPoolExecutor(32)

    def scrape(self, processes: list[Process]) -> list[Sample]:
        """The samples of all processes, and `up` of each."""
        return [sample for found in self.threads.map(self.scrape_one, list(processes)) for sample in found]

    def scrape_one(self, process: Process) -> list[Sample]:
        now, up, samples = time.time(), "0", []
        labels = f'job="{process.job}",instance="{process.metrics}"'
        with contextlib.suppress(OSError):
            text = get(f"http://{process.metrics}/metrics", timeout=SCRAPE_TIMEOUT_SECONDS).decode()
            up = "1"
            for line in text.splitlines():
                if line.startswith("# TYPE "):
                    _, _, name, kind = line.split()
                    self.types[name] = kind
                elif line and not line.startswith("#"):
                    series, value = line.rsplit(" ", 1)
                    name, _, rest = series.partition("{")
                    inner = f",{rest[:-1]}" if rest else ""
                    samples.append(Sample(f"{name}{{{labels}{inner}}}", value, now))
        return [*samples, Sample(f"up{{{labels}}}", up, now)]


def play(steps: list[Step], lasts: float, every: float, scrape: Callable[[int], None]) -> None:
    """Carries out the steps in the order of their times, and calls `scrape` with its number at each multiple of `every`."""
    waiting, began, tick = sorted(steps, key=lambda step: step.at), time.monotonic(), 0
    while (now := time.monotonic() - began) < lasts:
        while waiting and waiting[0].at <= now:
            # In the background: a step that waits must not delay the readings.
            threading.Thread(target=waiting.pop(0).act, daemon=True).start()
        if now >= tick * every:
            scrape(tick)
            tick = int((time.monotonic() - began) / every) + 1
        time.sleep(0.05)
