"""The parts of dashboards and alerts, before they are written in the formats of Grafana and Prometheus."""

from dataclasses import dataclass, field
from enum import StrEnum


class Unit(StrEnum):
    """Units, by Grafana's names."""

    COUNT = "short"
    PER_SECOND = "ops"
    SECONDS = "s"
    MILLISECONDS = "ms"
    SHARE = "percentunit"
    DOLLARS = "currencyUSD"
    BYTES = "bytes"


class View(StrEnum):
    """Ways to show queries, by Grafana's names of panels."""

    LINES = "timeseries"
    NUMBER = "stat"
    TABLE = "table"
    HEATMAP = "heatmap"


@dataclass(frozen=True)
class Query:
    """An expression, and the text of its legend with labels as `{{label}}`."""

    expression: str
    legend: str = ""


@dataclass(frozen=True)
class Panel:
    """One panel of a dashboard. `width` counts columns, of which a row has 24."""

    title: str
    what: str
    queries: tuple[Query, ...]
    unit: Unit = Unit.COUNT
    view: View = View.LINES
    width: int = 8
    stacked: bool = False
    # A number turns red beyond this; below it, if `red_below`.
    red_from: float | None = None
    red_below: float | None = None


@dataclass(frozen=True)
class Row:
    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Variable:
    """A choice at the top of a dashboard: the values of a label of a metric."""

    name: str
    title: str
    metric: str
    label: str


@dataclass(frozen=True)
class Dashboard:
    uid: str
    title: str
    what: str
    rows: tuple[Row, ...]
    variables: tuple[Variable, ...] = ()


class Severity(StrEnum):
    """`critical` wakes somebody up; `warning` is work for the next working day."""

    CRITICAL = "critical"
    WARNING = "warning"


@dataclass(frozen=True)
class Case:
    """A unit test of an alert: series with their values, one a minute, in promtool's notation, and what fires at a time."""

    when: str
    series: dict[str, str]
    at: str
    # The labels of each alert that fires, without its name and severity. None: it must not fire.
    fires: tuple[dict[str, str], ...] = ()


@dataclass(frozen=True)
class Alert:
    """An alert with a page in `docs/runbooks`. `summary` and `description` may use Prometheus' templates; `meaning` may not."""

    name: str
    severity: Severity
    expression: str
    lasts: str
    summary: str
    description: str
    meaning: str
    cases: tuple[Case, ...] = field(default=())
