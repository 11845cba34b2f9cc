"""The course of a bench over its groups: what is printed, written and returned."""

import json

import pytest

from benchmarks.efforts import Runtime
from benchmarks.frame.bench import Bench
from benchmarks.frame.rows import Bar, Row


def good(effort):
    """Measure a row that misses its bar, a sample per repeat."""
    return (Row("good", "a good one", (2.0,) * effort.repeats, bar=Bar("value", 1.0)),)


def bad(effort):
    """Fail as a cluster does."""
    raise TimeoutError("it never came")
    yield effort


BENCH = Bench("fake", "Measure nothing.", {"good": good, "bad": bad}, Runtime)


def test_chosen_rows_are_measured_with_the_effort_asked_for(tmp_path, capsys):
    """One group asked for is one group measured; its row is printed and written."""
    path = tmp_path / "rows.json"
    assert BENCH.main(["--rows", "good", "--repeats", "7", "--json", str(path)]) == 0
    (row,) = json.loads(path.read_text())["rows"]
    assert (row["id"], row["spread"]["value"]["n"]) == ("good", 7)
    printed = capsys.readouterr().out
    assert "good: a good one" in printed
    assert "0 of 1 bars hold; missed: good" in printed


def test_a_missed_bar_fails_only_strict():
    """2 s against a bar of 1 s: data without --strict, exit 1 with it."""
    assert BENCH.main(["--rows", "good", "--strict"]) == 1


def test_a_group_that_breaks_takes_no_other_along(tmp_path, capsys):
    """It becomes a row with the reason, and the exit code shows that not all could be measured."""
    path = tmp_path / "rows.json"
    assert BENCH.main(["--json", str(path)]) == 1
    assert [row["id"] for row in json.loads(path.read_text())["rows"]] == ["good", "bad"]
    assert "not measured: TimeoutError: it never came" in capsys.readouterr().out


def half(effort):
    """Measure a row, and fail at the next one."""
    yield Row("first", "it went well", (1.0,))
    raise OSError("no disk")


def test_a_row_is_written_once_it_is_there(tmp_path, capsys, monkeypatch):
    """What was measured before its group broke, or was stopped, is kept: after each row the file is whole."""
    bench, path = Bench("fake", "Measure.", {"half": half}, Runtime), tmp_path / "rows.json"
    written = []
    monkeypatch.setattr(Row, "lines", lambda row: written.append(path.read_text().count('"id"')) or [row.id])
    assert bench.main(["--json", str(path)]) == 1
    assert written == [0, 1]
    assert [row["id"] for row in json.loads(path.read_text())["rows"]] == ["first", "half"]


def test_help_names_options_and_defaults(capsys):
    """Each option has its line, numbers their default."""
    with pytest.raises(SystemExit):
        BENCH.main(["--help"])
    text = capsys.readouterr().out
    assert "interleaved pairs per row (default 3)" in text
    assert "only these, by comma: good, bad" in text
