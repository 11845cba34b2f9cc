import csv

from drlnb.fleet.rows.export import MetricsExport
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
    export.feed(decoded([row("a", "EvaluationFinished", failure="", mean_reward=99.0), finished("b", 1)]))
    export.close()
    lines = rows_of(tmp_path / "metrics" / "a.csv")
    assert [line["time/total_timesteps"] for line in lines] == ["100", "200", "200"]
    assert lines[0]["rollout/ep_rew_mean"] == "20.0"
    assert lines[2]["eval/mean_reward"] == "99.0"
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
