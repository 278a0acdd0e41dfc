"""Which vendor is slow or fails, and which limit holds steps up."""

from podium_observability.dashboards.series import CALLS, FIRST_TEXT, WORKER, WORKERS, quantiles
from podium_observability.expressions import quantile, rate, share
from podium_observability.model import Dashboard, Panel, Query, Row, Unit

VENDORS = Dashboard(
    "podium-vendors",
    "Podium: vendors and limits",
    "Which vendor is slow or fails, and which limit holds steps up.",
    (
        Row(
            "Calls",
            (
                Panel(
                    "Calls, by worker",
                    "Ended calls a second.",
                    (Query(rate(f"{CALLS}_count", "podium_worker", WORKER), "{{podium_worker}}"),),
                    Unit.PER_SECOND,
                    stacked=True,
                ),
                Panel(
                    "Failed calls, by reason",
                    "Calls a second that failed: limited (429), overloaded or no answer, failed, refused, broken off.",
                    (Query(rate(f"{CALLS}_count", "error_type", f'{WORKER}, error_type!=""'), "{{error_type}}"),),
                    Unit.PER_SECOND,
                    stacked=True,
                ),
                Panel(
                    "Share of failed calls, by provider",
                    "Calls that were limited, overloaded or failed.",
                    (
                        Query(
                            share(
                                rate(f"{CALLS}_count", "gen_ai_provider_name", 'error_type=~"limited|overloaded|failed"'),
                                rate(f"{CALLS}_count", "gen_ai_provider_name"),
                            ),
                            "{{gen_ai_provider_name}}",
                        ),
                    ),
                    Unit.SHARE,
                ),
                Panel(
                    "Duration of calls",
                    "95th percentile, by worker.",
                    (Query(quantile(0.95, CALLS, "podium_worker", WORKER), "{{podium_worker}}"),),
                    Unit.SECONDS,
                ),
                Panel(
                    "Time to the first text",
                    "95th percentile, by worker.",
                    (Query(quantile(0.95, FIRST_TEXT, "podium_worker", WORKER), "{{podium_worker}}"),),
                    Unit.SECONDS,
                ),
                Panel(
                    "Calls under way",
                    "On average: the seconds of calls that ended in a second.",
                    (Query(rate(f"{CALLS}_sum", "podium_worker", WORKER), "{{podium_worker}}"),),
                ),
                Panel(
                    "Tokens",
                    "Tokens a second, input and output.",
                    (Query(rate("gen_ai_client_token_usage_sum", "gen_ai_token_type", WORKER), "{{gen_ai_token_type}}"),),
                    Unit.PER_SECOND,
                    width=24,
                ),
            ),
        ),
        Row(
            "Limits",
            (
                Panel(
                    "Permits, by outcome",
                    "Answers of the limiter a second.",
                    (Query(rate("podium_permit_asked_total", "podium_outcome", WORKER), "{{podium_outcome}}"),),
                    Unit.PER_SECOND,
                    stacked=True,
                ),
                Panel(
                    "Refused permits, by worker",
                    "Refusals a second. `busy`: too many calls at once; `rate`: the minute is used up; `blocked`: after a 429; `broken`: breaker open.",
                    (
                        Query(
                            rate("podium_permit_asked_total", "podium_worker, podium_outcome", f'{WORKER}, podium_outcome!="granted"'),
                            "{{podium_worker}} {{podium_outcome}}",
                        ),
                    ),
                    Unit.PER_SECOND,
                ),
                Panel(
                    "Open circuit breakers",
                    "1 while the breaker of a worker is open, as of the last request for a permit.",
                    (Query(f"max by (podium_worker) (podium_breaker_open{{{WORKER}}})", "{{podium_worker}}"),),
                ),
                Panel(
                    "Source of permits",
                    "Processes by the source of their permits. All are `shared` while Redis answers.",
                    (Query("sum by (podium_state, server_address) (podium_limiter_state)", "{{server_address}} {{podium_state}}"),),
                    width=12,
                    stacked=True,
                ),
                Panel(
                    "Wait of a step",
                    "From when a step could begin until its call was permitted.",
                    quantiles("podium_step_wait_seconds"),
                    Unit.SECONDS,
                    width=12,
                ),
            ),
        ),
    ),
    (WORKERS,),
)
