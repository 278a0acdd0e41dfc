"""The dashboards. Each panel answers one question; its text says how to read it."""

from podium_observability.dashboards.money import MONEY
from podium_observability.dashboards.overview import OVERVIEW
from podium_observability.dashboards.planner import PLANNER
from podium_observability.dashboards.runs import RUN_ANATOMY
from podium_observability.dashboards.vendors import VENDORS

ALL = (OVERVIEW, RUN_ANATOMY, VENDORS, PLANNER, MONEY)
