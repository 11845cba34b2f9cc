"""The notebooks that are kept here are clean, and it would be seen if one were not."""

import copy
import json

import pytest

from tests.notebooks.conftest import NOTEBOOKS
from tests.notebooks.hygiene import findings, source


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_clean(path):
    """No outputs, no counts, no widget state; named cells of at most 40 lines; a check at the end."""
    assert findings(json.loads(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_links_lead_to_files(path, root):
    """A relative link in a notebook names a file of the repository."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    links = [part.partition(")")[0] for cell in cells for part in source(cell).split("](")[1:]]
    assert [link for link in links if not (root / "notebooks" / link).exists()] == []


def _first_code(notebook):
    return next(cell for cell in notebook["cells"] if cell["cell_type"] == "code")


PLANTS = {
    "stored": (lambda nb: _first_code(nb)["outputs"].append({"output_type": "stream"}), "output or count is stored"),
    "counted": (lambda nb: _first_code(nb).update(execution_count=3), "output or count is stored"),
    "state": (lambda nb: nb["metadata"].update(widgets={}), "metadata.widgets is there"),
    "kernel": (lambda nb: nb["metadata"]["kernelspec"].update(name="conda-env-py"), "the kernel is not python3"),
    "long": (lambda nb: _first_code(nb).update(source="x = 1\n" * 41), "41 lines, at most 40"),
    "anonymous": (lambda nb: _first_code(nb).update(id="3f2a"), "its id is not a word"),
    "twin": (lambda nb: nb["cells"].insert(1, copy.deepcopy(nb["cells"][0])), "two cells have the same id"),
    "unchecked": (lambda nb: nb["cells"].pop(), "the last cell is not tagged check"),
    "blocking": (lambda nb: _first_code(nb).update(source="run.wait()"), "run.wait() blocks"),
    "network": (lambda nb: _first_code(nb).update(source="'https://example.org/x.js'"), "names an address outside"),
}


@pytest.mark.parametrize("plant", PLANTS)
def test_a_planted_violation_is_found(plant, root):
    """Each rule is broken once in a copy of the tour, and said in words."""
    notebook = json.loads((root / "notebooks" / "00_tour.ipynb").read_text(encoding="utf-8"))
    break_it, said = PLANTS[plant]
    break_it(notebook)
    assert any(said in finding for finding in findings(notebook))
