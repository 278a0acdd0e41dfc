"""A real Prometheus, with the metrics of a real cluster under load and faults, has data for each panel.

`podium_observability record` made the recording: it froze Redis, NATS and Postgres, made the vendor fail, and killed an
executor.
"""

import lzma
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from prometheus import HERE, Prometheus

from podium_observability import alerts, dashboards
from podium_observability.metrics import TARGET_LABELS, read
from podium_observability.model import Panel
from podium_observability.promql import without_variables

PANELS = [(board.uid, panel) for board in dashboards.ALL for row in board.rows for panel in row.panels]
STEP_SECONDS = 15


@dataclass
class Recording:
    server: Prometheus
    start: float
    end: float

    def has_data(self, expression: str) -> bool:
        found = self.server.range(without_variables(expression), self.start, self.end, STEP_SECONDS)
        return any(value != "NaN" for series in found for _, value in series["values"])


def recorded() -> str:
    return lzma.decompress((HERE / "tests" / "recorded.txt.xz").read_bytes()).decode()


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recording]:
    text = recorded()
    times = [float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith("up{")]
    work: Path = tmp_path_factory.mktemp("prometheus")
    server = Prometheus(work, text)
    yield Recording(server, min(times), max(times))
    server.stop()


@pytest.mark.parametrize(("board", "panel"), PANELS, ids=[f"{board}: {panel.title}" for board, panel in PANELS])
def test_every_query_of_a_panel_has_data(board: str, panel: Panel, recording: Recording) -> None:
    assert [query.expression for query in panel.queries if not recording.has_data(query.expression)] == []


@pytest.mark.parametrize("alert", alerts.ALL, ids=lambda alert: alert.name)
def test_prometheus_evaluates_every_alert(alert, recording: Recording) -> None:
    recording.server.range(alert.expression, recording.start, recording.end, STEP_SECONDS)


@pytest.mark.parametrize("name", ["PodiumNoSweep", "PodiumLaneNotServed", "PodiumClockSkew", "PodiumUsageMisreported"])
def test_an_alert_without_a_fault_in_the_recording_is_quiet(name: str, recording: Recording) -> None:
    alert = next(alert for alert in alerts.ALL if alert.name == name)
    middle = (recording.start + recording.end) / 2
    found = recording.server.range(alert.expression, middle, recording.end, STEP_SECONDS)
    assert found == []


def test_recorded_series_have_only_documented_labels() -> None:
    metrics = read()
    for name, labels in set(re.findall(r"^(\w+)\{(.*)\} \S+ \S+$", recorded(), re.MULTILINE)):
        if name == "target_info":
            continue
        metric = metrics[name]
        used = set(re.findall(r"(\w+)=\"", labels)) - TARGET_LABELS - {"le"}
        assert used <= metric.labels, (name, used - metric.labels)
