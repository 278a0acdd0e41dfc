"""The alerts on Postgres, NATS and Redis."""

from podium_observability.alerts.series import CRITICAL, EXECUTOR, WARNING
from podium_observability.expressions import quantile
from podium_observability.model import Alert, Case


def unreachable(server: str) -> str:
    return f'max by (podium_dependency) (podium_dependency_up{{podium_dependency="{server}"}}) == 0'


def server_cases(server: str) -> tuple[Case, Case]:
    def series(*values: str) -> dict[str, str]:
        names = [f'podium_dependency_up{{job="podium-executor",instance="e{n}",podium_dependency="{server}"}}' for n in (1, 2)]
        return dict(zip(names, values, strict=True))

    return (
        Case("no process reaches it", series("1 0x20", "1 0x20"), "10m", ({"podium_dependency": server},)),
        Case("one of two processes reaches it", series("1 0x20", "1 1x20"), "10m"),
    )


POSTGRES = Alert(
    "PodiumPostgresUnreachable",
    CRITICAL,
    unreachable("postgres"),
    "1m",
    "No process reaches Postgres",
    "Gateways refuse requests with 503 or UNAVAILABLE. Calls under way continue and are recorded later.",
    "No process reaches Postgres.",
    server_cases("postgres"),
)

NATS = Alert(
    "PodiumNatsUnreachable",
    CRITICAL,
    unreachable("nats"),
    "2m",
    "No process reaches NATS",
    "Gateways accept runs, and the runs wait: no planner and no executor gets work.",
    "No process reaches NATS.",
    server_cases("nats"),
)

REDIS = Alert(
    "PodiumRedisUnreachable",
    CRITICAL,
    unreachable("redis"),
    "2m",
    "No process reaches the Redis servers of the limits",
    "Each process makes calls within its part of the limits (`redis_away = local`) or none (`hold`). The step cache is not used.",
    "No process reaches a Redis server that holds limits.",
    server_cases("redis"),
)

HOLDING = 'podium_state="holding"'
LIMITER_HOLDS = Alert(
    "PodiumLimiterHolds",
    CRITICAL,
    f"max by (server_address) (podium_limiter_state{{{HOLDING}}}) == 1",
    "1m",
    "Without the Redis server {{ $labels.server_address }}, a process calls no worker",
    "The setting `redis_away` is `hold`, or a process started without Redis. Its steps wait until Redis is reachable.",
    "A process grants no calls because Redis is unreachable.",
    (
        Case(
            "Redis is unreachable",
            {f'podium_limiter_state{{{EXECUTOR},{HOLDING},server_address="redis:6379"}}': "0 1x20"},
            "10m",
            ({"server_address": "redis:6379"},),
        ),
        Case("Redis answers", {f'podium_limiter_state{{{EXECUTOR},{HOLDING},server_address="redis:6379"}}': "0x20"}, "10m"),
    ),
)

CUT_OFF = Alert(
    "PodiumProcessCutOff",
    WARNING,
    "podium_dependency_up == 0 unless on (podium_dependency) max by (podium_dependency) (podium_dependency_up) == 0",
    "5m",
    "{{ $labels.job }} {{ $labels.instance }} does not reach {{ $labels.podium_dependency }}",
    "Other processes reach the server, so the network, a policy or a password of this process is the likely cause.",
    "One process does not reach a server that others reach.",
    (
        Case(
            "one of two processes has lost NATS",
            {
                f'podium_dependency_up{{{EXECUTOR},podium_dependency="nats"}}': "1 0x20",
                'podium_dependency_up{job="podium-executor",instance="e2",podium_dependency="nats"}': "1x20",
            },
            "15m",
            ({"job": "podium-executor", "instance": "e1", "podium_dependency": "nats"},),
        ),
        Case(
            "all processes have lost NATS",
            {
                f'podium_dependency_up{{{EXECUTOR},podium_dependency="nats"}}': "1 0x20",
                'podium_dependency_up{job="podium-executor",instance="e2",podium_dependency="nats"}': "1 0x20",
            },
            "15m",
        ),
    ),
)

POSTGRES_SLOW = Alert(
    "PodiumPostgresSlow",
    WARNING,
    f"{quantile(0.95, 'podium_commit_duration_seconds', '', '', '5m')} > 1",
    "10m",
    "A twentieth of the commits takes {{ $value | humanizeDuration }} or longer",
    "Every step of a run waits for commits. Above a few seconds, leases may expire and work is repeated.",
    "The 95th percentile of commits is above a second.",
    (
        Case(
            "all commits take more than a second",
            {
                f'podium_commit_duration_seconds_bucket{{{EXECUTOR},le="{le}"}}': values
                for le, values in (("1", "0x40"), ("2.5", "0+60x40"), ("+Inf", "0+60x40"))
            },
            "30m",
            ({},),
        ),
        Case(
            "all commits are fast",
            {f'podium_commit_duration_seconds_bucket{{{EXECUTOR},le="{le}"}}': "0+60x40" for le in ("0.01", "1", "+Inf")},
            "30m",
        ),
    ),
)
