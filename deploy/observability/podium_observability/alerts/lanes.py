"""The alerts on work that waits."""

from podium_observability.alerts.series import CRITICAL, EXECUTOR, GATEWAY, WARNING
from podium_observability.expressions import increase, quantile
from podium_observability.model import Alert, Case

LANE_NOT_SERVED = Alert(
    "PodiumLaneNotServed",
    CRITICAL,
    f"({increase('podium_lane_published_total', 'podium_lane', '', '10m')} > 0)"
    f" unless ({increase('podium_lane_fetched_total', 'podium_lane', '', '10m')} > 0)",
    "5m",
    "No process takes tasks from the lane {{ $labels.podium_lane }}",
    "Tasks are published to the lane, and no planner or executor has taken one for ten minutes. Its runs wait until their deadline.",
    "Tasks are published to a lane, and no process takes any.",
    (
        Case(
            "executors do not fetch",
            {
                f'podium_lane_published_total{{{GATEWAY},podium_lane="ultra.step.sim",podium_outcome="queued"}}': "0+5x40",
                f'podium_lane_fetched_total{{{EXECUTOR},podium_lane="ultra.step.sim"}}': "0+5x5 25x40",
            },
            "30m",
            ({"podium_lane": "ultra.step.sim"},),
        ),
        Case(
            "executors fetch slowly",
            {
                f'podium_lane_published_total{{{GATEWAY},podium_lane="ultra.step.sim",podium_outcome="queued"}}': "0+5x40",
                f'podium_lane_fetched_total{{{EXECUTOR},podium_lane="ultra.step.sim"}}': "0+1x40",
            },
            "30m",
        ),
    ),
)

BACKLOG = Alert(
    "PodiumLaneBacklog",
    WARNING,
    "max by (podium_lane) (podium_lane_contended) == 1",
    "15m",
    "Tasks of the lane {{ $labels.podium_lane }} have waited in the store for 15 minutes",
    "The lane is full and tasks wait in Postgres: more work arrives than executors, planners or vendors' limits let through.",
    "A lane has been full for 15 minutes, and tasks wait in Postgres.",
    (
        Case(
            "the lane stays full",
            {f'podium_lane_contended{{{GATEWAY},podium_lane="ultra.step.sim"}}': "1x30"},
            "20m",
            ({"podium_lane": "ultra.step.sim"},),
        ),
        Case("a burst is over after ten minutes", {f'podium_lane_contended{{{GATEWAY},podium_lane="ultra.step.sim"}}': "1x9 0x20"}, "20m"),
    ),
)

OLDEST = Alert(
    "PodiumTaskWaitsLong",
    WARNING,
    "max by (podium_lane) (podium_lane_oldest_seconds) > 600",
    "5m",
    "A task of the lane {{ $labels.podium_lane }} has waited for {{ $value | humanizeDuration }}",
    "A ready task of the lane has waited for more than ten minutes. Its run may end at its deadline without an answer.",
    "A ready task has waited for more than ten minutes.",
    (
        Case(
            "nobody takes a task",
            {f'podium_lane_oldest_seconds{{{GATEWAY},podium_lane="ultra.step.sim"}}': "0+60x30"},
            "20m",
            ({"podium_lane": "ultra.step.sim"},),
        ),
        Case(
            "each task is taken after five minutes",
            {f'podium_lane_oldest_seconds{{{GATEWAY},podium_lane="ultra.step.sim"}}': "0 60 120 180 240 300 300x30"},
            "20m",
        ),
    ),
)

STEPS_WAIT = Alert(
    "PodiumStepsWaitLong",
    WARNING,
    f"{quantile(0.9, 'podium_step_wait_seconds', 'podium_tier', '', '10m')} > 60",
    "10m",
    "A tenth of the {{ $labels.podium_tier }} steps wait for {{ $value | humanizeDuration }} or longer",
    "Steps wait for a free slot of an executor or for capacity in the vendors' limits.",
    "A tenth of the steps wait longer than a minute.",
    (
        Case(
            "all steps wait for more than a minute",
            {
                f'podium_step_wait_seconds_bucket{{{EXECUTOR},podium_tier="ultra",le="{le}"}}': values
                for le, values in (("60", "0x40"), ("120", "0+9x40"), ("+Inf", "0+9x40"))
            },
            "30m",
            ({"podium_tier": "ultra"},),
        ),
        Case(
            "all steps wait for less",
            {f'podium_step_wait_seconds_bucket{{{EXECUTOR},podium_tier="ultra",le="{le}"}}': "0+9x40" for le in ("30", "60", "+Inf")},
            "30m",
        ),
    ),
)
