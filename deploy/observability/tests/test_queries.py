"""Every query uses metrics, labels and values that docs/metrics.md lists."""

import pytest

from podium_observability import alerts, dashboards
from podium_observability.metrics import read
from podium_observability.promql import problems, without_variables

METRICS = read()
QUERIES = [
    (f"{board.uid}: {panel.title}", query.expression)
    for board in dashboards.ALL
    for row in board.rows
    for panel in row.panels
    for query in panel.queries
] + [(alert.name, alert.expression) for alert in alerts.ALL]
VARIABLES = [variable for board in dashboards.ALL for variable in board.variables]


@pytest.mark.parametrize(("where", "expression"), QUERIES)
def test_a_query_uses_documented_metrics(where: str, expression: str) -> None:
    assert problems(expression, METRICS) == []


@pytest.mark.parametrize("variable", VARIABLES, ids=lambda variable: variable.name)
def test_a_variable_is_a_label_of_its_metric(variable) -> None:
    assert variable.label in METRICS[variable.metric].labels


def test_alerts_use_no_variables_of_grafana() -> None:
    assert all(alert.expression == without_variables(alert.expression) for alert in alerts.ALL)


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("rate(podium_run_accepted[5m])", "no metric podium_run_accepted"),
        ('podium_lane_contended{podium_lan="x"}', "podium_lane_contended has no label podium_lan"),
        ('rate(podium_run_duration_seconds_count{podium_outcome=~"succeeded|broke"}[5m])', "has no podium_outcome broke"),
        ('rate(podium_run_duration_seconds_count{podium_outcome!="broke"}[5m])', "has no podium_outcome broke"),
        ("sum by (podium_lane) (rate(podium_cost_total[5m]))", "no metric here has the label podium_lane"),
        ("podium_cost_total", "podium_cost_total only grows"),
        ("max_over_time(podium_cost_total[5m])", "podium_cost_total only grows"),
        ("rate(podium_lane_contended[5m])", "podium_lane_contended is a gauge"),
        ("rate(podium_conductor_remote_plans[5m])", "podium_conductor_remote_plans is a gauge"),
        ("histogram_quantile(0.9, rate(podium_plan_duration_seconds_sum[5m]))", "is no bucket"),
        ("sum(rate(podium_cost_total[5m])", ""),
    ],
)
def test_a_wrong_query_is_found(expression: str, problem: str) -> None:
    found = problems(expression, METRICS)
    assert found and problem in found[0]


def test_words_of_another_metric_count_where_the_page_refers_to_them() -> None:
    assert problems('rate(podium_conductor_remote_permits_total{podium_outcome="broken"}[5m])', METRICS) == []
