"""Records the metrics of a real cluster under load and faults, for the tests to query.

It starts `podium-local-cluster` and one more gateway, planner and executor with a second conductor, a step cache and a
budget. It asks questions for some minutes, makes the vendor fail, and freezes Redis, NATS and Postgres in turn.
Every 15 seconds it reads `/metrics` of each process. The result is one file in OpenMetrics' text format, with times,
which `promtool tsdb create-blocks-from openmetrics` reads.
"""

import contextlib
import json
import lzma
import os
import random
import re
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

SCRAPE_SECONDS = 15
CLIENTS = 6
OPERATIONS = ("plus", "minus", "times")
# Seconds from the start at which each fault begins, and how long it lasts.
VENDOR_FAILS = (60, 60)
VENDOR_LIMITS = (130, 20)
REDIS_FREEZES = (160, 30)
NATS_FREEZES = (200, 25)
POSTGRES_FREEZES = (240, 30)
EXECUTOR_RESTARTS = 280
ENDS = 340


@dataclass
class Process:
    """A process of the cluster: its job, where its metrics are, and how it was started."""

    job: str
    metrics: str
    child: subprocess.Popen[bytes] | None = None
    command: list[str] = field(default_factory=list)


def get(url: str, body: object | None = None, headers: dict[str, str] | None = None, method: str | None = None) -> bytes:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json", **(headers or {})}, method=method)
    with urllib.request.urlopen(request, timeout=60) as response:
        return response.read()


class Cluster:
    """`podium-local-cluster`, and the processes that this recording adds to it."""

    def __init__(self, binaries: Path, conductor: str, work: Path) -> None:
        self.binaries, self.work = binaries, work
        command = [binaries / "podium-local-cluster", "--gateways", "1", "--planners", "1", "--executors", "2"]
        self.out = work / "out"
        with self.out.open("wb") as out:
            self.child = subprocess.Popen([*map(str, command), "--conductor", conductor], stdout=out, stderr=out)
        while "Make a key" not in (text := self.out.read_text()):
            if self.child.poll() is not None:
                raise SystemExit(f"the cluster did not start: {text}")
            time.sleep(0.2)
        self.text = text
        self.processes = [
            Process(f"podium-{role}", url)
            for role, url in (
                ("gateway", self.found(r"gateway .*\n\s+http://(\S+)/metrics")),
                ("planner", self.found(r"planner +http://(\S+)/readyz")),
                *(("executor", url) for url in re.findall(r"executor +http://(\S+)/readyz", text)),
            )
        ]
        self.database, self.vendor = self.found(r"Postgres +(\S+)"), self.found(r"workers +(http://[^/]+)")

    def found(self, pattern: str) -> str:
        match = re.search(pattern, self.text)
        if match is None:
            raise SystemExit(f"no {pattern} in {self.text}")
        return match.group(1)

    def add(self, job: str, settings: dict[str, str], metrics: str) -> Process:
        """Starts one more process with the settings of the cluster's own process of that job, and these."""
        model = next(pid for pid in children(self.child.pid) if arguments(pid)[0].endswith(f"/{job}"))
        extra = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
        command = [str(self.binaries / job), *arguments(model)[1:], *extra]
        process = Process(job, metrics, None, command)
        self.processes.append(process)
        self.start(process)
        return process

    def start(self, process: Process) -> None:
        with (self.work / f"{process.job}.log").open("ab") as log:
            process.child = subprocess.Popen(process.command, stdout=log, stderr=log)

    def server(self, name: str) -> list[int]:
        """The processes of a server that the cluster started. Redis shows its address in its name."""
        return [pid for pid in children(self.child.pid) if Path(arguments(pid)[0].split(" ")[0]).name == name]

    def stop(self) -> None:
        for process in self.processes:
            if process.child is not None:
                process.child.terminate()
        self.child.terminate()
        self.child.wait(60)


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


def question(dice: random.Random) -> str:
    numbers = dice.sample(range(10, 18), 2)
    return f"What is {numbers[0]} {dice.choice(OPERATIONS)} {numbers[1]}, in words?"


def ask_on(gateways: list[str], key: str, seed: int, stop: threading.Event) -> None:
    """Asks one question after the other until `stop`."""
    dice = random.Random(seed)
    while not stop.is_set():
        model = dice.choice(("podium-ultra", "podium-ultra", "podium-mini"))
        body = {"model": model, "messages": [{"role": "user", "content": question(dice)}], "temperature": 0}
        headers = {"authorization": f"Bearer {key}"} if dice.random() < 0.15 else {}
        with contextlib.suppress(OSError):
            get(f"http://{dice.choice(gateways)}/v1/chat/completions", body, headers)
        stop.wait(dice.uniform(0.1, 0.6))


def behave(vendor: str, faults: list[dict[str, object]]) -> None:
    for model in ("sim-arithmetic", "sim-words", "sim-generalist"):
        delay = {"min": 100, "max": 600}
        get(f"{vendor}/control/behaviour/{model}", {"first_token_ms": delay, "token_ms": 5, "faults": faults}, method="PUT")


@dataclass
class Step:
    """Something that happens at a second of the recording."""

    at: float
    act: object


def freeze(cluster: Cluster, name: str, span: tuple[int, int]) -> list[Step]:
    def send(number: signal.Signals) -> None:
        for pid in cluster.server(name):
            for each in children(pid):
                os.kill(each, number)

    begin, length = span
    return [Step(begin, lambda: send(signal.SIGSTOP)), Step(begin + length, lambda: send(signal.SIGCONT))]


def steps(cluster: Cluster, executor: Process) -> list[Step]:
    def fault(kind: dict[str, object], probability: float) -> None:
        behave(cluster.vendor, [{"fault": kind, "probability": probability}])

    def restart() -> None:
        if executor.child is not None:
            executor.child.kill()
            executor.child.wait()
        cluster.start(executor)

    planned = [
        Step(0, lambda: behave(cluster.vendor, [])),
        Step(VENDOR_FAILS[0], lambda: fault({"kind": "server_error"}, 0.9)),
        Step(sum(VENDOR_FAILS), lambda: behave(cluster.vendor, [])),
        Step(VENDOR_LIMITS[0], lambda: fault({"kind": "rate_limit", "retry_after_s": 2}, 0.4)),
        Step(sum(VENDOR_LIMITS), lambda: behave(cluster.vendor, [])),
        *freeze(cluster, "redis-server", REDIS_FREEZES),
        *freeze(cluster, "nats-server", NATS_FREEZES),
        *freeze(cluster, "postgres", POSTGRES_FREEZES),
        Step(EXECUTOR_RESTARTS, restart),
    ]
    return sorted(planned, key=lambda step: step.at)


@dataclass
class Sample:
    """One line of an exposition, with the time at which it was read."""

    series: str
    value: str
    at: float


def scrape(processes: list[Process], samples: list[Sample], types: dict[str, str]) -> None:
    for process in processes:
        now, up = time.time(), "0"
        labels = f'job="{process.job}",instance="{process.metrics}"'
        with contextlib.suppress(OSError):
            text = get(f"http://{process.metrics}/metrics").decode()
            up = "1"
            for line in text.splitlines():
                if line.startswith("# TYPE "):
                    _, _, name, kind = line.split()
                    types[name] = kind
                elif line and not line.startswith("#"):
                    series, value = line.rsplit(" ", 1)
                    name, _, rest = series.partition("{")
                    inner = f",{rest[:-1]}" if rest else ""
                    samples.append(Sample(f"{name}{{{labels}{inner}}}", value, now))
        types["up"] = "gauge"
        samples.append(Sample(f"up{{{labels}}}", up, now))


def open_metrics(samples: list[Sample], types: dict[str, str]) -> str:
    """The samples as OpenMetrics text: one family after the other, in each the series one after the other."""
    families: dict[str, list[Sample]] = {name: [] for name in types}
    for sample in samples:
        name = sample.series.split("{")[0]
        family = next(n for n in (name, re.sub("_(bucket|sum|count)$", "", name)) if n in types)
        families[family].append(sample)
    lines = []
    for family, found in families.items():
        kind = types[family]
        lines.append(f"# TYPE {family.removesuffix('_total') if kind == 'counter' else family} {kind}")
        found.sort(key=lambda sample: (series_key(sample.series, kind), sample.at))
        lines += [f"{sample.series} {sample.value} {sample.at:.3f}" for sample in found]
    return "\n".join([*lines, "# EOF", ""])


def series_key(series: str, kind: str) -> str:
    return series if kind != "histogram" else re.sub(',?le="[^"]*"', "", series.split("{")[1]) + series


def record(binaries: Path, conductor: str, work: Path, output: Path) -> None:
    work.mkdir(parents=True, exist_ok=True)
    cluster = Cluster(binaries, conductor, work)
    samples: list[Sample] = []
    types: dict[str, str] = {}
    stop = threading.Event()
    try:
        second = {"conductor_next": "worker:sim-generalist"}
        gateway = "127.0.0.1:28080"
        cluster.add(
            "podium-gateway",
            {**second, "conductor_next_share": "0.3", "listen": gateway, "grpc_listen": "127.0.0.1:28081", "metrics_listen": "127.0.0.1:29464"},
            "127.0.0.1:29464",
        )
        cluster.add("podium-planner", {**second, "listen": "127.0.0.1:28082"}, "127.0.0.1:28082")
        executor = cluster.add("podium-executor", {"step_cache": "exact", "listen": "127.0.0.1:28083"}, "127.0.0.1:28083")
        podium = [str(cluster.binaries / "podium")]
        made = subprocess.run([*podium, "key", "create", "--tenant", "acme", "--postgres", cluster.database], capture_output=True, text=True)
        key = re.search(r"pdm_\w+", made.stdout + made.stderr)
        if key is None:
            raise SystemExit(f"no key in {made.stdout}{made.stderr}")
        budget = ["budget", "set", "--tenant", "acme", "--usd", "0.0002", "--period", "day", "--postgres", cluster.database]
        subprocess.run([*podium, *budget], check=True)
        gateways = [cluster.found(r"gateway +http://(\S+)/v1"), gateway]
        time.sleep(5)
        asking = [threading.Thread(target=ask_on, args=(gateways, key.group(0), seed, stop), daemon=True) for seed in range(CLIENTS)]
        for thread in asking:
            thread.start()
        began, waiting, last = time.monotonic(), steps(cluster, executor), -SCRAPE_SECONDS
        while (now := time.monotonic() - began) < ENDS:
            while waiting and waiting[0].at <= now:
                waiting.pop(0).act()
            if now - last >= SCRAPE_SECONDS:
                last = now
                scrape(cluster.processes, samples, types)
            time.sleep(0.2)
    finally:
        stop.set()
        cluster.stop()
        if samples:
            output.write_bytes(lzma.compress(open_metrics(samples, types).encode(), preset=9))
