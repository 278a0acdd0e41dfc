"""Records the metrics of a real cluster under load and faults, for the panels of the dashboards.

It starts `podium-local-cluster` and one more gateway, planner and executor with a second conductor, a step cache and a
budget. It asks questions for some minutes, makes the vendor fail, and freezes Redis, NATS and Postgres in turn.
Every 15 seconds it reads `/metrics` of each process. The result is one file in OpenMetrics' text format, with times,
which `promtool tsdb create-blocks-from openmetrics` reads.
"""

import lzma
import random
import re
import signal
import time
from pathlib import Path

from podium_observability.cluster import Clients, Cluster, Process, Sample, Scraper, Step, get, play

SCRAPE_SECONDS = 15
CLIENTS = 6
OPERATIONS = ("plus", "minus", "times")
# Few questions: some repeat, and the step cache answers them.
NUMBERS = range(10, 14)
# Seconds from the start at which each fault begins, and how long it lasts.
VENDOR_FAILS = (60, 60)
VENDOR_LIMITS = (130, 20)
REDIS_FREEZES = (160, 30)
NATS_FREEZES = (200, 25)
POSTGRES_FREEZES = (240, 30)
EXECUTOR_RESTARTS = 280
ENDS = 340
# Some runs have a deadline that their plan and steps may exceed.
SHORT_DEADLINE_MS = 1_500


def question(dice: random.Random) -> str:
    numbers = dice.sample(NUMBERS, 2)
    return f"What is {numbers[0]} {dice.choice(OPERATIONS)} {numbers[1]}, in words?"


def body(dice: random.Random) -> dict[str, object]:
    asked: dict[str, object] = {
        "model": dice.choice(("podium-ultra", "podium-ultra", "podium-mini")),
        "messages": [{"role": "user", "content": question(dice)}],
        "temperature": 0,
    }
    if dice.random() < 0.1:
        asked["podium"] = {"deadline_ms": SHORT_DEADLINE_MS}
    return asked


def behave(vendor: str, faults: list[dict[str, object]]) -> None:
    for model in ("sim-arithmetic", "sim-words", "sim-generalist"):
        delay = {"min": 100, "max": 600}
        get(f"{vendor}/control/behaviour/{model}", {"first_token_ms": delay, "token_ms": 5, "faults": faults}, method="PUT")


def freeze(cluster: Cluster, name: str, span: tuple[int, int]) -> list[Step]:
    def send(number: signal.Signals) -> None:
        cluster.signal(cluster.server(name), number)

    begin, length = span
    return [Step(begin, lambda: send(signal.SIGSTOP)), Step(begin + length, lambda: send(signal.SIGCONT))]


def steps(cluster: Cluster, executor: Process) -> list[Step]:
    def fault(kind: dict[str, object], probability: float) -> None:
        behave(cluster.vendor, [{"fault": kind, "probability": probability}])

    def restart() -> None:
        cluster.kill(executor)
        cluster.start(executor)

    return [
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
    options = ["--gateways", "1", "--planners", "1", "--executors", "2", "--conductor", conductor]
    cluster, clients, scraper = Cluster(binaries, work, options), Clients(), Scraper()
    samples: list[Sample] = []
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
        key = cluster.key("acme")
        cluster.podium("budget", "set", "--tenant", "acme", "--usd", "0.0002", "--period", "day")
        time.sleep(5)
        for seed in range(CLIENTS):
            dice = random.Random(seed)
            # One client of six has the key of a tenant with a small budget.
            clients.ask(1, (cluster.gateway, gateway)[seed % 2], lambda dice=dice: body(dice), key if seed == 0 else "", pause=0.3)
        # The command line uses gRPC.
        clients.repeat(lambda: cluster.podium_at(cluster.grpc, "runs", "list"), pause=5)
        play(steps(cluster, executor), ENDS, SCRAPE_SECONDS, lambda _: samples.extend(scraper.scrape(cluster.processes)))
    finally:
        clients.stop()
        cluster.stop()
        if samples:
            output.write_bytes(lzma.compress(open_metrics(samples, scraper.types).encode(), preset=9))
