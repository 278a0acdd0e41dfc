"""The parts that the Python drivers share: their arguments, CPU time of processes, and the one line that they print."""

import argparse
import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
WARM_UP_RUNS = 3


def arguments(what: str) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--runs", type=int, required=True)
    parser.add_argument("--in-flight", type=int, required=True)
    parser.add_argument("--database", required=True, help="postgresql:// address of a database of its own")
    parser.add_argument("--server", action="append", default=[], metavar="NAME=PID", help="a server whose CPU time counts, too")
    return parser.parse_args()


def cpu_s(root: int) -> float:
    """CPU seconds of a process and all below it, those that have ended and were waited for included."""
    processes = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as stat:
                # The name, in parentheses, may hold anything.
                fields = stat.read().rpartition(")")[2].split()
        except OSError:
            continue
        processes[int(name)] = (int(fields[1]), sum(map(int, fields[11:15])))
    ticks, todo = 0, [root]
    while todo:
        process = todo.pop()
        if process in processes:
            ticks += processes[process][1]
            todo.extend(child for child, (parent, _) in processes.items() if parent == process)
    return ticks / TICKS_PER_S


def percentile(times: list[float], share: float) -> float:
    """The time that this share of all does not exceed."""
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


async def measure(engine: str, options: argparse.Namespace, run: Callable[[int], Awaitable[int]]) -> None:
    """Carries out `run(number)`, which must give `number + 3`, so many times and so many at once; prints the result."""
    for number in range(WARM_UP_RUNS):
        await run(number)
    pids = {"client": os.getpid()} | {name: int(pid) for name, pid in (server.split("=") for server in options.server)}
    numbers, times = iter(range(options.runs)), []

    async def work() -> None:
        for number in numbers:
            begun = time.perf_counter()
            result = await run(number)
            if result != number + 3:
                raise RuntimeError(f"run {number} gave {result}")
            times.append(time.perf_counter() - begun)

    cpu_before = {name: cpu_s(pid) for name, pid in pids.items()}
    begun = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(options.in_flight)))
    wall_s = time.perf_counter() - begun
    cpu_ms = {name: (cpu_s(pid) - cpu_before[name]) * 1000 / options.runs for name, pid in pids.items()}
    result = {
        "engine": engine,
        "runs": options.runs,
        "in_flight": options.in_flight,
        "wall_s": round(wall_s, 3),
        "per_s": round(options.runs / wall_s, 1),
        "p50_ms": round(percentile(times, 0.5) * 1000, 2),
        "p99_ms": round(percentile(times, 0.99) * 1000, 2),
        "cpu_ms_per_run": {name: round(ms, 3) for name, ms in cpu_ms.items()},
    }
    print(json.dumps(result), flush=True)
