"""Faults of real processes make each alert fire: promtool reads the rules as they are shipped, over recordings of these faults.

`podium_observability provoke` made the recordings. `podium_observability/provoke.py` says how time is shortened.
"""

import subprocess
from pathlib import Path

import pytest
import yaml
from prometheus import HERE, program

from podium_observability import alerts, scenarios
from podium_observability.__main__ import PROVOKED, recording_of
from podium_observability.provoke import Scenario, expanded, metrics_of, next_day, notation, recorded, rule_test

EACH = pytest.mark.parametrize("scenario", scenarios.ALL, ids=lambda scenario: scenario.name)


@EACH
def test_the_faults_make_the_alerts_fire(scenario: Scenario, tmp_path: Path) -> None:
    test = rule_test(scenario, recorded(recording_of(scenario.name)), HERE / "alerts.yaml")
    path = tmp_path / f"{scenario.name}.yaml"
    path.write_text(yaml.safe_dump(test, width=100_000))
    ran = subprocess.run([program("promtool"), "test", "rules", str(path)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_each_alert_is_provoked_or_has_a_reason() -> None:
    provoked = {name for scenario in scenarios.ALL for name in scenario.fires}
    assert provoked | scenarios.NOT_PROVOKED.keys() == {alert.name for alert in alerts.ALL}
    assert not provoked & scenarios.NOT_PROVOKED.keys()


def test_no_recording_is_left_over() -> None:
    assert set(PROVOKED.glob("*")) == {recording_of(scenario.name) for scenario in scenarios.ALL}


@EACH
def test_a_recording_has_only_metrics_of_alerts(scenario: Scenario) -> None:
    assert {series.split("{")[0] for series in recorded(recording_of(scenario.name))} <= metrics_of(alerts.ALL)


@pytest.mark.parametrize(
    ("values", "short"),
    [
        (["1", "1", "1"], "1x2"),
        (["_", "_", "5", "stale", "_"], "_x2 5 stale _"),
        (["1", "11", "11", "1"], "1 11x1 1"),
        (["0.5", "0.5", "_"], "0.5x1 _"),
    ],
)
def test_repeated_values_are_shortened_and_expanded(values: list[str], short: str) -> None:
    assert notation(values) == short
    assert expanded(short) == values


def test_the_second_part_of_a_recording_begins_a_day_later() -> None:
    values = expanded(next_day("1x19 2x4", 20))
    assert values[19:22] == ["1", "stale", "_"]
    assert values[1440:] == ["2"] * 5


@EACH
def test_the_page_lists_the_faults_and_their_alerts(scenario: Scenario) -> None:
    row = f"| `{scenario.name}` | {scenario.what} | {', '.join(f'`{name}`' for name in scenario.fires)} |"
    assert row in (HERE / "README.md").read_text().splitlines()
