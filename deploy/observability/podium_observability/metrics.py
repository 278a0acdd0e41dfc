"""The metrics that `docs/metrics.md` lists, by the names that Prometheus shows."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "metrics.md"

# Labels that Prometheus itself adds to every series.
TARGET_LABELS = frozenset({"job", "instance"})
# Labels whose values are names of the pool, of models or of addresses. The page lists no values of them.
OPEN_LABELS = frozenset(
    {
        "gen_ai_operation_name",
        "gen_ai_provider_name",
        "gen_ai_request_model",
        "http_request_method",
        "http_response_status_code",
        "http_route",
        "podium_conductor",
        "podium_lane",
        "podium_tenant",
        "podium_tier",
        "podium_worker",
        "rpc_method",
        "rpc_response_status_code",
        "server_address",
    }
)
SUFFIX_OF_UNIT = {"s": "_seconds", "ms": "_milliseconds"}
RESOURCE_LABELS = ("service_instance_id", "service_name", "service_version")


@dataclass(frozen=True)
class Metric:
    """A family of series. `values` are the words that the page lists for the labels that are not open."""

    name: str
    kind: str
    labels: frozenset[str]
    values: frozenset[str]

    def series(self) -> list[str]:
        """The names of its series."""
        if self.kind == "histogram":
            return [f"{self.name}_{part}" for part in ("bucket", "sum", "count")]
        return [self.name]


def cells_of(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def words_of(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def read(page: Path = PAGE) -> dict[str, Metric]:
    """Each series that Prometheus can see, by name."""
    rows = [cells_of(line) for line in page.read_text().splitlines() if line.startswith("| `")]
    documented = {words_of(row[0])[0]: row for row in rows if len(row) == 5}
    found = [metric_of(name, row, documented) for name, row in documented.items()]
    found.append(Metric("up", "gauge", frozenset(), frozenset()))
    found.append(Metric("target_info", "gauge", frozenset(RESOURCE_LABELS), frozenset()))
    return {series: metric for metric in found for series in metric.series()}


def metric_of(name: str, row: list[str], documented: dict[str, list[str]]) -> Metric:
    _, kind, unit, attributes, what = row
    words = set(words_of(what))
    for other in words & documented.keys():
        words |= set(words_of(documented[other][4]))
    # An up-down counter is a gauge to Prometheus.
    kind = "gauge" if "the value can fall" in what else kind
    prometheus = name.replace(".", "_") + SUFFIX_OF_UNIT.get(words_of(unit)[0], "")
    prometheus += "_total" if kind == "counter" else ""
    labels = frozenset(word.replace(".", "_") for word in words_of(attributes))
    return Metric(prometheus, kind, labels, frozenset(words))
