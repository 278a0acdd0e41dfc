"""How busy the conductor is, and how long plans wait for it."""

from podium_observability.dashboards.series import quantiles
from podium_observability.expressions import rate
from podium_observability.model import Dashboard, Panel, Query, Row, Unit

WRITTEN = 'podium_kind="text"'

PLANNER = Dashboard(
    "podium-planner",
    "Podium: planner and GPU",
    "How busy the conductor is. Podium does not measure the GPU itself: use the exporter of its vendor for memory and power.",
    (
        Row(
            "Planning",
            (
                Panel(
                    "Attempts, by outcome",
                    "Attempts a second.",
                    (Query(rate("podium_plan_attempts_total", "podium_outcome"), "{{podium_outcome}}"),),
                    Unit.PER_SECOND,
                    stacked=True,
                ),
                Panel("Duration", "Successful attempts at planning.", quantiles("podium_plan_duration_seconds"), Unit.SECONDS),
                Panel(
                    "Free slots for plans",
                    "How many more plans the planners could begin, by lane.",
                    (Query('sum by (podium_lane) (podium_lane_slots_free{podium_lane=~".*plan"})', "{{podium_lane}}"),),
                ),
            ),
        ),
        Row(
            "A model in the planner (llama.cpp)",
            (
                Panel(
                    "Tokens",
                    "Tokens a second that the model computed: read from prompts, and written.",
                    (
                        Query(
                            rate("podium_conductor_local_tokens_total", "podium_conductor, podium_kind"),
                            "{{podium_conductor}} {{podium_kind}}",
                        ),
                    ),
                    Unit.PER_SECOND,
                ),
                Panel(
                    "Requests",
                    "Requests that wait for a sequence, are being written, or are read by the mini head.",
                    (
                        Query(
                            "sum by (podium_conductor, podium_state) (podium_conductor_local_requests)",
                            "{{podium_conductor}} {{podium_state}}",
                        ),
                    ),
                    stacked=True,
                ),
                Panel(
                    "Tokens written for a plan",
                    "Tokens that the model wrote, divided by successful plans of all conductors.",
                    (
                        Query(
                            f"{rate('podium_conductor_local_tokens_total', '', WRITTEN)} / {rate('podium_plan_duration_seconds_count')}",
                            "tokens",
                        ),
                    ),
                ),
            ),
        ),
        Row(
            "A model elsewhere",
            (
                Panel(
                    "Plans not there yet",
                    "Plans that the model writes (`calling`) or that wait for a permit (`waiting`).",
                    (
                        Query(
                            "sum by (podium_conductor, podium_state) (podium_conductor_remote_plans)",
                            "{{podium_conductor}} {{podium_state}}",
                        ),
                    ),
                    stacked=True,
                ),
                Panel(
                    "Permits",
                    "Answers of the limiter a second to requests for a plan's call.",
                    (Query(rate("podium_conductor_remote_permits_total", "podium_outcome"), "{{podium_outcome}}"),),
                    Unit.PER_SECOND,
                    stacked=True,
                ),
                Panel(
                    "Wait for a permit",
                    "From when a plan's call could begin until it was permitted.",
                    quantiles("podium_conductor_remote_permit_wait_seconds"),
                    Unit.SECONDS,
                ),
            ),
        ),
    ),
)
