"""Dashboards and alert rules: the chart's copies, and the objects that carry them."""

import json
import shutil
from pathlib import Path

import pytest

from chart import CHART, ROOT, render, values_of

SOURCE = ROOT / "deploy" / "observability"
ALERT = """groups:
- name: podium
  rules:
  - alert: Down
    expr: up == 0
    annotations: {summary: "{{ $labels.pod }} is down"}
"""


def copies(folder: Path) -> dict[str, str]:
    files = [folder / "alerts.yaml", *folder.glob("dashboards/*.json")]
    return {str(file.relative_to(folder)): file.read_text() for file in files if file.is_file()}


def test_the_chart_has_the_dashboards_and_alerts_of_the_project():
    assert copies(CHART / "files") == copies(SOURCE), "run k8s/sync-files"


@pytest.fixture
def with_files(tmp_path) -> Path:
    """The chart with one dashboard and one alert."""
    chart = tmp_path / "podium"
    shutil.copytree(CHART, chart, ignore=shutil.ignore_patterns("files"))
    (chart / "files" / "dashboards").mkdir(parents=True)
    (chart / "files" / "dashboards" / "overview.json").write_text(json.dumps({"title": "{{ overview }}"}))
    (chart / "files" / "alerts.yaml").write_text(ALERT)
    return chart


def test_files_are_carried_as_they_are(with_files):
    found = render(values_of("minimal", alerts={"enabled": True}, dashboards={"enabled": True}), with_files)
    dashboard = found.get("ConfigMap", "r-podium-dashboard-overview")
    assert json.loads(dashboard["data"]["overview.json"]) == {"title": "{{ overview }}"}
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"
    rules = found.get("PrometheusRule", "r-podium")["spec"]["groups"][0]["rules"]
    assert rules[0]["annotations"]["summary"] == "{{ $labels.pod }} is down"


@pytest.mark.parametrize("name", ["alerts", "dashboards"])
def test_a_chart_without_the_files_says_so(name, tmp_path):
    chart = tmp_path / "podium"
    shutil.copytree(CHART, chart, ignore=shutil.ignore_patterns("files"))
    with pytest.raises(Exception, match=f"{name}.enabled is true, but this chart was packaged without"):
        render(values_of("minimal", **{name: {"enabled": True}}), chart)
