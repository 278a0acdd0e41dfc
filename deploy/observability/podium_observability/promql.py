"""Checks of PromQL expressions against the documented metrics."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import promql_parser

from podium_observability.metrics import OPEN_LABELS, RESOURCE_LABELS, TARGET_LABELS, Metric

# Functions that make sense for values that only grow.
OF_COUNTERS = frozenset({"rate", "increase", "irate", "resets"})
# Functions over time that make sense for values that go up and down.
OF_GAUGES = frozenset({"delta", "deriv", "avg_over_time", "max_over_time", "min_over_time", "changes", "quantile_over_time"})
CHILDREN = ("lhs", "rhs", "expr", "param", "vector_selector")
# Grafana fills these in.
STAND_INS = {"$__rate_interval": "5m", "$__range": "5m", "$__interval": "1m"}


@dataclass(frozen=True)
class Selector:
    """A selector in an expression, with the functions around it, the innermost first."""

    name: str
    matchers: tuple[tuple[str, str, str], ...]
    inside: tuple[str, ...]


def without_variables(expression: str) -> str:
    """The expression with Grafana's variables replaced: each `$name` in a matcher selects everything."""
    for variable, value in STAND_INS.items():
        expression = expression.replace(variable, value)
    return re.sub(r"\$\w+", ".*", expression)


def nodes(expression: promql_parser.Expr, inside: tuple[str, ...] = ()) -> Iterator[tuple[promql_parser.Expr, tuple[str, ...]]]:
    """Every node with the functions around it."""
    yield expression, inside
    around = (expression.func.name, *inside) if isinstance(expression, promql_parser.Call) else inside
    below = [getattr(expression, name, None) for name in CHILDREN] + list(getattr(expression, "args", []))
    for child in below:
        if isinstance(child, promql_parser.Expr):
            yield from nodes(child, around)


def selectors(expression: promql_parser.Expr) -> list[Selector]:
    found = []
    for node, inside in nodes(expression):
        if isinstance(node, promql_parser.VectorSelector):
            matchers = tuple((matcher.name, str(matcher.op), matcher.value) for matcher in node.matchers.matchers)
            found.append(Selector(node.name or "", matchers, inside))
    return found


def grouping_labels(expression: promql_parser.Expr) -> set[str]:
    """The labels of `by`, `without`, `on` and `ignoring`."""
    text = str(expression)
    lists = re.findall(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)", text)
    return {label.strip() for names in lists for label in names.split(",") if label.strip()}


def problems(expression: str, metrics: dict[str, Metric]) -> list[str]:
    """The problems of an expression; empty if it is valid."""
    try:
        parsed = promql_parser.parse(without_variables(expression))
    except ValueError as error:
        return [f"{error}: {expression}"]
    found: list[str] = []
    used = selectors(parsed)
    for selector in used:
        metric = metrics.get(selector.name)
        if metric is None:
            found.append(f"no metric {selector.name}")
            continue
        found += [problem for matcher in selector.matchers for problem in matcher_problems(metric, selector, matcher)]
        found += use_problems(metric, selector)
    known = TARGET_LABELS | {"le"} | set().union(*(metrics[s.name].labels for s in used if s.name in metrics))
    found += [f"no metric here has the label {label}" for label in sorted(grouping_labels(parsed) - known)]
    return [f"{problem}: {expression}" for problem in found]


def matcher_problems(metric: Metric, selector: Selector, matcher: tuple[str, str, str]) -> Iterator[str]:
    label, operator, value = matcher
    if label in TARGET_LABELS or (label == "le" and selector.name.endswith("_bucket")):
        return
    if label not in metric.labels:
        yield f"{selector.name} has no label {label}"
    elif label not in OPEN_LABELS and label not in RESOURCE_LABELS:
        values = value.split("|") if "~" in operator or "Re" in operator else [value]
        yield from (f"{selector.name} has no {label} {each}" for each in values if not known_value(each, metric))


def known_value(value: str, metric: Metric) -> bool:
    return value in ("", ".*", ".+") or value in metric.values


def use_problems(metric: Metric, selector: Selector) -> Iterator[str]:
    grows = metric.kind in ("counter", "histogram")
    functions = set(selector.inside)
    if grows and not functions & OF_COUNTERS:
        yield f"{selector.name} only grows: use it in rate or increase"
    if not grows and functions & OF_COUNTERS:
        yield f"{selector.name} is a gauge: use no rate or increase"
    if "histogram_quantile" in functions and not selector.name.endswith("_bucket"):
        yield f"{selector.name} is no bucket of a histogram"
    if grows and functions & OF_GAUGES:
        yield f"{selector.name} only grows: {sorted(functions & OF_GAUGES)} is for gauges"
