"""The metrics file: grows columns, survives a kill, goes on."""

import csv

from drlnb.rl.tracking.metrics import GLOSSARY, MetricsCsv


def rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_new_metric_widens_the_header(tmp_path):
    """A key that appears in row 2 becomes a column; row 1 has an empty cell there."""
    file = MetricsCsv(tmp_path / "m.csv")
    file.write({"a": 1, "b": 0.5})
    file.write({"a": 2, "c": float("nan")})
    file.close()
    assert rows(tmp_path / "m.csv") == [{"a": "1", "b": "0.5", "c": ""}, {"a": "2", "b": "", "c": "nan"}]


def test_an_existing_file_is_continued(tmp_path):
    """Reopened, the columns stay and rows are appended."""
    for number in (1, 2):
        file = MetricsCsv(tmp_path / "m.csv")
        file.write({"a": number, "b": "x,y"})
        file.close()
    assert rows(tmp_path / "m.csv") == [{"a": "1", "b": "x,y"}, {"a": "2", "b": "x,y"}]


def test_a_torn_row_is_dropped(tmp_path):
    """A last line without its end, left by a kill, disappears; what is written next is whole."""
    path = tmp_path / "m.csv"
    path.write_text("a,b\n1,2\n3,")
    file = MetricsCsv(path)
    file.write({"a": 5, "b": 6})
    file.close()
    assert rows(path) == [{"a": "1", "b": "2"}, {"a": "5", "b": "6"}]


def test_each_row_is_on_disk_at_once(tmp_path):
    """Without closing, a reader sees the row."""
    file = MetricsCsv(tmp_path / "m.csv")
    file.write({"a": 1})
    assert rows(tmp_path / "m.csv") == [{"a": "1"}]
    file.close()


def test_every_metric_has_unit_and_meaning():
    """No glossary line is empty."""
    assert all(meaning.unit and meaning.text for meaning in GLOSSARY.values())
