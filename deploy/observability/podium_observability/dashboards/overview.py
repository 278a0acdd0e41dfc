"""Is it up, how many runs fail, and where does the time go."""

from podium_observability.dashboards.series import CALLS, FAILED, FIRST_TEXT, RUNS, quantiles
from podium_observability.expressions import quantile, rate, share
from podium_observability.model import Dashboard, Panel, Query, Row, Unit, View

# One process at a time reports the tasks. While another one takes over, both may.
OPEN_TASKS = "max by (podium_lane, podium_state) (podium_lane_tasks{{{0}}})"
WAITING = 'podium_state=~"backlog|queued"'
RUNNING = 'podium_state="running"'
HTTP = "http_server_request_duration_seconds"
RPC = "rpc_server_call_duration_seconds"


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
            "Requests of clients",
            (
                Panel(
                    "HTTP requests",
                    "HTTP requests a second, by status. 429 and 4xx are the client's; 5xx are the cluster's.",
                    (Query(rate(f"{HTTP}_count", "http_response_status_code"), "{{http_response_status_code}}"),),
                    Unit.PER_SECOND,
                    stacked=True,
                ),
                Panel(
                    "gRPC calls",
                    "gRPC calls a second, by status.",
                    (Query(rate(f"{RPC}_count", "rpc_response_status_code"), "{{rpc_response_status_code}}"),),
                    Unit.PER_SECOND,
                    stacked=True,
                ),
                Panel(
                    "Duration of HTTP requests",
                    "95th percentile of each route, until the end of the response. An answer takes as long as its run.",
                    (Query(quantile(0.95, HTTP, "http_route"), "{{http_route}}"),),
                    Unit.SECONDS,
                ),
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
                ),
                Panel(
                    "Tasks that run",
                    "Tasks of each lane that a process works on.",
                    (Query(f"sum by (podium_lane) ({OPEN_TASKS.format(RUNNING)})", "{{podium_lane}}"),),
                    stacked=True,
                ),
                Panel(
                    "Oldest ready task",
                    "How long the oldest task of each lane has waited. It falls when the task is taken.",
                    (Query("max by (podium_lane) (podium_lane_oldest_seconds)", "{{podium_lane}}"),),
                    Unit.SECONDS,
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
