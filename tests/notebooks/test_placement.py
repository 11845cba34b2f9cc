"""The notebook on placement keeps its promises when it runs from top to bottom."""

import re

import pytest

from tests.notebooks.conftest import cells_of, execute, text_of

#: Seconds for all of it, a cluster and a training included, and what it may weigh with its outputs.
WHOLE_S, LARGEST_BYTES = 60.0, 450_000


@pytest.mark.notebook
def test_the_notebook_runs_from_top_to_bottom(tmp_path):
    """The null regime first, then where placement matters; a slot that is broken costs its gang a round, no more."""
    took_s = execute("06_placement.ipynb", tmp_path, 180)
    cells = cells_of(tmp_path)
    code = [cell for cell in cells.values() if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert (tmp_path / "executed.ipynb").stat().st_size <= LARGEST_BYTES

    said = {name: text_of(cells[name]) for name in ("fleet", "check")}
    assert re.search(r"s  PlacementAsked +\S+", said["fleet"])
    assert re.search(r"s  SlotFailed +", said["fleet"])
    assert re.match(r"checked: random is (1\.00\d|0\.99\d) of healthiest, ect 0\.[67]\d ", said["check"])
    shown = {}
    for name in ("null", "map", "far", "lemons", "gantt", "health", "panel", "live", "stop"):
        (shown[name],) = [out["data"] for out in cells[name]["outputs"] if out["output_type"] == "execute_result"]
    assert "null regime" in "".join(shown["null"]["text/plain"])
    assert "null regime" not in "".join(shown["lemons"]["text/plain"])
    assert all("text/html" in data for data in shown.values())
    assert all(any("widget-view" in mime for mime in shown[name]) for name in ("panel", "live"))
    assert took_s <= WHOLE_S
