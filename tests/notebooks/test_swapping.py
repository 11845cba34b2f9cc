"""The notebook on swapping keeps its promises when it runs from top to bottom."""

import re

import pytest

from tests.notebooks.conftest import cells_of, execute, text_of

#: Seconds for all of it, a cluster and a training included, and what it may weigh with its outputs.
WHOLE_S, LARGEST_BYTES = 60.0, 300_000


@pytest.mark.notebook
def test_the_notebook_runs_from_top_to_bottom(tmp_path):
    """Within a minute: the same bits under a budget, planners beside the optimum, a training, a slow disk."""
    took_s = execute("04_swapping.ipynb", tmp_path, 180)
    cells = cells_of(tmp_path)
    code = [cell for cell in cells.values() if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert (tmp_path / "executed.ipynb").stat().st_size <= LARGEST_BYTES

    said = {
        name: text_of(cells[name])
        for name in ("ten", "plan", "simulator", "learnt", "subset", "steps", "drift", "check")
    }
    assert said["ten"].endswith("the same weights, bit by bit: True\n")
    assert re.search(r"swap +gap [\d.]+ ms, copies [\d.]+ ms", said["plan"])
    assert re.search(r"all: +3\.1\dx of keeping all", said["simulator"])
    assert re.search(r"greedy: +1\.0\dx of keeping all", said["simulator"])
    assert re.search(
        r"in 300 trials, \d+ % of them chosen by chance, the best set of layer types, cost [\d.]+, ", said["learnt"]
    )
    peaks = re.findall(
        r"[45] of 5 batches: course [\d.]+ s, peak ([\d.]+) MiB; a step after it [\d.]+ ms", said["subset"]
    )
    assert len(peaks) == 2
    assert all(float(peak) <= 8 for peak in peaks), "the budget holds in trials, too"
    assert said["steps"].startswith("belt: plan ")
    assert said["drift"].startswith("slow: plan ")
    assert re.search(r"kept, (.*, )?link measured", said["drift"])
    assert said["check"].startswith("checked: ")
    for name, kind in (("panel", "widget-view"), ("live", "widget-view"), ("learnt", "plotly"), ("steps", "plotly")):
        (shown,) = [output["data"] for output in cells[name]["outputs"] if output["output_type"] == "execute_result"]
        assert "text/html" in shown
        assert any(kind in mime for mime in shown), shown.keys()
    assert took_s <= WHOLE_S
