"""The alerts: only what a person must act on. Each has tests: series that make it fire, and series that do not."""

from podium_observability.alerts.lanes import BACKLOG, LANE_NOT_SERVED, OLDEST, STEPS_WAIT
from podium_observability.alerts.money import BUDGETS, SPENDING, USAGE, WASTE
from podium_observability.alerts.planning import PLANNING, PLANS_WAIT
from podium_observability.alerts.processes import CLOCK, DOWN, NO_GATEWAY, RESTARTING
from podium_observability.alerts.runs import NO_SWEEP, RUNS_FAILING, SWEEP_LATE, UNREADABLE
from podium_observability.alerts.servers import CUT_OFF, LIMITER_HOLDS, NATS, POSTGRES, POSTGRES_SLOW, REDIS
from podium_observability.alerts.vendors import BREAKER, VENDOR_FAILING, VENDOR_REFUSES

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
