"""Records how faults of real processes make the alerts fire, and writes promtool's tests over the recordings.

A recording has the metrics that the alerts use, read every three seconds. promtool gets them as if they had been read
every minute: time passes 20 times as fast. So the rules are tested as they are shipped, with their windows and `for`,
although a fault lasts for minutes instead of an hour. Times that the processes measure themselves are not changed.
"""

import lzma
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import promql_parser

from podium_observability.cluster import Clients, Cluster, Sample, Scraper, Step, play
from podium_observability.model import Alert
from podium_observability.promql import selectors

# One reading is a minute of the rules.
SCRAPE_SECONDS = 3
SPEED = 60 // SCRAPE_SECONDS
DAY_MINUTES = 24 * 60


@dataclass(frozen=True)
class Scenario:
    """A cluster, its load and its faults. `prepare` starts all of it and returns the faults."""

    name: str
    what: str
    lasts: int
    prepare: Callable[["Stage"], list[Step]]
    # The alerts that must fire.
    fires: tuple[str, ...]
    # No alert fires up to this second: the faults begin after it.
    quiet: int
    # The clock is advanced at this second, so that a day has passed since the begin. 0: never.
    next_day: int = 0

    def minute(self, second: int) -> int:
        """The minute of the rules' clock at a second of the recording."""
        tick = second // SCRAPE_SECONDS
        gap = DAY_MINUTES - self.next_day // SCRAPE_SECONDS
        return tick + gap if self.next_day and second >= self.next_day else tick


class Stage:
    """The cluster and the clients of a scenario. `stop` ends everything that was started."""

    def __init__(self, binaries: Path, work: Path) -> None:
        self.binaries, self.work = binaries, work
        self.clients = Clients()
        self.cluster: Cluster | None = None
        self.at_end: list[Callable[[], object]] = []

    def start(self, options: list[str], settings: dict[str, str] | None = None) -> Cluster:
        self.cluster = Cluster(self.binaries, self.work, options, settings)
        return self.cluster

    def stop(self) -> None:
        self.clients.stop()
        for act in self.at_end:
            act()
        if self.cluster is not None:
            self.cluster.stop()


def metrics_of(alerts: tuple[Alert, ...]) -> set[str]:
    """The series that the alerts read."""
    return {selector.name for alert in alerts for selector in selectors(promql_parser.parse(alert.expression))}


def record(scenario: Scenario, alerts: tuple[Alert, ...], binaries: Path, work: Path, output: Path) -> None:
    work.mkdir(parents=True, exist_ok=True)
    used, stage, scraper = metrics_of(alerts), Stage(binaries, work), Scraper()
    readings: dict[int, list[Sample]] = {}
    try:
        steps = scenario.prepare(stage)
        cluster = stage.cluster
        assert cluster is not None

        def scrape(tick: int) -> None:
            readings[tick] = [sample for sample in scraper.scrape(cluster.processes) if sample.series.split("{")[0] in used]

        play(steps, scenario.lasts, SCRAPE_SECONDS, scrape)
    finally:
        stage.stop()
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_bytes(lzma.compress(series_text(readings).encode(), preset=9))


def series_text(readings: dict[int, list[Sample]]) -> str:
    """A line for each series: its name and labels, a tab, and its values in promtool's notation, one for each reading."""
    ticks = max(readings) + 1
    values: dict[str, list[str]] = {}
    for tick, samples in readings.items():
        for sample in samples:
            values.setdefault(sample.series, ["_"] * ticks)[tick] = plain(sample.value)
    return "".join(f"{series}\t{notation(with_stale(found))}\n" for series, found in sorted(values.items()))


def plain(value: str) -> str:
    """A number without an exponent."""
    return format(Decimal(value), "f")


def with_stale(values: list[str]) -> list[str]:
    """Marks the first reading without a value as stale, as Prometheus does if a target or its series is gone."""
    return ["stale" if value == "_" and index and values[index - 1] != "_" else value for index, value in enumerate(values)]


def notation(values: list[str]) -> str:
    """The values, with repetitions in short: `5x2` is `5 5 5`."""
    parts: list[str] = []
    for match in re.finditer(r"(\S+)(?: \1(?= |$))*", " ".join(values)):
        count = len(match.group(0).split(" "))
        value = match.group(1)
        if count == 1 or value == "stale":
            parts += [value] * count
        else:
            # The notation counts the repetitions of a value, but all of the missing ones.
            parts.append(f"{value}x{count if value == '_' else count - 1}")
    return " ".join(parts)


def recorded(path: Path) -> dict[str, str]:
    """The series of a recording with their values in promtool's notation."""
    lines = lzma.decompress(path.read_bytes()).decode().splitlines()
    return dict(line.split("\t") for line in lines)


def expanded(values: str) -> list[str]:
    """The reverse of `notation`."""
    found: list[str] = []
    for part in values.split(" "):
        value, _, count = part.partition("x")
        found += [value] * (1 if not count else int(count) + (value != "_"))
    return found


def next_day(values: str, ticks: int) -> str:
    """The values with a pause after `ticks` readings, so that the rest begins a day after the first."""
    found = expanded(values)
    before = [*found[:ticks], "stale" if found[ticks - 1] not in ("_", "stale") else "_"]
    return f"{notation(before)} _x{DAY_MINUTES - ticks - 1} {notation(found[ticks:])}"


def rule_test(scenario: Scenario, series: dict[str, str], rules: Path) -> dict[str, Any]:
    """promtool's test: each alert of the scenario fires, and none before the faults begin."""
    if scenario.next_day:
        series = {name: next_day(values, scenario.next_day // SCRAPE_SECONDS) for name, values in series.items()}
    end = scenario.minute(scenario.lasts)
    fired = [
        {
            "expr": f'group by (alertname) (present_over_time(ALERTS{{alertname="{name}", alertstate="firing"}}[{end}m]))',
            "eval_time": f"{end}m",
            "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1}],
        }
        for name in scenario.fires
    ]
    quiet = {"expr": 'ALERTS{alertstate="firing"}', "eval_time": f"{scenario.minute(scenario.quiet)}m", "exp_samples": []}
    test = {
        "name": scenario.name,
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [quiet, *fired],
    }
    return {"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": [test]}
