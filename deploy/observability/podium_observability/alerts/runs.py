"""The alerts on runs that fail, cannot be read, or are not swept."""

from podium_observability.alerts.series import CRITICAL, EXECUTOR, GATEWAY, RATE_MIN, WARNING
from podium_observability.dashboards.series import FAILED, RUNS
from podium_observability.expressions import increase, quantile, rate, share
from podium_observability.model import Alert, Case

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
