"""Prometheus accepts the rules, each alert has tests that promtool passes, and each has a runbook."""

import re
import subprocess

import pytest
from prometheus import HERE, program

from podium_observability import alerts
from podium_observability.__main__ import RUNBOOKS
from podium_observability.metrics import ROOT, read
from podium_observability.model import Alert
from podium_observability.promql import problems

METRICS = read()
EACH = pytest.mark.parametrize("alert", alerts.ALL, ids=lambda alert: alert.name)
SECTIONS = ["What it means", "What users see", "How to look", "What to do", "Afterwards"]


def promtool(*arguments: str) -> str:
    ran = subprocess.run([program("promtool"), *arguments], cwd=HERE, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_prometheus_accepts_the_rules() -> None:
    assert f"{len(alerts.ALL)} rules found" in promtool("check", "rules", "alerts.yaml")


def test_each_alert_fires_when_it_should_and_only_then() -> None:
    promtool("test", "rules", "alerts_test.yaml")


@EACH
def test_an_alert_has_a_case_that_fires_and_one_that_does_not(alert: Alert) -> None:
    assert {bool(case.fires) for case in alert.cases} == {True, False}


@EACH
def test_an_alert_has_a_runbook_with_all_sections(alert: Alert) -> None:
    text = (RUNBOOKS / f"{alert.name}.md").read_text()
    assert text.startswith(f"# {alert.name}\n")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == SECTIONS


def test_no_runbook_is_left_over() -> None:
    assert {path.stem for path in RUNBOOKS.glob("*.md")} == {"README", *(alert.name for alert in alerts.ALL)}


def texts_of_runbooks() -> str:
    return "\n".join(path.read_text() for path in sorted(RUNBOOKS.glob("Podium*.md")))


def documented_commands() -> set[str]:
    """`podium key create` and so on, out of the table of commands."""
    found = set()
    for command in re.findall(r"`podium ([^`]*)`", (ROOT / "docs" / "guide" / "command-line.md").read_text()):
        words = command.split(" ")
        verbs = words[1].split("\\|") if len(words) > 1 else [""]
        found |= {f"podium {words[0]} {verb}".strip() for verb in verbs}
    # The table writes the commands for bundles with commas.
    return found | {"podium bundle verify"}


def test_commands_in_runbooks_are_documented() -> None:
    used = set(re.findall(r"\bpodium (?:runs|key|budget|pool|bundle) \w+", texts_of_runbooks()))
    assert len(used) > 5
    assert used - documented_commands() == set()


# Names of Postgres, of its tables and of the environment.
OTHER_NAMES = {"PODIUM_API_KEY", "max_connections", "pg_stat_activity", "pg_terminate_backend", "run_events"}


def test_settings_in_runbooks_exist() -> None:
    known = set(OTHER_NAMES).union(*(metric.values for metric in METRICS.values()))
    for path in (*(ROOT / "deploy" / "settings").glob("*.toml"), ROOT / "pools" / "demo.toml"):
        known |= set(re.findall(r"(?:^(?:# )?|[{,] )(\w+) = ", path.read_text(), re.MULTILINE))
    names = set(re.findall(r"`(\w+_\w+)(?: = [^`]*)?`", texts_of_runbooks()))
    used = {name for name in names if name not in METRICS}
    assert len(used) > 10
    assert used - known == set()


def test_queries_in_runbooks_use_documented_metrics() -> None:
    queries = re.findall(r"```promql\n(.*?)\n```", texts_of_runbooks(), re.DOTALL)
    assert len(queries) > len(alerts.ALL)
    assert [problem for query in queries for problem in problems(query, METRICS)] == []
