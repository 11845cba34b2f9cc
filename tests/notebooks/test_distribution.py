"""The notebook on distribution keeps its promises when it runs from top to bottom."""

import re

import pytest

from tests.notebooks.conftest import cells_of, execute, text_of

#: Seconds for all of it, kernel included, and what it may weigh with its outputs.
WHOLE_S, LARGEST_BYTES = 20.0, 300_000


@pytest.mark.notebook
def test_the_notebook_runs_from_top_to_bottom(tmp_path):
    """Within 20 s and without a cluster: figures by hand, each with its method; panel and pictures are shown."""
    took_s = execute("05_distribution.ipynb", tmp_path, 60)
    cells = cells_of(tmp_path)
    code = [cell for cell in cells.values() if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert took_s <= WHOLE_S
    assert (tmp_path / "executed.ipynb").stat().st_size <= LARGEST_BYTES

    said = {name: text_of(cells[name]) for name in ("star", "best", "kill", "claims", "constant", "check")}
    assert re.search(r"star:\s+16\.02 L computed", said["star"])
    assert "multitree m=7, c=8:  36.5 models/s of 53.8 possible, 298 hosts, computed" in said["best"]
    assert "h11 (relay 3) lost half way; 15 of 16 hosts complete" in said["kill"]
    assert "3.12x computed, 3.03x simulated" in said["claims"]
    assert said["claims"].count("10.90 L computed, 10.90 L simulated") == 2
    assert re.findall(r"\+(\d+) %", said["constant"]) == ["16", "46"]
    assert said["check"].startswith("checked: ")
    for name, kind in (("panel", "widget-view+json"), ("kill", "plotly"), ("race", "plotly"), ("scaling", "plotly")):
        (shown,) = [output["data"] for output in cells[name]["outputs"] if output["output_type"] == "execute_result"]
        assert "text/html" in shown
        assert name != "panel" or "data-drlnb-twin" in "".join(cells[name]["outputs"][0]["data"]["text/html"])
        assert any(kind in mime for mime in shown), shown.keys()
        assert "simulated" in "".join(shown["text/html"]) or name in {"panel", "scaling"}
