"""A run that is played back: no process, no cluster, and the same answers as while it trained."""

import asyncio
import gc
import threading
from dataclasses import replace

import pytest

import drlnb
from drlnb.fleet.playback import readable
from drlnb.fleet.rows import row_feed
from drlnb.records.base import Record
from drlnb.records.errors import CheckpointError, ConfigError, JournalError
from drlnb.records.journal import JOURNAL_FORMAT, StreamOpened, line_of
from drlnb.records.round import EndTask, MetricsRecorded, PauseAsked, TaskOpened
from drlnb.rl.pickled import pack
from drlnb.runtime.files.run_directory import RunDir


def rounds(task, *, first_t, n, end="done"):
    """Return a stream in which round k of `task` ends at ``first_t + k`` seconds."""
    name = f"task-{task}-a1"
    header = StreamOpened(stream=name, machine="round", config={}, origin="measured", version="0.1.0")
    before = {"version": 0, "n_rounds": 0, "n_timesteps": 0, "elapsed_s": 0.0, "episodes": (), "n_bytes": 0}
    records = [header, TaskOpened(t=first_t, attempt=1, **before)]
    for k in range(1, n + 1):
        scalars = {"time/iterations": k, "time/total_timesteps": 100 * k, "round/time_s": 1.0}
        records += [PauseAsked(t=first_t + k), MetricsRecorded(round=k, n_timesteps=100 * k, metrics=scalars)]
    return [*records, *([EndTask(state=end, reason="")] if end else [])]


@pytest.fixture
def out(tmp_path, specs):
    """Write the directory of a run of 5 s: three rounds of `a`, five of `b`."""
    folder = RunDir(tmp_path / "run")
    folder.create({"run": "r1", "tasks": [spec.to_plain() for spec in specs], "planners": {"hold": "last"}})
    for task, n in (("a", 3), ("b", 5)):
        text = "".join(map(line_of, rounds(task, first_t=0.0, n=n)))
        (folder.journal / f"task-{task}-a1.jsonl").write_text(text, encoding="utf-8")
    return folder.path


def steps(run):
    return {name: (task.state, task.n_timesteps) for name, task in run.tasks.items()}


def test_all_at_once_is_the_run_as_it_ended(out):
    """No thread, and the answers of a training: status, tasks, journal, summary, planners."""
    before = set(threading.enumerate())
    for speed in (None, float("inf")):
        run = drlnb.play(out, speed=speed)
        assert set(threading.enumerate()) == before
        assert (run.ended, run.status, run.duration_s, run.t_s) == (True, "done", 5.0, 5.0)
        assert steps(run) == {"a": ("done", 300), "b": ("done", 500)}
        assert run.planners == {"hold": "last"}
        assert len(run.journal().of(MetricsRecorded)) == 8
        assert [row["timesteps"] for row in run.watch.summary()["tasks"]] == [300, 500]
        assert run.wait(0.0).keys() == {"a", "b"}
        assert repr(run) == "<Recording r1 done: a 300/1,000, b 500/1,000>"


def test_a_second_of_the_run_is_shown_as_it_was(out):
    """Seeking forth and back: tasks, journal and a watcher's rows are those of that second."""
    run = drlnb.play(out, speed=None)
    tap = run.watch.feed.tap()
    assert len(tap.drain()[1]) == 22
    run.seek(2.5)
    assert steps(run) == {"a": ("running", 200), "b": ("running", 200)}
    assert [row.round for row in run.journal().of(MetricsRecorded)] == [1, 2, 1, 2]
    anew, rows = tap.drain()
    assert (anew, sum(isinstance(record, MetricsRecorded) for _, record in rows)) == (True, 4)
    run.seek(4)
    assert steps(run) == {"a": ("done", 300), "b": ("running", 400)}
    anew, rows = tap.drain()
    assert (anew, sum(isinstance(record, MetricsRecorded) for _, record in rows)) == (False, 3)
    for wrong in (-1, 5.1, "2", True, float("nan")):
        with pytest.raises(ConfigError, match=r"t_s must be from 0 to 5\.0 s, the length of this recording, got"):
            run.seek(wrong)


def test_streams_come_as_they_happened(out):
    """Rows of both tasks by their seconds, each stream in its order: headers, then what opened them, then rounds."""
    run = drlnb.play(out, speed=None)
    rows = [(stream[5], record) for stream, record in run.watch.feed.tap().drain()[1]]
    assert [task for task, record in rows if isinstance(record, PauseAsked)] == list("abababbb")
    for task, n in (("a", 3), ("b", 5)):
        mine = [record for name, record in rows if name == task]
        assert list(map(line_of, mine)) == list(map(line_of, rounds(task, first_t=0.0, n=n)))


@pytest.mark.thorough
def test_who_plays_a_run_back_holds_its_newest_rows_only(tmp_path, specs, monkeypatch):
    """So many records are alive after 150 rounds as after 1,500; the journal that it shows is whole all the same."""
    monkeypatch.setattr(row_feed, "_MOST", 50)
    alive = []
    for n in (150, 1_500):
        folder = RunDir(tmp_path / str(n))
        folder.create({"run": "r1", "tasks": [specs[0].to_plain()]})
        (folder.journal / "task-a-a1.jsonl").write_text("".join(map(line_of, rounds("a", first_t=0.0, n=n))))
        run = drlnb.play(folder.path, speed=None)
        assert run.tasks["a"].n_timesteps == 100 * n
        assert sum(1 for stream in run.journal().streams.values() for _ in stream.records) == 2 * n + 2
        run.seek(n / 2)
        assert run.tasks["a"].n_timesteps == 50 * n
        assert len(run.journal().of(MetricsRecorded)) == n // 2
        alive.append(sum(issubclass(type(each), Record) for each in gc.get_objects()))
        run.close()
        del run
        gc.collect()
    assert alive[1] - alive[0] < 300, "of 2,700 more"


def test_it_plays_on_a_clock(out):
    """At 100 s per second the five seconds are over soon; awaiting it ends then, and its thread with it."""
    run = drlnb.play(out, speed=100)
    assert run.status == "running"
    assert asyncio.run(_awaited(run)).keys() == {"a", "b"}
    assert (run.status, run.t_s) == ("done", 5.0)
    run.close()
    run.close()


async def _awaited(run):
    return await run


def test_a_recording_that_is_closed_plays_no_further(out):
    """What was played stays; waiting ends."""
    run = drlnb.play(out, speed=0.001)
    run.close()
    assert (run.watch.closed, run.ended, run.status) == (True, True, "running")
    assert run.wait(0.0)["a"].n_timesteps == 0


@pytest.mark.parametrize("wish", ["stop", "pause", "resume", "checkpoint", "restart"])
def test_it_cannot_be_steered(out, wish):
    """Every wish is answered in words, for one task or all."""
    run = drlnb.play(out, speed=None)
    for arguments in ((), ("a",)):
        with pytest.raises(ConfigError, match="this is a recording of run r1: nothing can be changed in it"):
            getattr(run, wish)(*arguments)
    with pytest.raises(ConfigError, match="this is a recording"):
        run.set("leasing.hold", "last")
    with pytest.raises(ConfigError, match="this is a recording"):
        run.track("tensorboard")
    with pytest.raises(ConfigError, match="this is a recording"):
        run.record("mine/x", 1.0)
    assert run.watch.refusal == "this is a recording"


def test_an_interrupted_run_ends_where_its_journal_ends(out):
    """Nobody waits for a task whose end was never written."""
    path = out / "journal" / "task-b-a1.jsonl"
    path.write_text("".join(map(line_of, rounds("b", first_t=0.0, n=2, end=""))), encoding="utf-8")
    run = drlnb.play(out, speed=None)
    assert steps(run) == {"a": ("done", 300), "b": ("stopped", 200)}


@pytest.mark.parametrize(
    ("damage", "said", "kept"),
    [
        (lambda text: text[:-20], "task-b-a1.jsonl: its last line was cut off; 1 row is missing", 5),
        (lambda text: text.replace('"round":3', '"round":', 1), "rows from there on are missing", 2),
        (lambda text: "x" + text, "rows from there on are missing", 0),
    ],
)
def test_a_damaged_journal_is_shown_as_far_as_it_goes(out, damage, said, kept):
    """What is missing is said in words, with the place; the other streams are whole."""
    path = out / "journal" / "task-b-a1.jsonl"
    path.write_text(damage(path.read_text(encoding="utf-8")), encoding="utf-8")
    run = drlnb.play(out, speed=None)
    (notice,) = run.notices
    assert said in notice
    assert str(path) in notice
    assert len(run.journal().streams["task-a-a1"].of(MetricsRecorded)) == 3
    assert run.tasks["b"].n_timesteps == 100 * kept


def test_what_cannot_be_played_is_said(tmp_path, out):
    """No run, no journal, a journal of another format, no speed."""
    with pytest.raises(ConfigError, match=r"holds no run of drlnb \(no run.json\)"):
        drlnb.play(tmp_path)
    for speed in (0, -1, "fast", True, float("nan")):
        with pytest.raises(ConfigError, match="speed must be a number > 0, or None for all at once, got"):
            drlnb.play(out, speed=speed)
    path = out / "journal" / "task-b-a1.jsonl"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(f'"format":{JOURNAL_FORMAT}', '"format":99', 1), encoding="utf-8")
    with pytest.raises(
        JournalError, match=r"journal format 99, this drlnb reads \d: read it with the version that wrote it"
    ):
        drlnb.play(out)
    for one in (out / "journal").iterdir():
        one.unlink()
    with pytest.raises(JournalError, match="no journal here"):
        readable(out)


# ------------------------------------------------------------------ code of the directory's author
BOMBS = []


class Bomb:
    def __reduce__(self):
        return BOMBS.append, ("it ran",)


@pytest.mark.parametrize("part", ["env", "policy", "features_extractor_class"])
def test_code_of_the_author_does_not_run_untrusted(tmp_path, specs, part):
    """Watching runs none of it, and a policy that needs it is refused before it is made."""
    code = {"name": "Bomb", "pickled": pack(Bomb())}
    hyperparameters = {"policy": code} if part == "policy" else {"policy_kwargs": {part: code}}
    changes = {"env_factory": pack(Bomb())} if part == "env" else {"hyperparameters": hyperparameters}
    folder = RunDir(tmp_path / "run")
    folder.create({"run": "r1", "tasks": [replace(specs[0], **changes).to_plain()]})
    (folder.journal / "task-a-a1.jsonl").write_text("".join(map(line_of, rounds("a", first_t=0.0, n=3))))
    run = drlnb.play(folder.path, speed=None)
    with pytest.raises(CheckpointError, match=rf"its {part} came from its author's own code, .* trust=True"):
        run.load("a")
    with pytest.raises(CheckpointError, match="has no checkpoint"):
        run.load("a", trust=True)
    assert BOMBS == []
