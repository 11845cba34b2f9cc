import csv
import tracemalloc

import pytest

from drlnb.fleet.rows.export import MetricsCsv, MetricsExport
from drlnb.records.journal import Journal, Stream, StreamOpened
from drlnb.records.round import MetricsRecorded
from drlnb.views.folds.entries import decoded
from tests.fleet.conftest import finished, opened, row


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def rounds(path):
    return [line["time/iterations"] for line in rows_of(path)]


def test_each_finished_round_is_a_line(tmp_path):
    """Names of columns are Stable-Baselines3's; the final evaluation is a line of its own."""
    export = MetricsExport(tmp_path / "metrics")
    export.feed(decoded([opened("a"), finished("a", 1, **{"rollout/ep_rew_mean": 20.0}), finished("a", 2)]))
    judged = row("a", "EvaluationFinished", failure="", mean_reward=99.0, episodes=[[9.0, 9, 1.0], [9.0, 9, 0.0]])
    export.feed(decoded([judged, finished("b", 1)]))
    export.close()
    lines = rows_of(tmp_path / "metrics" / "a.csv")
    assert [line["time/total_timesteps"] for line in lines] == ["100", "200", "200"]
    assert lines[0]["rollout/ep_rew_mean"] == "20.0"
    assert (lines[2]["eval/mean_reward"], lines[2]["eval/success_rate"]) == ("99.0", "0.5")
    assert rounds(tmp_path / "metrics" / "b.csv") == ["1"]


def test_rounds_that_are_made_again_are_written_once(tmp_path):
    """A new attempt begins behind round 2: round 3 of the old attempt goes, also from a file of an earlier day."""
    export = MetricsExport(tmp_path)
    export.feed(decoded([opened("a"), *(finished("a", i) for i in (1, 2, 3))]))
    export.close()
    export = MetricsExport(tmp_path)
    export.feed(decoded([opened("a", attempt=2, n_rounds=2), finished("a", 3, attempt=1), finished("a", 3, attempt=2)]))
    export.close()
    assert rounds(tmp_path / "a.csv") == ["1", "2", "3"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv"]


def test_a_disk_that_refuses_ends_the_export_and_not_the_training(tmp_path):
    """The failure is told once; later rows are left to the journal."""
    (tmp_path / "metrics").write_text("a file where the folder should be")
    export = MetricsExport(tmp_path / "metrics")
    export.feed(decoded([finished("a", 1)]))
    export.feed(decoded([finished("a", 2)]))
    assert export.failure == "metrics/*.csv: File exists; the journal has all rows"


def test_missed_rows_come_back_from_the_journal(tmp_path):
    """The files are made anew, attempts in their order."""
    streams = {}
    for attempt, n in ((10, 2), (9, 1)):
        name = f"task-a-a{attempt}"
        header = StreamOpened(stream=name, machine="round", config={}, origin="measured", version="0")
        record = MetricsRecorded(round=n, n_timesteps=n, metrics={"time/iterations": n})
        streams[name] = Stream(header=header, records=(record,), torn=False, source=name)
    (tmp_path / "a.csv").write_text("time/iterations\n7\n")
    MetricsExport(tmp_path).rebuild(Journal(streams=streams))
    assert rounds(tmp_path / "a.csv") == ["1", "2"]


def test_a_new_metric_widens_the_header(tmp_path):
    """A key that appears in row 2 becomes a column; row 1 has an empty cell there."""
    file = MetricsCsv(tmp_path / "m.csv")
    file.write({"a": 1, "b": 0.5})
    file.write({"a": 2, "c": float("nan")})
    file.close()
    assert rows_of(tmp_path / "m.csv") == [{"a": "1", "b": "0.5", "c": ""}, {"a": "2", "b": "", "c": "nan"}]


def test_an_existing_file_is_continued(tmp_path):
    """Reopened, the columns stay and rows are appended."""
    for number in (1, 2):
        file = MetricsCsv(tmp_path / "m.csv")
        file.write({"a": number, "b": "x,y"})
        file.close()
    assert rows_of(tmp_path / "m.csv") == [{"a": "1", "b": "x,y"}, {"a": "2", "b": "x,y"}]


def test_a_torn_row_is_dropped(tmp_path):
    """A last line without its end, left by a kill, disappears; what is written next is whole."""
    path = tmp_path / "m.csv"
    path.write_text("a,b\n1,2\n3,")
    file = MetricsCsv(path)
    file.write({"a": 5, "b": 6})
    file.close()
    assert rows_of(path) == [{"a": "1", "b": "2"}, {"a": "5", "b": "6"}]


def test_each_row_is_on_disk_at_once(tmp_path):
    """Without closing, a reader sees the row."""
    file = MetricsCsv(tmp_path / "m.csv")
    file.write({"a": 1})
    assert rows_of(tmp_path / "m.csv") == [{"a": "1"}]
    file.close()


@pytest.mark.thorough
def test_a_long_file_is_continued_row_by_row(tmp_path):
    """10,000 rows, of which 9,000 stay and get a column more, are never all in memory."""
    path = tmp_path / "m.csv"
    names = ["time/iterations", *(f"m{i}" for i in range(9))]
    path.write_text("".join(f"{','.join(row)}\n" for row in (names, *([str(n)] * 10 for n in range(1, 10_001)))))
    tracemalloc.start()
    file = MetricsCsv(path, 9_000)
    file.write({"time/iterations": 9_001, "new": 1})
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    file.close()
    assert rounds(path) == [str(n) for n in range(1, 9_002)]
    assert rows_of(path)[-1]["new"] == "1"
    assert peak < 500_000
