"""Draws a dashboard from the recording: `PYTHONPATH=. uv run --group images --group test python tests/draw.py DASHBOARD FILE`.

It is not Grafana: matplotlib draws the queries of the same source.
"""

import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
from prometheus import Prometheus
from test_recorded import STEP_SECONDS, recorded

from podium_observability import dashboards
from podium_observability.model import View
from podium_observability.promql import without_variables

COLUMNS = 3


def draw(uid: str, output: Path) -> None:
    board = next(board for board in dashboards.ALL if board.uid == uid)
    text = recorded()
    times = [float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith("up{")]
    start, end = min(times), max(times)
    panels = [panel for row in board.rows for panel in row.panels if panel.view is View.LINES]
    lines = -(-len(panels) // COLUMNS)
    figure, places = plt.subplots(lines, COLUMNS, figsize=(16, 3.3 * lines), layout="constrained")
    server = Prometheus(Path(tempfile.mkdtemp()), text)
    try:
        for panel, place in zip(panels, places.flat, strict=False):
            for query in panel.queries:
                # A shorter window than in the tests shows the faults, which last less than a minute.
                expression = without_variables(query.expression.replace("$__rate_interval", "1m"))
                for series in server.range(expression, start, end, STEP_SECONDS):
                    legend = query.legend
                    for label, value in series["metric"].items():
                        legend = legend.replace(f"{{{{{label}}}}}", value)
                    points = [(at - start, float(value)) for at, value in series["values"]]
                    place.plot(*zip(*points, strict=True), label=legend)
            place.set_title(f"{panel.title} ({panel.unit.value})", fontsize=10)
            place.legend(fontsize=6)
            place.grid(alpha=0.3)
    finally:
        server.stop()
    for place in places.flat[len(panels) :]:
        place.set_visible(False)
    figure.suptitle(f"{board.title}, drawn by matplotlib from recorded metrics (not Grafana); seconds since the start of the recording")
    figure.savefig(output, dpi=60)


if __name__ == "__main__":
    draw(sys.argv[1], Path(sys.argv[2]))
