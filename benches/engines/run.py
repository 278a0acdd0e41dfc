#!/usr/bin/env python3
"""Runs Podium and other durable engines in turn, on this machine and in the same minutes, and prints medians and ratios.

Each engine carries out workflows of three steps, one after the other, that do nothing: what is left is the engine. In each
round every engine has its turn, and each round begins with another one, so that whatever else the machine does falls on all of
them. Absolute figures are of this machine under this load; what carries over are the ratios.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from servers import Postgres, Restate, ServerError

REPOSITORY = Path(__file__).resolve().parents[2]
PEERS = REPOSITORY / "benches" / "peers"
CACHE = Path.home() / ".cache" / "podium" / "bench"
TURN_S_MAX = 600
BASE = "dbos-rust"


class MissingError(Exception):
    """An engine that cannot be run here, and why."""


@dataclass
class Engine:
    """One that takes part."""

    name: str
    guarantees: str
    # Runs in a turn, by runs in flight: some seconds of work.
    runs: dict[int, int]
    # Installs what is missing and starts its servers; gives the command of a turn, without its numbers.
    prepare: Callable[["Stage"], Callable[[], list[str | Path]]]


class Stage:
    """The servers and files that the engines use."""

    def __init__(self, folder: Path, podium: Path) -> None:
        self.folder = folder
        self.podium = podium
        self.servers = []
        self._postgres = None

    @property
    def postgres(self) -> Postgres:
        if self._postgres is None:
            self._postgres = Postgres(self.folder)
            self.servers.append(self._postgres.server)
        return self._postgres

    def stop(self) -> None:
        for server in reversed(self.servers):
            server.stop()


def call(command: list[str | Path], **how: object) -> None:
    subprocess.run(command, check=True, stdout=sys.stderr, **how)


def needed(program: str) -> str:
    found = shutil.which(program)
    if not found:
        raise MissingError(f"`{program}` is not installed")
    return found


def podium(stage: Stage) -> Callable[[], list[str | Path]]:
    if not stage.podium.exists():
        raise MissingError(f"{stage.podium} is not built (cargo build --release -p podium-bench-engine)")
    return lambda: [stage.podium]


def python(stage: Stage, driver: str, database: str) -> Callable[[], list[str | Path]]:
    venv = CACHE / "python"
    environment = os.environ | {"UV_PROJECT_ENVIRONMENT": str(venv), "UV_PYTHON_DOWNLOADS": "never"}
    call([needed("uv"), "sync", "--quiet", "--frozen", "--project", PEERS / "python"], env=environment)
    server = f"postgres={stage.postgres.server.pid}"
    program = [venv / "bin" / "python", PEERS / "python" / driver]
    return lambda: [*program, "--database", stage.postgres.database(database), "--server", server]


def dbos_rust(stage: Stage) -> Callable[[], list[str | Path]]:
    manifest, target = PEERS / "dbos-rust" / "Cargo.toml", CACHE / "target"
    build = [needed("cargo"), "build", "--quiet", "--locked", "--release", "--manifest-path", manifest, "--target-dir", target]
    call(build)
    server = f"postgres={stage.postgres.server.pid}"
    program = target / "release" / "podium-bench-dbos-rust"
    return lambda: [program, "--database", stage.postgres.database("dbos_rust"), "--server", server]


def restate(stage: Stage) -> Callable[[], list[str | Path]]:
    node, installed = needed("node"), CACHE / "restate"
    installed.mkdir(parents=True, exist_ok=True)
    for file in (PEERS / "restate").iterdir():
        shutil.copy(file, installed)
    # Without the scripts of packages: one of them calls home.
    call([needed("npm"), "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], cwd=installed)
    servers = Restate(stage.folder, installed)
    stage.servers += [servers.service, servers.server]
    counted = ["--server", f"restate={servers.server.pid}", "--server", f"service={servers.service.pid}"]
    return lambda: [node, installed / "driver.mjs", "--ingress", servers.ingress, *counted]


FAST = {1: 200, 16: 1600, 64: 3200}
SLOW = {1: 40, 16: 240, 64: 320}
ENGINES = [
    Engine(
        "podium",
        "Each claim, result and answer is committed to Postgres before it is acted on. Steps run in other processes than the "
        "client's, woken through NATS; work of a dead process is taken over when its lease ends. First paid result wins.",
        FAST,
        podium,
    ),
    Engine(
        "dbos-rust",
        "Start, each step's result and the end are committed to Postgres. Steps run in the client's process, without a queue; "
        "after a crash, a process of the same name and version goes on. A step may run again, its outcome counts once.",
        FAST,
        dbos_rust,
    ),
    Engine(
        "dbos-python",
        "As DBOS Rust.",
        SLOW,
        lambda stage: python(stage, "dbos_driver.py", "dbos_python"),
    ),
    Engine(
        "langgraph",
        'A checkpoint of the graph\'s state is committed to Postgres before the next node (durability "sync"). Nodes run in the '
        "client's process, without a queue; somebody has to call the graph again after a crash.",
        SLOW,
        lambda stage: python(stage, "langgraph_driver.py", "langgraph"),
    ),
    Engine(
        "restate",
        "Each step's result is in the server's own log, synced, before the next step. Steps run in a service that the server "
        "calls over HTTP/2; the call is repeated and replayed from the log if the service dies. Single node, four partitions.",
        FAST,
        restate,
    ),
]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [engine.name for engine in ENGINES]
    parser.add_argument("--engines", default=",".join(names), help="which of them, with commas")
    parser.add_argument("--in-flight", default="1,16,64", help="runs at the same time, with commas: of 1, 16 and 64")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the usual number of runs in a turn")
    target = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target"))
    parser.add_argument("--podium", type=Path, default=target / "release" / "podium-bench-engine", help="Podium's driver")
    parser.add_argument("--out", type=Path, help="append each turn's line of JSON to this file")
    options = parser.parse_args()
    options.engines = options.engines.split(",")
    options.in_flight = [int(number) for number in options.in_flight.split(",")]
    if unknown := set(options.engines) - set(names):
        parser.error(f"there is no engine {', '.join(unknown)}; there are {', '.join(names)}")
    if unknown := set(options.in_flight) - set(FAST):
        parser.error(f"there is no number of runs for {unknown} in flight; there is for {', '.join(map(str, FAST))}")
    return options


def turn(command: list[str | Path], runs: int, in_flight: int) -> dict:
    """One engine's turn; what it printed."""
    load = os.getloadavg()[0]
    full = [*command, "--runs", str(runs), "--in-flight", str(in_flight)]
    done = subprocess.run(full, capture_output=True, text=True, timeout=TURN_S_MAX)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not lines:
        raise MissingError(f"it failed with code {done.returncode}: {(done.stderr or done.stdout)[-600:]}")
    return json.loads(lines[-1]) | {"load_before": round(load, 2)}


def prepare(names: list[str], stage: Stage) -> dict[str, tuple[Engine, Callable[[], list[str | Path]]]]:
    ready = {}
    for engine in ENGINES:
        if engine.name not in names:
            continue
        try:
            ready[engine.name] = (engine, engine.prepare(stage))
        except (MissingError, ServerError, OSError, subprocess.CalledProcessError) as error:
            print(f"{engine.name} is left out: {error}", file=sys.stderr)
    return ready


def rounds(options: argparse.Namespace, ready: dict, in_flight: int) -> dict[str, list[dict]]:
    results = {name: [] for name in ready}
    for round_number in range(options.rounds):
        names = list(ready)
        for at in range(len(names)):
            name = names[(at + round_number) % len(names)]
            if name not in ready:
                continue
            engine, command = ready[name]
            runs = max(in_flight, round(engine.runs[in_flight] * options.scale))
            try:
                result = turn(command(), runs, in_flight)
            except (MissingError, subprocess.SubprocessError) as error:
                print(f"{name} is left out from now on: {error}", file=sys.stderr)
                del ready[name]
                continue
            results[name].append(result)
            if options.out:
                with options.out.open("a") as out:
                    out.write(json.dumps({"round": round_number, "name": name} | result) + "\n")
    return {name: turns for name, turns in results.items() if turns}


def ratio(turns: list[dict], base: list[dict]) -> float | None:
    """How many times as many runs a second as the base: the median over the rounds."""
    pairs = [own["per_s"] / other["per_s"] for own, other in zip(turns, base, strict=False)]
    return median(pairs) if pairs else None


def report(in_flight: int, results: dict[str, list[dict]]) -> None:
    print(f"\n{in_flight} in flight")
    base = BASE if BASE in results else next(iter(results), None)
    head = ["engine", "turns", "runs/s", f"x {base}", "p50 ms", "p99 ms", "CPU ms/run", "of which"]
    rows = [head]
    for name, turns in results.items():
        middle = {key: median(result[key] for result in turns) for key in ("per_s", "p50_ms", "p99_ms")}
        processes = {name for result in turns for name in result["cpu_ms_per_run"]}
        cpu = {process: median(result["cpu_ms_per_run"].get(process, 0) for result in turns) for process in processes}
        total = median(sum(result["cpu_ms_per_run"].values()) for result in turns)
        share = ", ".join(f"{process} {ms:.2f}" for process, ms in sorted(cpu.items(), key=lambda item: -item[1]))
        times = ratio(turns, results[base])
        row = [name, len(turns), f"{middle['per_s']:.0f}", f"{times:.2f}", f"{middle['p50_ms']:.1f}", f"{middle['p99_ms']:.1f}"]
        rows.append([*map(str, row), f"{total:.2f}", share])
    widths = [max(len(row[column]) for row in rows) for column in range(len(head) - 1)]
    for row in rows:
        cells = [cell.ljust(width) if at == 0 else cell.rjust(width) for at, (cell, width) in enumerate(zip(row, widths, strict=False))]
        print("  ".join([*cells, row[-1]]))
    loads = [result["load_before"] for turns in results.values() for result in turns]
    if loads:
        print(f"machine load before a turn: {min(loads)} to {max(loads)}, on {os.cpu_count()} CPUs")


def main() -> int:
    options = arguments()
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="podium-bench-") as name:
        folder = Path(name)
        # Postgres runs as somebody else, who has to get through to its own folder.
        folder.chmod(0o711)
        stage = Stage(folder, options.podium)
        try:
            ready = prepare(options.engines, stage)
            versions = set()
            for in_flight in options.in_flight:
                results = rounds(options, ready, in_flight)
                report(in_flight, results)
                versions |= {result["engine"] for turns in results.values() for result in turns}
            print(f"\n{stage.postgres.version()}; " + "; ".join(sorted(versions)))
            for engine in ENGINES:
                if engine.name in ready:
                    print(f"{engine.name}: {engine.guarantees}")
        finally:
            stage.stop()
    return 0 if ready else 1


if __name__ == "__main__":
    sys.exit(main())
