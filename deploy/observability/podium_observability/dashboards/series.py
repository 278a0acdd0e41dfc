"""Metrics, labels and choices that several dashboards use."""

from podium_observability.expressions import quantile
from podium_observability.model import Query, Variable

FAILED = 'podium_outcome=~"planning_failed|step_failed|final_step_failed|deadline_exceeded"'
TIER = 'podium_tier=~"$tier"'
WORKER = 'podium_worker=~"$worker"'
CALLS = "gen_ai_client_operation_duration_seconds"
FIRST_TEXT = "gen_ai_client_operation_time_to_first_chunk_seconds"
RUNS = "podium_run_duration_seconds"
SPENT = "podium_cost_total"
PLANNED = "podium_plan_cost_total"
TIERS = Variable("tier", "Tier", "podium_run_accepted_total", "podium_tier")
WORKERS = Variable("worker", "Worker", "podium_permit_asked_total", "podium_worker")


def quantiles(histogram: str, where: str = "") -> tuple[Query, ...]:
    return tuple(Query(quantile(q, histogram, "", where), f"p{round(q * 100)}") for q in (0.5, 0.95, 0.99))
