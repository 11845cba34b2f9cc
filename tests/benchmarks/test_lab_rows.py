"""What the rows of the bench of JupyterLab claim, and how what failed is shown; no browser here."""

import ast
import json

import pytest

from benchmarks.frame.rows import Paired
from drlnb.records.errors import ConfigError
from tests.browser.bench import page, rows


def test_a_missing_browser_is_an_error(monkeypatch, tmp_path, capsys):
    """Where no Chromium is, the bench fails, every row names what is missing, and the JSON file has them all."""
    monkeypatch.setattr(rows, "missing", lambda: "not installed: Chromium")
    path = tmp_path / "lab.json"
    assert rows.main(["--json", str(path)]) == 1
    assert capsys.readouterr().out.count("not measured: not installed: Chromium") == len(rows.ROWS)
    written = json.loads(path.read_text(encoding="utf-8"))["rows"]
    assert [row["id"] for row in written] == list(rows.ROWS)
    assert {row["value"] for row in written} == {None}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--repeats", "0"], "--repeats must be >= 1, got 0"),
        (["--rows", "reloaf"], "did you mean 'reload'"),
        (["--brouwser"], "unrecognized arguments: --brouwser"),
    ],
)
def test_wrong_words_are_refused(words, message):
    """Each is answered with the option, the limit and the value that was given."""
    with pytest.raises(ConfigError, match=message):
        rows.main(words)


def test_rows_that_failed_do_not_hide_the_others(monkeypatch):
    """A group that breaks names the reason in its own rows; one that does not has its samples."""
    pytest.importorskip("playwright")

    def breaks(*_):
        raise RuntimeError("no picture came\nat all")

    def left(*_):
        return [Paired(samples=(0.0,), baseline_samples=(), pairs=())]

    monkeypatch.setattr(rows, "missing", lambda: "")
    monkeypatch.setattr(rows, "_shared", lambda: (None, None))
    monkeypatch.setattr(rows, "GROUPS", {"reload": (breaks, ("reload", "reload-added")), "left": (left, ("left",))})
    made = [row for name in rows.GROUPS for row in rows.group(rows.Effort(repeats=1), name)]
    assert [(row.id, row.value) for row in made] == [("reload", None), ("reload-added", None), ("left", 0.0)]
    assert {row.not_measured for row in made} == {"RuntimeError: no picture came", ""}


def test_the_bars_are_those_that_were_promised():
    """First render and report 1 s, clicks 100 ms, hub 2 ms and 20 KB/s, reload 3 s, report 500 KB, nothing left."""
    bars = {name: row.bar.at_most for name, row in rows.ROWS.items() if row.bar is not None and row.bar.on == "value"}
    assert bars == {
        "first-render": 1.0,
        "click-idle": 0.1,
        "click-busy": 0.1,
        "hub-cpu": 0.002,
        "hub-bytes": 20_000,
        "reload": 3.0,
        "report-size": 500_000,
        "report-draw": 1.0,
        "left": 0.0,
    }
    assert all(row.against for name, row in rows.ROWS.items() if name not in {"left", "reload-added"})


def test_every_row_has_a_group():
    """Together the groups measure all rows, in order."""
    assert [name for _, names in rows.GROUPS.values() for name in names] == list(rows.ROWS)


def test_cells_are_python():
    """Each cell that is typed into the notebook can be parsed."""
    for cell in page.CELLS:
        compile(cell, "cell", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
