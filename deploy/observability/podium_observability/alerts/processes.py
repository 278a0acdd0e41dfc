"""The alerts on Podium's own processes and their clocks."""

from podium_observability.alerts.series import CRITICAL, EXECUTOR, GATEWAY, WARNING
from podium_observability.model import Alert, Case

NO_GATEWAY = Alert(
    "PodiumNoGatewayReady",
    CRITICAL,
    '(sum(up{job=~".*podium-gateway"} * on (job, instance) group_left () podium_dependency_up{podium_dependency="postgres"}) or vector(0)) == 0',
    "1m",
    "No gateway can accept runs",
    "Prometheus reaches no gateway that reaches Postgres. Clients get errors or no connection.",
    "No gateway that Prometheus reaches has a connection to Postgres.",
    (
        Case(
            "the only gateway is down",
            {f"up{{{GATEWAY}}}": "1 1 0x20", f'podium_dependency_up{{{GATEWAY},podium_dependency="postgres"}}': "1 1 stale"},
            "5m",
            ({},),
        ),
        Case(
            "the only gateway has lost Postgres",
            {f"up{{{GATEWAY}}}": "1x20", f'podium_dependency_up{{{GATEWAY},podium_dependency="postgres"}}': "1 1 0x20"},
            "5m",
            ({},),
        ),
        Case(
            "one of two gateways is ready",
            {
                f"up{{{GATEWAY}}}": "0x20",
                'up{job="podium-gateway",instance="g2"}': "1x20",
                'podium_dependency_up{job="podium-gateway",instance="g2",podium_dependency="postgres"}': "1x20",
            },
            "10m",
        ),
    ),
)

RESTARTING = Alert(
    "PodiumProcessRestarting",
    WARNING,
    'max by (job, instance) (resets(podium_sweep_count_total{podium_outcome="done"}[30m])) > 2'
    ' or max by (job, instance) (changes(up{job=~".*podium-(gateway|planner|executor)"}[30m])) > 5',
    "5m",
    "{{ $labels.job }} {{ $labels.instance }} keeps restarting",
    "The process has restarted at least three times in half an hour. Each time others take its work over, and repeat vendor calls.",
    "A process has restarted at least three times in half an hour.",
    (
        Case(
            "its counters start again every five minutes",
            {f'podium_sweep_count_total{{{EXECUTOR},podium_outcome="done"}}': "0+12x4 0+12x4 0+12x4 0+12x4 0+12x4 0+12x4 0+12x4 0+12x4"},
            "35m",
            ({"job": "podium-executor", "instance": "e1"},),
        ),
        Case(
            "it comes and goes before its first sweep",
            {f"up{{{EXECUTOR}}}": "1 0 1 0 1 0 1 0 1 0 1 0 1 0 1 0 1 0 1 0 1 0 1 0 1 0"},
            "20m",
            ({"job": "podium-executor", "instance": "e1"},),
        ),
        Case("it was replaced once", {f'podium_sweep_count_total{{{EXECUTOR},podium_outcome="done"}}': "0+12x14 0+12x30"}, "35m"),
    ),
)

DOWN = Alert(
    "PodiumProcessDown",
    WARNING,
    'up{job=~".*podium-(gateway|planner|executor)"} == 0',
    "5m",
    "Prometheus does not reach {{ $labels.job }} {{ $labels.instance }}",
    "The process has ended, is frozen, or its metrics port is closed to Prometheus. Other processes take its work over.",
    "Prometheus does not reach a process.",
    (
        Case("it is down", {f"up{{{EXECUTOR}}}": "1 0x20"}, "10m", ({"job": "podium-executor", "instance": "e1"},)),
        Case("another job is down", {'up{job="node",instance="n1"}': "1 0x20"}, "10m"),
    ),
)

CLOCK = Alert(
    "PodiumClockSkew",
    WARNING,
    "abs(podium_clock_skew_milliseconds) > 5000",
    "5m",
    "The clock of {{ $labels.job }} {{ $labels.instance }} is off by {{ $value }} ms",
    "Beyond `clock_skew_ms_max` (30 s by default) the process takes no work. Runs are not affected: they use Postgres' clock.",
    "A machine's clock differs from Postgres' clock by more than five seconds.",
    (
        Case(
            "a clock is behind",
            {f"podium_clock_skew_milliseconds{{{EXECUTOR}}}": "-8000x20"},
            "10m",
            ({"job": "podium-executor", "instance": "e1"},),
        ),
        Case("a clock is off by a second", {f"podium_clock_skew_milliseconds{{{EXECUTOR}}}": "-1000x20"}, "10m"),
    ),
)
