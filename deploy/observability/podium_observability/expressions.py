"""Short forms of the expressions that dashboards and alerts repeat."""

INTERVAL = "$__rate_interval"


def selector(metric: str, where: str) -> str:
    return f"{metric}{{{where}}}" if where else metric


def aggregated(function: str, inner: str, by: str) -> str:
    return f"{function} by ({by}) ({inner})" if by else f"{function}({inner})"


def rate(metric: str, by: str = "", where: str = "", over: str = INTERVAL) -> str:
    """How much of a counter a second, over all processes."""
    return aggregated("sum", f"rate({selector(metric, where)}[{over}])", by)


def increase(metric: str, by: str = "", where: str = "", over: str = INTERVAL) -> str:
    return aggregated("sum", f"increase({selector(metric, where)}[{over}])", by)


def quantile(q: float, histogram: str, by: str = "", where: str = "", over: str = INTERVAL) -> str:
    """A quantile of a histogram, over all processes."""
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({q}, {rate(f'{histogram}_bucket', labels, where, over)})"


def mean(histogram: str, by: str = "", where: str = "", over: str = INTERVAL) -> str:
    return f"{rate(f'{histogram}_sum', by, where, over)} / {rate(f'{histogram}_count', by, where, over)}"


def share(part: str, whole: str) -> str:
    """A part of the whole, 0 to 1; 0 while there is a whole and none of the part."""
    return f"(({part}) or 0 * ({whole})) / (({whole}) > 0)"
