"""The notebook on batching keeps its promises when it runs from top to bottom."""

import re

import pytest

from tests.notebooks.conftest import cells_of, execute, text_of

#: Seconds for all of it, a cluster and four trainings included, and what it may weigh with its outputs.
WHOLE_S, LARGEST_BYTES = 60.0, 300_000


@pytest.mark.notebook
def test_the_notebook_runs_from_top_to_bottom(tmp_path):
    """Two members fit a module by their speeds; planners stand beside the optimum, samples are counted; equal bits."""
    took_s = execute("03_batching.ipynb", tmp_path, 180)
    cells = cells_of(tmp_path)
    code = [cell for cell in cells.values() if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert (tmp_path / "executed.ipynb").stat().st_size <= LARGEST_BYTES

    said = {name: text_of(cells[name]) for name in ("fit", "unequal", "worth", "quorum", "gang", "rows", "check")}
    assert re.search(r"^equal: \d+ ms a step; .*: A 100, B 100 samples", said["fit"], re.MULTILINE)
    assert re.search(r"^jump-reset: \d+ ms a step; .*, all used$", said["fit"], re.MULTILINE)
    assert re.search(r"^(9\d|100)% of the samples are classified right$", said["fit"], re.MULTILINE)
    assert "by equal: A 64, B 64, C 64, D 64, E 64, F 64, G 64, H 64 samples, 1.3 s" in said["unequal"]
    assert re.search(r"^static +2\.\d\d +1\.0\d", said["worth"], re.MULTILINE)
    assert re.search(r"\d+ not used so far", said["quorum"])
    assert re.search(r"ms with two; same bits: True\n", said["gang"])
    assert re.search(r"\d+ gradients were shared", said["rows"])
    assert said["check"].startswith("checked: ")
    for name, kind in (
        ("panel", "widget-view"),
        ("fit-panel", "widget-view"),
        ("live", "widget-view"),
        ("slow", "plotly"),
        ("speeds", "plotly"),
    ):
        (shown,) = [output["data"] for output in cells[name]["outputs"] if output["output_type"] == "execute_result"]
        assert "text/html" in shown
        assert any(kind in mime for mime in shown), shown.keys()
    assert took_s <= WHOLE_S
