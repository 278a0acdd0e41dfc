"""The cost of runs, by worker and result."""

from podium_observability.dashboards.series import PLANNED, RUNS, SPENT
from podium_observability.expressions import increase, rate, share
from podium_observability.model import Dashboard, Panel, Query, Row, Unit, View

NANO = "1e9"


def dollars(expression: str) -> str:
    return f"({expression}) / {NANO}"


ALL_SPENT = f"{rate(SPENT)} + ({rate(PLANNED)} or vector(0))"

MONEY = Dashboard(
    "podium-money",
    "Podium: money",
    "The cost of runs, by worker and result. For the exact sums of a tenant use `podium budget show`.",
    (
        Row(
            "Spending",
            (
                Panel(
                    "Dollars an hour",
                    "Calls of workers and planning, at the current pace.",
                    (Query(f"3600 * {dollars(ALL_SPENT)}", "an hour"),),
                    Unit.DOLLARS,
                    View.NUMBER,
                    6,
                ),
                Panel(
                    "Dollars for each run",
                    "Spending divided by ended runs.",
                    (Query(f"{dollars(ALL_SPENT)} / {rate(f'{RUNS}_count')}", "a run"),),
                    Unit.DOLLARS,
                    View.NUMBER,
                    6,
                ),
                Panel(
                    "Wasted",
                    "Share of the workers' cost that gave no output: failed calls, and results that came too late.",
                    (Query(share(rate(SPENT, "", 'podium_spent=~"failed|unused"'), rate(SPENT))),),
                    Unit.SHARE,
                    View.NUMBER,
                    6,
                    red_from=0.2,
                ),
                Panel(
                    "Saved by the step cache, an hour",
                    "Cost of the calls that the cache saved, at the current pace.",
                    (Query(f"3600 * {dollars(rate('podium_cache_saved_cost_total'))}", "saved"),),
                    Unit.DOLLARS,
                    View.NUMBER,
                    6,
                ),
                Panel(
                    "By worker",
                    "Dollars an hour.",
                    (Query(f"3600 * {dollars(rate(SPENT, 'podium_worker'))}", "{{podium_worker}}"),),
                    Unit.DOLLARS,
                    stacked=True,
                    width=12,
                ),
                Panel(
                    "By tenant",
                    "Dollars an hour of the tenants that cost most in a process; `_OTHER` is all others.",
                    (Query(f"3600 * {dollars(rate('podium_tenant_cost_total', 'podium_tenant'))}", "{{podium_tenant}}"),),
                    Unit.DOLLARS,
                    stacked=True,
                    width=12,
                ),
                Panel(
                    "By result",
                    "Dollars an hour. All but `output` is wasted.",
                    (
                        Query(f"3600 * {dollars(rate(SPENT, 'podium_spent'))}", "{{podium_spent}}"),
                        Query(f"3600 * {dollars(rate(PLANNED))}", "planning"),
                    ),
                    Unit.DOLLARS,
                    stacked=True,
                    width=12,
                ),
            ),
        ),
        Row(
            "Waste",
            (
                Panel(
                    "Wasted by runs",
                    "Dollars an hour of ended runs: failed, lost and late attempts, and superseded steps.",
                    (Query(f"3600 * {dollars(rate('podium_run_wasted_cost_total', 'podium_tier'))}", "{{podium_tier}}"),),
                    Unit.DOLLARS,
                    stacked=True,
                    width=12,
                ),
                Panel(
                    "Wasted tokens",
                    "Tokens a second of that waste.",
                    (Query(rate("podium_run_wasted_tokens_total", "gen_ai_token_type"), "{{gen_ai_token_type}}"),),
                    Unit.PER_SECOND,
                    stacked=True,
                    width=12,
                ),
            ),
        ),
        Row(
            "Budgets and bookings",
            (
                Panel(
                    "Budgets without capacity",
                    "Refusals a second: of requests (`accept`), and of runs under way (`run`).",
                    (
                        Query(
                            rate("podium_budget_refusals_total", "podium_payer, podium_stage"),
                            "{{podium_payer}} {{podium_stage}}",
                        ),
                    ),
                    Unit.PER_SECOND,
                    width=12,
                ),
                Panel(
                    "Calls with impossible usage",
                    "Calls an hour whose vendor reported more usage than the call can have taken.",
                    (Query(increase("podium_call_usage_misreported_total", "podium_worker", "", "1h"), "{{podium_worker}}"),),
                    width=12,
                ),
            ),
        ),
    ),
)
