"""The arguments of ``drlnb bench lab``, what its rows claim, and how what failed is told; no browser here."""

import ast
import json
import signal
import subprocess
import sys

import psutil
import pytest

from drlnb.bench import anchor, lab, lab_rows
from drlnb.bench.lab_page import CELLS
from drlnb.bench.report import Row
from drlnb.records.errors import ConfigError


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--repeats", "0"], "--repeats must be >= 1, got 0"),
        (["--repeats", "many"], "argument --repeats: invalid int value: 'many'"),
        (["--brouwser"], "unrecognized arguments: --brouwser"),
        (["--json", "/nowhere/at/all.json"], "/nowhere/at/all.json cannot be written"),
    ],
)
def test_wrong_words_are_refused_before_anything_starts(monkeypatch, argv, message):
    """Each is the person's to mend, and is told with the value that they gave."""
    monkeypatch.setattr(lab, "_rows", lambda **_: pytest.fail("something was measured"))
    with pytest.raises(ConfigError, match=message):
        lab.main(argv)


def test_without_a_browser_every_row_says_why(tmp_path, capsys):
    """Nothing is measured, nothing is held against it, and the JSON file names every row."""
    path = tmp_path / "lab.json"
    assert lab.main(["--json", str(path)]) == 0
    assert capsys.readouterr().out.count("not measured: needs a browser: add --browser") == len(lab.ROWS)
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    assert [row["id"] for row in rows] == list(lab.ROWS)
    assert {row["value"] for row in rows} == {None}


def test_a_missing_browser_is_an_error(monkeypatch, capsys):
    """Asked to measure where no Chromium is, the bench fails and says what is missing."""
    monkeypatch.setattr(lab, "missing", lambda: "not installed: Chromium")
    assert lab.main(["--browser"]) == 1
    assert "not measured: not installed: Chromium" in capsys.readouterr().out


def test_rows_that_failed_do_not_hide_the_others(monkeypatch, capsys):
    """What was measured is shown; what was not says so, and the exit code is 1."""
    found = {"left": Row(id="left", what="things", unit="things", samples=(0.0,), bar=lab.ROWS["left"].bar)}
    monkeypatch.setattr(lab, "missing", lambda: "")
    monkeypatch.setattr(lab_rows, "measure", lambda repeats: found)
    assert lab.main(["--browser"]) == 1
    text = capsys.readouterr().out
    assert text.count("not measured: not reached") == len(lab.ROWS) - 1
    assert "1 of 10 bars hold" in text


def test_the_bars_are_the_issues():
    """First render and report 1 s, clicks 100 ms, hub 2 ms and 20 KB/s, reload 3 s, report 500 KB, nothing left."""
    bars = {name: row.bar.at_most for name, row in lab.ROWS.items() if row.bar is not None and row.bar.on == "value"}
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
    assert all(row.against for name, row in lab.ROWS.items() if name not in {"left", "reload-added"})


def test_every_group_names_its_rows():
    """A group that fails marks its own rows, and together they are all there are."""
    groups = ("_render", "_clicks", "_hub", "_reload", "_report", "_left")
    named = [name for group in groups for name in lab_rows._failed(group, "broken")]
    assert sorted(named) == sorted(lab.ROWS)
    assert lab_rows._failed("_left", "broken")["left"].not_measured == "broken"


def test_cells_are_python():
    """Each cell that is typed into the notebook can be parsed."""
    for cell in CELLS:
        compile(cell, "cell", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def anchored(code: str) -> subprocess.Popen[bytes]:
    """Start a Python that hangs on an anchor."""
    words = [sys.executable, "-P", anchor.__file__, sys.executable, "-c", code]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


@pytest.mark.cluster
def test_the_anchor_gives_its_childs_exit_code():
    """A command that ends by itself is all there was."""
    with anchored("raise SystemExit(7)") as held:
        assert held.wait(60) == 7


@pytest.mark.cluster
def test_the_anchor_takes_everything_along():
    """The life line closes: the child goes, and so does what it has put into a session of its own."""
    code = """if True:
        import signal, subprocess, sys
        stray = "import os, signal; print(os.getpid(), flush=True); signal.pause()"
        subprocess.Popen([sys.executable, "-c", stray], start_new_session=True)
        signal.pause()
    """
    with anchored(code) as held:
        stray = psutil.Process(int(held.stdout.readline()))
        held.stdin.close()
        assert held.wait(60) == 128 + signal.SIGKILL
        assert not stray.is_running() or stray.status() == psutil.STATUS_ZOMBIE
