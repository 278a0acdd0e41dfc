"""The stages of a run between its acceptance and its end."""

from podium_observability.dashboards.series import RUNS, TIER, TIERS, quantiles
from podium_observability.expressions import mean, rate
from podium_observability.model import Dashboard, Panel, Query, Row, Unit, View

RUN_ANATOMY = Dashboard(
    "podium-runs",
    "Podium: anatomy of runs",
    "The stages of a run between its acceptance and its end: planning, steps, commits.",
    (
        Row(
            "Runs",
            (
                Panel(
                    "Accepted, by tier",
                    "Runs a second.",
                    (Query(rate("podium_run_accepted_total", "podium_tier", TIER), "{{podium_tier}}"),),
                    Unit.PER_SECOND,
                ),
                Panel(
                    "Ended, by outcome",
                    "Runs a second.",
                    (Query(rate(f"{RUNS}_count", "podium_outcome", TIER), "{{podium_outcome}}"),),
                    Unit.PER_SECOND,
                    stacked=True,
                ),
                Panel("Duration", "From a run's acceptance to its end.", quantiles(RUNS, TIER), Unit.SECONDS),
                Panel(
                    "Durations",
                    "How many runs a second took how long.",
                    (Query(rate(f"{RUNS}_bucket", "le", TIER), "{{le}}"),),
                    Unit.SECONDS,
                    View.HEATMAP,
                    24,
                ),
            ),
        ),
        Row(
            "Planning",
            (
                Panel(
                    "Attempts at planning",
                    "Attempts a second, by outcome. `fallback`: the conductor wrote no usable plan, and one worker answers.",
                    (Query(rate("podium_plan_attempts_total", "podium_outcome", TIER), "{{podium_outcome}}"),),
                    Unit.PER_SECOND,
                    stacked=True,
                ),
                Panel("Duration of planning", "Successful attempts.", quantiles("podium_plan_duration_seconds", TIER), Unit.SECONDS),
                Panel(
                    "Steps for each run",
                    "Ended steps divided by ended runs.",
                    (Query(f"{rate('podium_step_ended_total')} / {rate(f'{RUNS}_count')}", "steps"),),
                ),
            ),
        ),
        Row(
            "Steps",
            (
                Panel(
                    "Wait of a step",
                    "From when a step could begin until its call was permitted.",
                    quantiles("podium_step_wait_seconds", TIER),
                    Unit.SECONDS,
                ),
                Panel(
                    "Steps by outcome",
                    "Ended steps a second.",
                    (Query(rate("podium_step_ended_total", "podium_outcome"), "{{podium_outcome}}"),),
                    Unit.PER_SECOND,
                    stacked=True,
                ),
                Panel(
                    "Attempts that gave nothing",
                    "Attempts a second that failed, were handed back, were lost with their executor or came too late.",
                    (
                        Query(
                            rate("podium_step_attempts_total", "podium_outcome", 'podium_outcome=~"failed|handed_back|lost|unused"'),
                            "{{podium_outcome}}",
                        ),
                    ),
                    Unit.PER_SECOND,
                ),
                Panel(
                    "Retries",
                    "Attempts a second after which the same worker is asked again.",
                    (Query(rate("podium_step_retries_total", "podium_worker"), "{{podium_worker}}"),),
                    Unit.PER_SECOND,
                ),
                Panel(
                    "Fallbacks",
                    "Steps a second that fell back to a worker, and why.",
                    (
                        Query(
                            rate("podium_step_fallbacks_total", "podium_worker, podium_reason"),
                            "{{podium_worker}} ({{podium_reason}})",
                        ),
                    ),
                    Unit.PER_SECOND,
                ),
                Panel(
                    "Step cache",
                    "Lookups a second, by outcome.",
                    (Query(rate("podium_cache_lookups_total", "podium_outcome"), "{{podium_outcome}}"),),
                    Unit.PER_SECOND,
                    stacked=True,
                ),
            ),
        ),
        Row(
            "Store and queue",
            (
                Panel("Commits", "Duration of a commit of a batch.", quantiles("podium_commit_duration_seconds"), Unit.SECONDS, width=6),
                Panel(
                    "Commands in a commit",
                    "On average. More commands mean a busier store, not a slower one.",
                    (Query(mean("podium_commit_commands"), "commands"),),
                    width=6,
                ),
                Panel(
                    "Conflicts",
                    "Commands a second that were decided again, because another process had committed first.",
                    (Query(rate("podium_commit_conflicts_total"), "conflicts"),),
                    Unit.PER_SECOND,
                    width=6,
                ),
                Panel(
                    "Findings of sweeps",
                    "Tasks a second whose message may be lost, expired leases, overdue and unreadable runs.",
                    (Query(rate("podium_sweep_found_total", "podium_kind"), "{{podium_kind}}"),),
                    Unit.PER_SECOND,
                    width=6,
                ),
                Panel(
                    "Delay of deadlines",
                    "From the deadline of a run until the sweeper ended it. Runs without an answer in time only.",
                    quantiles("podium_sweep_delay_seconds"),
                    Unit.SECONDS,
                    width=6,
                ),
            ),
        ),
    ),
    (TIERS,),
)
