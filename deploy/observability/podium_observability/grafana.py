"""Writes dashboards in Grafana's JSON (schema 39, Grafana 11)."""

import json
from typing import Any

from podium_observability.model import Dashboard, Panel, Query, Row, Unit, Variable, View

SCHEMA = 39
COLUMNS = 24
HEIGHTS = {View.LINES: 8, View.NUMBER: 4, View.TABLE: 8, View.HEATMAP: 8}
SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def dashboard_json(dashboard: Dashboard) -> str:
    return json.dumps(dashboard_of(dashboard), indent=2, sort_keys=True) + "\n"


def dashboard_of(dashboard: Dashboard) -> dict[str, Any]:
    panels: list[dict[str, Any]] = []
    y = 0
    for row in dashboard.rows:
        y = add_row(panels, row, y)
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.what,
        "tags": ["podium"],
        "schemaVersion": SCHEMA,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "",
        "annotations": {"list": []},
        "links": [{"type": "dashboards", "tags": ["podium"], "title": "Podium", "asDropdown": True, "keepTime": True}],
        "templating": {"list": [data_source(), *map(variable_of, dashboard.variables)]},
        "panels": panels,
    }


def data_source() -> dict[str, Any]:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "hide": 0}


def variable_of(variable: Variable) -> dict[str, Any]:
    query = f"label_values({variable.metric}, {variable.label})"
    return {
        "name": variable.name,
        "label": variable.title,
        "type": "query",
        "datasource": SOURCE,
        "definition": query,
        "query": {"query": query, "refId": "A"},
        "refresh": 2,
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "current": {"text": ["All"], "value": ["$__all"]},
        "sort": 1,
    }


def add_row(panels: list[dict[str, Any]], row: Row, y: int) -> int:
    """Adds a row's title and its panels from left to right. Returns the line after it."""
    panels.append({"id": len(panels) + 1, "type": "row", "title": row.title, "collapsed": False, "panels": [], "gridPos": position(0, y, COLUMNS, 1)})
    x, y, tallest = 0, y + 1, 0
    for panel in row.panels:
        if x + panel.width > COLUMNS:
            x, y, tallest = 0, y + tallest, 0
        height = HEIGHTS[panel.view]
        panels.append(panel_of(panel, len(panels) + 1, position(x, y, panel.width, height)))
        x, tallest = x + panel.width, max(tallest, height)
    return y + tallest


def position(x: int, y: int, width: int, height: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": width, "h": height}


def panel_of(panel: Panel, number: int, at: dict[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": panel.view.value,
        "title": panel.title,
        "description": panel.what,
        "datasource": SOURCE,
        "gridPos": at,
        "targets": [target(query, index, panel.view) for index, query in enumerate(panel.queries)],
        "fieldConfig": {"defaults": defaults(panel), "overrides": []},
        "options": OPTIONS[panel.view],
    }


def target(query: Query, index: int, view: View) -> dict[str, Any]:
    return {
        "refId": chr(ord("A") + index),
        "datasource": SOURCE,
        "expr": query.expression,
        "legendFormat": query.legend or "__auto",
        "format": "heatmap" if view is View.HEATMAP else "time_series",
        "range": True,
    }


def defaults(panel: Panel) -> dict[str, Any]:
    fields: dict[str, Any] = {"unit": panel.unit.value, "min": 0, "thresholds": {"mode": "absolute", "steps": steps(panel)}}
    if panel.unit is Unit.MILLISECONDS:
        del fields["min"]
    if panel.view is View.LINES:
        fields["custom"] = {
            "fillOpacity": 20 if panel.stacked else 0,
            "showPoints": "never",
            "spanNulls": False,
            "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
        }
    return fields


def steps(panel: Panel) -> list[dict[str, Any]]:
    if panel.red_below is not None:
        return [{"color": "red", "value": None}, {"color": "green", "value": panel.red_below}]
    if panel.red_from is not None:
        return [{"color": "green", "value": None}, {"color": "red", "value": panel.red_from}]
    return [{"color": "green", "value": None}]


LEGEND = {"displayMode": "table", "placement": "bottom", "showLegend": True, "calcs": ["lastNotNull", "max"]}
OPTIONS: dict[View, dict[str, Any]] = {
    View.LINES: {"legend": LEGEND, "tooltip": {"mode": "multi", "sort": "desc"}},
    View.NUMBER: {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "colorMode": "value",
        "graphMode": "area",
        "textMode": "auto",
    },
    View.TABLE: {"showHeader": True},
    View.HEATMAP: {"calculate": False, "yAxis": {"unit": "s"}, "color": {"scheme": "Oranges", "mode": "scheme"}},
}
