"""The dashboards. Each panel answers one question; its text says how to read it."""

from podium_observability.expressions import increase, mean, quantile, rate, share
from podium_observability.model import Dashboard, Panel, Query, Row, Unit, Variable, View

FAILED = 'podium_outcome=~"planning_failed|step_failed|final_step_failed|deadline_exceeded"'
TIER = 'podium_tier=~"$tier"'
WORKER = 'podium_worker=~"$worker"'
WRITTEN = 'podium_kind="text"'
CALLS = "gen_ai_client_operation_duration_seconds"
FIRST_TEXT = "gen_ai_client_operation_time_to_first_chunk_seconds"
RUNS = "podium_run_duration_seconds"
NANO = "1e9"
NOT_RECORDED = "the recording is older than the metric"
# One process at a time reports the tasks. While another one takes over, both may.
OPEN_TASKS = "max by (podium_lane, podium_state) (podium_lane_tasks{{{0}}})"
WAITING = 'podium_state=~"backlog|queued"'
RUNNING = 'podium_state="running"'

TIERS = Variable("tier", "Tier", "podium_run_accepted_total", "podium_tier")
WORKERS = Variable("worker", "Worker", "podium_permit_asked_total", "podium_worker")


def quantiles(histogram: str, where: str = "") -> tuple[Query, ...]:
    return tuple(Query(quantile(q, histogram, "", where), f"p{round(q * 100)}") for q in (0.5, 0.95, 0.99))


def up(role: str) -> Panel:
    expression = f'sum(up{{job=~".*podium-{role}"}}) or vector(0)'
    what = f"{role.capitalize()}s that Prometheus reaches."
    return Panel(f"{role.capitalize()}s", what, (Query(expression, role),), view=View.NUMBER, width=4, red_below=1)


OVERVIEW = Dashboard(
    "podium-overview",
    "Podium: overview",
    "Is it up, how many runs fail, and where does the time go.",
    (
        Row(
            "Is it up",
            (
                up("gateway"),
                up("planner"),
                up("executor"),
                Panel(
                    "Servers",
                    "1 while every process reaches the server; 0 if at least one process does not.",
                    (Query("min by (podium_dependency) (podium_dependency_up)", "{{podium_dependency}}"),),
                    view=View.NUMBER,
                    red_below=1,
                    width=8,
                ),
                Panel(
                    "Runs that failed",
                    "Share of the ended runs that failed. Cancelled runs and exhausted budgets do not count.",
                    (Query(share(rate(f"{RUNS}_count", "", FAILED), rate(f"{RUNS}_count"))),),
                    Unit.SHARE,
                    View.NUMBER,
                    4,
                    red_from=0.05,
                ),
            ),
        ),
        Row(
            "Runs",
            (
                Panel(
                    "Accepted and ended",
                    "Runs a second. A lasting gap between both lines is a growing backlog.",
                    (Query(rate("podium_run_accepted_total"), "accepted"), Query(rate(f"{RUNS}_count"), "ended")),
                    Unit.PER_SECOND,
                ),
                Panel(
                    "Outcomes",
                    "Ended runs a second, by outcome.",
                    (Query(rate(f"{RUNS}_count", "podium_outcome"), "{{podium_outcome}}"),),
                    Unit.PER_SECOND,
                    stacked=True,
                ),
                Panel("Duration", "From a run's acceptance to its end.", quantiles(RUNS), Unit.SECONDS),
            ),
        ),
        Row(
            "Where the time goes",
            (
                Panel(
                    "95th percentile of each part",
                    "Planning; the wait of a step for a slot and for limits; a vendor's call; a commit.",
                    (
                        Query(quantile(0.95, "podium_plan_duration_seconds"), "plan"),
                        Query(quantile(0.95, "podium_step_wait_seconds"), "wait of a step"),
                        Query(quantile(0.95, CALLS), "vendor call"),
                        Query(quantile(0.95, FIRST_TEXT), "vendor's first text"),
                        Query(quantile(0.95, "podium_commit_duration_seconds"), "commit"),
                    ),
                    Unit.SECONDS,
                    width=12,
                ),
                Panel(
                    "Messages in and out of the lanes",
                    "Tasks a second, published to the lanes and taken out of them. `full`: the task waits in the store.",
                    (
                        Query(rate("podium_lane_published_total", "podium_outcome"), "published: {{podium_outcome}}"),
                        Query(rate("podium_lane_fetched_total"), "fetched"),
                    ),
                    Unit.PER_SECOND,
                    width=12,
                ),
            ),
        ),
        Row(
            "Waiting work",
            (
                Panel(
                    "Tasks that wait",
                    "Ready tasks of each lane, in the queue and in the store. Executors and planners are scaled by these.",
                    (Query(f"sum by (podium_lane) ({OPEN_TASKS.format(WAITING)})", "{{podium_lane}}"),),
                    stacked=True,
                    no_data=NOT_RECORDED,
                ),
                Panel(
                    "Tasks that run",
                    "Tasks of each lane that a process works on.",
                    (Query(f"sum by (podium_lane) ({OPEN_TASKS.format(RUNNING)})", "{{podium_lane}}"),),
                    stacked=True,
                    no_data=NOT_RECORDED,
                ),
                Panel(
                    "Oldest ready task",
                    "How long the oldest task of each lane has waited. It falls when the task is taken.",
                    (Query("max by (podium_lane) (podium_lane_oldest_seconds)", "{{podium_lane}}"),),
                    Unit.SECONDS,
                    no_data=NOT_RECORDED,
                ),
            ),
        ),
        Row(
            "Processes",
            (
                Panel(
                    "Lanes with a backlog in the store",
                    "1 while ready tasks of the lane wait in the store for capacity.",
                    (Query("max by (podium_lane) (podium_lane_contended)", "{{podium_lane}}"),),
                ),
                Panel(
                    "Clock skew",
                    "How far the clock of a machine is ahead of the database's. Beyond 30 s a process takes no work.",
                    (Query("podium_clock_skew_milliseconds", "{{job}} {{instance}}"),),
                    Unit.MILLISECONDS,
                ),
                Panel(
                    "Versions",
                    "Processes by program and version.",
                    (
                        Query(
                            "count by (service_name, service_version) (target_info)",
                            "{{service_name}} {{service_version}}",
                        ),
                    ),
                ),
            ),
        ),
    ),
)

RUN_ANATOMY = Dashboard(
    "podium-runs",
    "Podium: anatomy of runs",
    "The stages of a run between its acceptance and its end: planning, steps, commits.",
    (
        Row(
            "Runs",
            (
                Panel(
                    "Accepted, by tier",
                    "Runs a second.",
                    (Query(rate("podium_run_accepted_total", "podium_tier", TIER), "{{podium_tier}}"),),
                    Unit.PER_SECOND,
                ),
                Panel(
                    "Ended, by outcome",
                    "Runs a second.",
                    (Query(rate(f"{RUNS}_count", "podium_outcome", TIER), "{{podium_outcome}}"),),
                    Unit.PER_SECOND,
                    stacked=True,
                ),
                Panel("Duration", "From a run's acceptance to its end.", quantiles(RUNS, TIER), Unit.SECONDS),
                Panel(
                    "Durations",
                    "How many runs a second took how long.",
                    (Query(rate(f"{RUNS}_bucket", "le", TIER), "{{le}}"),),
                    Unit.SECONDS,
                    View.HEATMAP,
                    24,
                ),
            ),
        ),
        Row(
            "Planning",
            (
                Panel(
                    "Attempts at planning",
                    "Attempts a second, by outcome. `fallback`: the conductor wrote no usable plan, and one worker answers.",
                    (Query(rate("podium_plan_attempts_total", "podium_outcome", TIER), "{{podium_outcome}}"),),
                    Unit.PER_SECOND,
                    stacked=True,
                ),
                Panel("Duration of planning", "Successful attempts.", quantiles("podium_plan_duration_seconds", TIER), Unit.SECONDS),
                Panel(
                    "Steps for each run",
                    "Ended steps divided by ended runs.",
                    (Query(f"{rate('podium_step_ended_total')} / {rate(f'{RUNS}_count')}", "steps"),),
                ),
            ),
        ),
        Row(
            "Steps",
            (
                Panel(
                    "Wait of a step",
                    "From when a step could begin until its call was permitted.",
                    quantiles("podium_step_wait_seconds", TIER),
                    Unit.SECONDS,
                ),
                Panel(
                    "Steps by outcome",
                    "Ended steps a second.",
                    (Query(rate("podium_step_ended_total", "podium_outcome"), "{{podium_outcome}}"),),
                    Unit.PER_SECOND,
                    stacked=True,
                ),
                Panel(
                    "Attempts that gave nothing",
                    "Attempts a second that failed, were handed back, were lost with their executor or came too late.",
                    (
                        Query(
                            rate("podium_step_attempts_total", "podium_outcome", 'podium_outcome=~"failed|handed_back|lost|unused"'),
                            "{{podium_outcome}}",
                        ),
                    ),
                    Unit.PER_SECOND,
                ),
                Panel(
                    "Retries",
                    "Attempts a second after which the same worker is asked again.",
                    (Query(rate("podium_step_retries_total", "podium_worker"), "{{podium_worker}}"),),
                    Unit.PER_SECOND,
                ),
                Panel(
                    "Fallbacks",
                    "Steps a second that fell back to a worker, and why.",
                    (
                        Query(
                            rate("podium_step_fallbacks_total", "podium_worker, podium_reason"),
                            "{{podium_worker}} ({{podium_reason}})",
                        ),
                    ),
                    Unit.PER_SECOND,
                ),
                Panel(
                    "Step cache",
                    "Lookups a second, by outcome.",
                    (Query(rate("podium_cache_lookups_total", "podium_outcome"), "{{podium_outcome}}"),),
                    Unit.PER_SECOND,
                    stacked=True,
                ),
            ),
        ),
        Row(
            "Store and queue",
            (
                Panel("Commits", "Duration of a commit of a batch.", quantiles("podium_commit_duration_seconds"), Unit.SECONDS, width=6),
                Panel(
                    "Commands in a commit",
                    "On average. More commands mean a busier store, not a slower one.",
                    (Query(mean("podium_commit_commands"), "commands"),),
                    width=6,
                ),
                Panel(
                    "Conflicts",
                    "Commands a second that were decided again, because another process had committed first.",
                    (Query(rate("podium_commit_conflicts_total"), "conflicts"),),
                    Unit.PER_SECOND,
                    width=6,
                ),
                Panel(
                    "Findings of sweeps",
                    "Tasks a second whose message may be lost, expired leases, overdue and unreadable runs.",
                    (Query(rate("podium_sweep_found_total", "podium_kind"), "{{podium_kind}}"),),
                    Unit.PER_SECOND,
                    width=6,
                ),
                Panel(
                    "Delay of deadlines",
                    "From the deadline of a run until the sweeper ended it. Runs without an answer in time only.",
                    quantiles("podium_sweep_delay_seconds"),
                    Unit.SECONDS,
                    width=6,
                    no_data=NOT_RECORDED,
                ),
            ),
        ),
    ),
    (TIERS,),
)

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

SPENT = "podium_cost_total"
PLANNED = "podium_plan_cost_total"


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
                    no_data="too few steps of the recording repeat",
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
                    no_data=NOT_RECORDED,
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
                    no_data=NOT_RECORDED,
                ),
                Panel(
                    "Wasted tokens",
                    "Tokens a second of that waste.",
                    (Query(rate("podium_run_wasted_tokens_total", "gen_ai_token_type"), "{{gen_ai_token_type}}"),),
                    Unit.PER_SECOND,
                    stacked=True,
                    width=12,
                    no_data=NOT_RECORDED,
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
                    no_data="the simulated vendor always reports its usage correctly",
                ),
            ),
        ),
    ),
)

ALL = (OVERVIEW, RUN_ANATOMY, VENDORS, PLANNER, MONEY)
