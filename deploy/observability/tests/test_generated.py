"""The committed files are those that the source generates, and Grafana can lay them out."""

import itertools
import json

import pytest

from podium_observability import dashboards, grafana
from podium_observability.__main__ import HERE, RUNBOOKS, generated
from podium_observability.model import Dashboard

BOARDS = pytest.mark.parametrize("board", dashboards.ALL, ids=lambda board: board.uid)


@pytest.mark.parametrize("path", generated(), ids=lambda path: path.name)
def test_a_committed_file_is_the_generated_one(path) -> None:
    assert path.read_text() == generated()[path], f"run: uv run python -m podium_observability generate ({path})"


def test_no_dashboard_is_left_over() -> None:
    assert set((HERE / "dashboards").glob("*")) == {path for path in generated() if path.parent.name == "dashboards"}


@BOARDS
def test_panels_have_own_ids_and_do_not_overlap(board: Dashboard) -> None:
    panels = json.loads(grafana.dashboard_json(board))["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        area = set(itertools.product(range(at["x"], at["x"] + at["w"]), range(at["y"], at["y"] + at["h"])))
        assert not taken & area, panel["title"]
        assert at["x"] + at["w"] <= grafana.COLUMNS, panel["title"]
        taken |= area


@BOARDS
def test_a_panel_uses_only_variables_of_its_dashboard(board: Dashboard) -> None:
    known = {variable.name for variable in board.variables}
    for row in board.rows:
        for panel in row.panels:
            for query in panel.queries:
                used = {part.split('"')[0] for part in query.expression.replace("$__", "").split("$")[1:]}
                assert used <= known, (panel.title, used - known)


def test_every_panel_says_how_to_read_it() -> None:
    for board in dashboards.ALL:
        for row in board.rows:
            assert all(panel.what.endswith(".") for panel in row.panels), row.title


def test_runbooks_are_in_the_documents() -> None:
    assert (RUNBOOKS / "README.md").is_file()
