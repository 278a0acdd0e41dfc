"""The alerts: only what a person must act on. Each has tests: series that make it fire, and series that do not."""

from podium_observability.dashboards import FAILED, RUNS
from podium_observability.expressions import increase, quantile, rate, share
from podium_observability.model import Alert, Case, Severity
from podium_observability.money_alerts import BUDGETS, SPENDING, USAGE, WASTE

CALLS = "gen_ai_client_operation_duration_seconds_count"
CRITICAL, WARNING = Severity.CRITICAL, Severity.WARNING
GATEWAY = 'job="podium-gateway",instance="g1"'
EXECUTOR = 'job="podium-executor",instance="e1"'
# Shares of a small number are noise: an alert on a share needs at least this many events a second.
RATE_MIN = "0.02"


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

RUNS_FAILING = Alert(
    "PodiumRunsFailing",
    CRITICAL,
    f"{share(rate(f'{RUNS}_count', '', FAILED, '5m'), rate(f'{RUNS}_count', '', '', '5m'))} > 0.05"
    f" and {rate(f'{RUNS}_count', '', FAILED, '5m')} > {RATE_MIN}",
    "5m",
    "{{ $value | humanizePercentage }} of the runs fail",
    "More than 5 % of the runs that ended in the last five minutes failed. Cancelled runs and budgets do not count.",
    "More than 5 % of the ended runs failed.",
    (
        Case(
            "a tenth of the runs fails",
            {
                f'{RUNS}_count{{{EXECUTOR},podium_tier="ultra",podium_outcome="succeeded"}}': "0+54x30",
                f'{RUNS}_count{{{EXECUTOR},podium_tier="ultra",podium_outcome="final_step_failed"}}': "0+6x30",
            },
            "20m",
            ({},),
        ),
        Case(
            "runs are cancelled, or stopped by a budget",
            {
                f'{RUNS}_count{{{EXECUTOR},podium_tier="ultra",podium_outcome="succeeded"}}': "0+54x30",
                f'{RUNS}_count{{{EXECUTOR},podium_tier="ultra",podium_outcome="cancelled"}}': "0+20x30",
                f'{RUNS}_count{{{EXECUTOR},podium_tier="ultra",podium_outcome="insufficient_quota"}}': "0+20x30",
            },
            "20m",
        ),
        Case(
            "one single run failed",
            {f'{RUNS}_count{{{EXECUTOR},podium_tier="ultra",podium_outcome="step_failed"}}': "0x5 1x25"},
            "10m",
        ),
    ),
)

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

SWEEP_LATE = Alert(
    "PodiumSweepLate",
    WARNING,
    f"{quantile(0.9, 'podium_sweep_delay_seconds', '', '', '10m')} > 5",
    "10m",
    "A tenth of the overdue runs is ended {{ $value | humanizeDuration }} or more after their deadline",
    "The sweeper is late: it ends overdue runs, takes over the work of dead processes, and publishes lost messages again.",
    "Overdue runs are ended more than five seconds late.",
    (
        Case(
            "all overdue runs are ended late",
            {
                f'podium_sweep_delay_seconds_bucket{{{GATEWAY},le="{le}"}}': values
                for le, values in (("5", "0x40"), ("15", "0+9x40"), ("+Inf", "0+9x40"))
            },
            "30m",
            ({},),
        ),
        Case(
            "overdue runs are ended within a second",
            {f'podium_sweep_delay_seconds_bucket{{{GATEWAY},le="{le}"}}': "0+9x40" for le in ("1", "5", "+Inf")},
            "30m",
        ),
    ),
)

SWEPT = 'podium_outcome="done"'
NO_SWEEP = Alert(
    "PodiumNoSweep",
    CRITICAL,
    f"({rate('podium_sweep_count_total', '', SWEPT, '5m')} or vector(0)) == 0",
    "5m",
    "No process sweeps the store",
    "Work of dead processes is not taken over, deadlines are not enforced, and lost messages are not published again.",
    "No process has swept the store for five minutes.",
    (
        Case(
            "all sweeps fail",
            {
                f'podium_sweep_count_total{{{GATEWAY},podium_outcome="done"}}': "0+12x5 60x30",
                f'podium_sweep_count_total{{{GATEWAY},podium_outcome="failed"}}': "0x5 0+12x30",
            },
            "20m",
            ({},),
        ),
        Case("one process sweeps", {f'podium_sweep_count_total{{{GATEWAY},podium_outcome="done"}}': "0+12x30"}, "20m"),
    ),
)

NOT_READ = 'podium_kind="unreadable"'
UNREADABLE = Alert(
    "PodiumRunsUnreadable",
    WARNING,
    f"{increase('podium_sweep_found_total', '', NOT_READ, '1h')} > 0",
    "5m",
    "A process cannot read some runs",
    "A newer version wrote these runs, or they are damaged. During an upgrade this is expected, and newer processes continue the runs.",
    "Sweeps found runs that a process cannot read.",
    (
        Case("a sweep finds two", {f'podium_sweep_found_total{{{GATEWAY},podium_kind="unreadable"}}': "0x5 2x30"}, "20m", ({},)),
        Case("sweeps find expired leases only", {f'podium_sweep_found_total{{{GATEWAY},podium_kind="expired"}}': "0+2x30"}, "20m"),
    ),
)

BROKEN = 'error_type=~"limited|overloaded|failed"'
VENDOR_FAILING = Alert(
    "PodiumVendorFailing",
    WARNING,
    f"{share(rate(CALLS, 'gen_ai_provider_name', BROKEN, '5m'), rate(CALLS, 'gen_ai_provider_name', '', '5m'))} > 0.3"
    f" and {rate(CALLS, 'gen_ai_provider_name', '', '5m')} > {RATE_MIN}",
    "10m",
    "{{ $value | humanizePercentage }} of the calls to {{ $labels.gen_ai_provider_name }} fail",
    "The vendor answers with errors or 429, or not at all. Steps are retried and fall back to other workers.",
    "More than 30 % of the calls to a vendor fail.",
    (
        Case(
            "half of the calls get no answer",
            {
                f'{CALLS}{{{EXECUTOR},gen_ai_provider_name="sim",podium_worker="a"}}': "0+30x40",
                f'{CALLS}{{{EXECUTOR},gen_ai_provider_name="sim",podium_worker="a",error_type="overloaded"}}': "0+30x40",
            },
            "30m",
            ({"gen_ai_provider_name": "sim"},),
        ),
        Case(
            "callers cancel half of the calls",
            {
                f'{CALLS}{{{EXECUTOR},gen_ai_provider_name="sim",podium_worker="a"}}': "0+30x40",
                f'{CALLS}{{{EXECUTOR},gen_ai_provider_name="sim",podium_worker="a",error_type="broken_off"}}': "0+30x40",
            },
            "30m",
        ),
    ),
)

INVALID = 'error_type="refused"'
VENDOR_REFUSES = Alert(
    "PodiumVendorRefusesCalls",
    WARNING,
    f"{share(rate(CALLS, 'podium_worker', INVALID, '10m'), rate(CALLS, 'podium_worker', '', '10m'))} > 0.2"
    f" and {rate(CALLS, 'podium_worker', '', '10m')} > {RATE_MIN}",
    "10m",
    "The vendor of {{ $labels.podium_worker }} refuses {{ $value | humanizePercentage }} of the calls",
    "The vendor considers the requests invalid. Often the model's name or a declared feature in the pool file is wrong.",
    "A vendor refuses more than 20 % of a worker's calls as invalid.",
    (
        Case(
            "every call is refused",
            {f'{CALLS}{{{EXECUTOR},gen_ai_provider_name="sim",podium_worker="a",error_type="refused"}}': "0+30x40"},
            "30m",
            ({"podium_worker": "a"},),
        ),
        Case(
            "a tenth is refused",
            {
                f'{CALLS}{{{EXECUTOR},gen_ai_provider_name="sim",podium_worker="a"}}': "0+27x40",
                f'{CALLS}{{{EXECUTOR},gen_ai_provider_name="sim",podium_worker="a",error_type="refused"}}': "0+3x40",
            },
            "30m",
        ),
    ),
)

SHUT = 'podium_outcome="broken"'
BREAKER = Alert(
    "PodiumBreakerOpen",
    WARNING,
    "max by (podium_worker) (podium_breaker_open) == 1"
    f" and on (podium_worker) {increase('podium_permit_asked_total', 'podium_worker', SHUT, '5m')} > 0",
    "10m",
    "The circuit breaker of {{ $labels.podium_worker }} is open",
    "Steps ask for this worker, and its breaker has refused them for ten minutes, because its calls fail. Steps fall back to other workers.",
    "A worker's circuit breaker has been open for ten minutes while steps ask for the worker.",
    (
        Case(
            "steps are refused",
            {
                f'podium_breaker_open{{{EXECUTOR},podium_worker="a"}}': "1x30",
                f'podium_permit_asked_total{{{EXECUTOR},podium_worker="a",podium_outcome="broken"}}': "0+3x30",
            },
            "20m",
            ({"podium_worker": "a"},),
        ),
        Case(
            "nobody has asked since",
            {
                f'podium_breaker_open{{{EXECUTOR},podium_worker="a"}}': "1x30",
                f'podium_permit_asked_total{{{EXECUTOR},podium_worker="a",podium_outcome="broken"}}': "3x30",
            },
            "20m",
        ),
    ),
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


ATTEMPTS = "podium_plan_attempts_total"
NO_PLAN = 'podium_outcome=~"fallback|failed|handed_back|lost"'
PLANNING = Alert(
    "PodiumPlanningFails",
    CRITICAL,
    f"{share(rate(ATTEMPTS, '', NO_PLAN, '10m'), rate(ATTEMPTS, '', '', '10m'))} > 0.2 and {rate(ATTEMPTS, '', NO_PLAN, '10m')} > {RATE_MIN}",
    "10m",
    "{{ $value | humanizePercentage }} of the attempts at planning give no plan",
    "The conductor fails or writes unusable plans. Runs are answered by a single worker or fail, and answers get worse.",
    "More than 20 % of the attempts at planning give no plan.",
    (
        Case(
            "every second plan is unusable",
            {
                f'{ATTEMPTS}{{job="podium-planner",instance="p1",podium_tier="ultra",podium_outcome="planned"}}': "0+5x40",
                f'{ATTEMPTS}{{job="podium-planner",instance="p1",podium_tier="ultra",podium_outcome="fallback"}}': "0+5x40",
            },
            "30m",
            ({},),
        ),
        Case(
            "plans come too late now and then",
            {
                f'{ATTEMPTS}{{job="podium-planner",instance="p1",podium_tier="ultra",podium_outcome="planned"}}': "0+9x40",
                f'{ATTEMPTS}{{job="podium-planner",instance="p1",podium_tier="ultra",podium_outcome="unused"}}': "0+3x40",
            },
            "30m",
        ),
    ),
)

PLANS_WAIT = Alert(
    "PodiumPlansWait",
    WARNING,
    'sum by (podium_conductor) (podium_conductor_local_requests{podium_state="waiting"}) > 16',
    "10m",
    "{{ $value }} plans wait for the model {{ $labels.podium_conductor }}",
    "The planners' model is the bottleneck: runs begin late. Each planner refuses further plans at `plans_waiting_max`.",
    "More than 16 plans wait for a model in the planners.",
    (
        Case(
            "the model is too slow",
            {'podium_conductor_local_requests{job="podium-planner",instance="p1",podium_conductor="nano-1",podium_state="waiting"}': "20x30"},
            "20m",
            ({"podium_conductor": "nano-1"},),
        ),
        Case(
            "plans are written, none wait",
            {
                'podium_conductor_local_requests{job="podium-planner",instance="p1",podium_conductor="nano-1",podium_state="waiting"}': "0x30",
                'podium_conductor_local_requests{job="podium-planner",instance="p1",podium_conductor="nano-1",podium_state="writing"}': "20x30",
            },
            "20m",
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

ALL = (
    NO_GATEWAY,
    POSTGRES,
    NATS,
    REDIS,
    LIMITER_HOLDS,
    RUNS_FAILING,
    PLANNING,
    LANE_NOT_SERVED,
    NO_SWEEP,
    SWEEP_LATE,
    BACKLOG,
    OLDEST,
    STEPS_WAIT,
    PLANS_WAIT,
    VENDOR_FAILING,
    VENDOR_REFUSES,
    BREAKER,
    CUT_OFF,
    POSTGRES_SLOW,
    CLOCK,
    SPENDING,
    WASTE,
    BUDGETS,
    USAGE,
    UNREADABLE,
    RESTARTING,
    DOWN,
)
