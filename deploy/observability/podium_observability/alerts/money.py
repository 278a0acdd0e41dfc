"""The alerts on money: spending, waste, budgets and usage."""

from podium_observability.alerts.series import EXECUTOR, GATEWAY, WARNING
from podium_observability.dashboards.series import PLANNED, SPENT
from podium_observability.expressions import increase, share
from podium_observability.model import Alert, Case


def spent(offset: str = "") -> str:
    """Dollars of the last hour, planning included."""
    window = f"1h]{offset}"
    return f"(sum(increase({SPENT}[{window})) + (sum(increase({PLANNED}[{window})) or vector(0))) / 1e9"


SPENDING = Alert(
    "PodiumSpendingUnusual",
    WARNING,
    f"{spent()} > 10 and {spent()} > 3 * ({spent(' offset 1d')})",
    "15m",
    "${{ $value | humanize }} were spent in the last hour, more than three times yesterday's",
    "The last hour cost more than ten dollars and more than three times the same hour of yesterday.",
    "The last hour cost more than $10 and three times as much as the same hour of yesterday.",
    (
        Case(
            "spending rises tenfold within a day",
            {f'{SPENT}{{{EXECUTOR},podium_worker="a",podium_spent="output"}}': "0+50000000x1440 72000000000+500000000x200"},
            "1560m",
            ({},),
        ),
        Case(
            "every hour costs the same",
            {f'{SPENT}{{{EXECUTOR},podium_worker="a",podium_spent="output"}}': "0+500000000x1640"},
            "1560m",
        ),
        Case(
            "ten times as much is still little",
            {f'{SPENT}{{{EXECUTOR},podium_worker="a",podium_spent="output"}}': "0+500000x1440 720000000+5000000x200"},
            "1560m",
        ),
    ),
)

WASTED = 'podium_spent=~"failed|unused"'
WASTE = Alert(
    "PodiumSpendingWasted",
    WARNING,
    f"{share(increase(SPENT, 'podium_worker', WASTED, '1h'), increase(SPENT, 'podium_worker', '', '1h'))} > 0.2"
    f" and {increase(SPENT, 'podium_worker', WASTED, '1h')} > 1e9",
    "15m",
    "{{ $value | humanizePercentage }} of the cost of {{ $labels.podium_worker }} is wasted",
    "In the last hour more than a dollar was spent on calls that failed or whose results came too late.",
    "More than 20 % of a worker's cost, and more than a dollar an hour, is wasted.",
    (
        Case(
            "half of the cost is for failed calls",
            {
                f'{SPENT}{{{EXECUTOR},podium_worker="a",podium_spent="output"}}': "0+100000000x120",
                f'{SPENT}{{{EXECUTOR},podium_worker="a",podium_spent="failed"}}': "0+100000000x120",
            },
            "100m",
            ({"podium_worker": "a"},),
        ),
        Case(
            "a tenth is wasted",
            {
                f'{SPENT}{{{EXECUTOR},podium_worker="a",podium_spent="output"}}': "0+900000000x120",
                f'{SPENT}{{{EXECUTOR},podium_worker="a",podium_spent="unused"}}': "0+100000000x120",
            },
            "100m",
        ),
    ),
)

BUDGETS = Alert(
    "PodiumBudgetsExhausted",
    WARNING,
    f"{increase('podium_budget_refusals_total', 'podium_payer', '', '15m')} > 10",
    "30m",
    "Budgets of the kind {{ $labels.podium_payer }} have refused runs for half an hour",
    "At least one tenant or key has spent its budget and still asks. Its requests fail with 429.",
    "A budget of a tenant or a key refuses runs continuously.",
    (
        Case(
            "a tenant keeps asking",
            {f'podium_budget_refusals_total{{{GATEWAY},podium_payer="tenant",podium_stage="accept"}}': "0+5x80"},
            "70m",
            ({"podium_payer": "tenant"},),
        ),
        Case(
            "a tenant was refused five times",
            {f'podium_budget_refusals_total{{{GATEWAY},podium_payer="tenant",podium_stage="accept"}}': "0+5x1 5x80"},
            "70m",
        ),
    ),
)

USAGE = Alert(
    "PodiumUsageMisreported",
    WARNING,
    f"{increase('podium_call_usage_misreported_total', 'podium_worker', '', '1h')} > 0",
    "5m",
    "The vendor of {{ $labels.podium_worker }} reported an impossible usage",
    "The vendor reported more tokens than the call can have taken. Podium booked the bounded number; the vendor's bill may differ.",
    "A vendor reported more usage than its call can have taken.",
    (
        Case(
            "three calls in an hour",
            {f'podium_call_usage_misreported_total{{{EXECUTOR},podium_worker="a"}}': "0x5 3x60"},
            "30m",
            ({"podium_worker": "a"},),
        ),
        Case("none", {f'podium_call_usage_misreported_total{{{EXECUTOR},podium_worker="a"}}': "3x60"}, "30m"),
    ),
)
