"""The tour keeps its promises when it runs from top to bottom."""

import pytest

from drlnb.records.common import SettingChanged
from drlnb.records.journal import Journal
from tests.notebooks.conftest import cells_of, execute, text_of

#: Seconds for all of it, and what an executed tour may weigh.  A single plotly FigureWidget weighs 5,000,000.
WHOLE_S, LARGEST_BYTES = 60.0, 300_000


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """Run the tour once; return its folder and the seconds."""
    folder = tmp_path_factory.mktemp("tour")
    return folder, execute("00_tour.ipynb", folder, 100)


@pytest.fixture
def cells(executed):
    """Return the executed cells by id."""
    return cells_of(executed[0])


@pytest.mark.notebook
def test_the_tour_runs_from_top_to_bottom(executed, cells):
    """All cells ran within 60 s, the check at the end too, and the file stays small."""
    folder, took_s = executed
    code = [cell for cell in cells.values() if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert text_of(cells["check"]).startswith("checked: ")
    assert took_s <= WHOLE_S
    assert (folder / "executed.ipynb").stat().st_size <= LARGEST_BYTES


@pytest.mark.notebook
def test_the_tour_changes_a_rule_and_plays(executed, cells):
    """Each of the three tasks heard of the new rule once, and an episode is drawn."""
    (journal,) = executed[0].glob("runs/*/journal")
    streams = [stream for name, stream in Journal.read(journal).streams.items() if name.startswith("task-")]
    assert sum(len(stream.of(SettingChanged)) for stream in streams) == 3
    assert "hold = last: " in text_of(cells["effect"])
    assert "image/svg+xml" in cells["draw"]["outputs"][0]["data"]


@pytest.mark.notebook
@pytest.mark.parametrize("cell", ["fleet", "train", "finish"])
def test_the_tour_shows_panels(cells, cell):
    """Fleet and run end their cells with a widget, and with a picture in HTML for who has no kernel."""
    (shown,) = [output["data"] for output in cells[cell]["outputs"] if output["output_type"] == "execute_result"]
    assert {"application/vnd.jupyter.widget-view+json", "text/html"} <= set(shown), shown
    twins = ["".join(output.get("data", {}).get("text/html", "")) for output in cells[cell]["outputs"]]
    assert any("data-drlnb-twin" in twin and 'class="drlnb-view"' in twin for twin in twins)
