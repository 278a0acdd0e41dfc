"""The alerts on plans that fail or wait."""

from podium_observability.alerts.series import CRITICAL, RATE_MIN, WARNING
from podium_observability.expressions import rate, share
from podium_observability.model import Alert, Case

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
