"""A run's rows reach sinks in the process that trains, from the first round on; a broken sink is one notice."""

import pytest

from drlnb.fleet import follower as module
from drlnb.fleet.follower import Follower
from drlnb.fleet.rows.row_feed import Rows
from drlnb.fleet.rows.tracking import Tracking
from drlnb.fleet.training import Training
from drlnb.records.errors import ConfigError
from drlnb.rl.tracking.sinks import RunFacts
from drlnb.runtime.files.run_directory import RunDir
from drlnb.views.folds.entries import decoded
from tests.fleet.conftest import ended, finished, header, opened, row
from tests.rl.tracking.test_sinks import Broken, Kept


@pytest.fixture
def training(link, specs, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_PAUSE_S", 0.0)
    run = RunDir(tmp_path / "run")
    run.create({"run": "r1", "tasks": [spec.to_plain() for spec in specs]})
    made = Training(Follower(link, "r1", specs, run))
    yield made
    made.close()


def evaluated(task, mean, failure="", attempt=1):
    fields = {"version": 1, "mean_reward": mean, "std_reward": 0.0, "n_episodes": 5, "failure": failure}
    return row(task, "EvaluationFinished", attempt, **fields) | {"k": "e"}


ENDS = (ended("a"), ended("b"))


def facts_of(specs, out):
    return RunFacts(run_id="r1", out=out, tasks={spec.name: spec.to_plain() for spec in specs})


def test_rows_become_scalars_under_their_names(training, link):
    """Each round's metrics come at its environment step, an evaluation at the latest one, then the sink is closed."""
    sink = Kept()
    training.track(sink)
    link.say(header("a"), opened("a"), finished("a", 1, **{"train/loss": 0.5}), evaluated("a", 7.0), *ENDS)
    training.wait(5)
    assert sink.calls == [
        ("open", "r1", ("a", "b")),
        ("a", 100, {"time/iterations": 1, "time/total_timesteps": 100, "round/time_s": 1.0, "train/loss": 0.5}),
        ("a", 100, {"eval/mean_reward": 7.0}),
        "close",
    ]
    assert training.notices == ()


def test_who_comes_late_hears_it_all(training, link):
    """A sink that is added after the end gets every round of the run, and is closed at once."""
    link.say(header("a"), opened("a"), *(finished("a", n) for n in range(1, 6)), *ENDS)
    training.wait(5)
    sink = Kept()
    training.track(sink)
    assert [call[1] for call in sink.calls[1:-1]] == [100, 200, 300, 400, 500]
    assert sink.calls[-1] == "close"
    assert not training.watch.tracking.active


def test_a_broken_sink_is_one_notice_and_training_ends_well(training, link):
    """The tasks are done, the other sink has everything, and there is exactly one line about the broken one."""
    broken, good = Broken("scalars"), Kept()
    training.track([broken, good])
    link.say(opened("a"), *(finished("a", n) for n in range(1, 4)), *ENDS)
    assert {t.state for t in training.wait(5).values()} == {"done"}
    assert training.notices == ("Broken failed at step 100 (RuntimeError: no scalars today); training goes on",)
    assert [call[1] for call in good.calls[1:-1]] == [100, 200, 300]


def test_rounds_of_an_older_attempt_and_failed_evaluations_are_not_scalars(tmp_path, specs):
    """After a restart, late rows of the first attempt are ignored, and rounds made again are written once."""
    sink = Kept()
    rows = Rows(lambda: None)
    tracking = Tracking([sink], rows, facts_of(specs, tmp_path))
    rows.add(decoded([opened("a"), finished("a", 1), finished("a", 2), opened("a", 2, n_rounds=1)]))
    tracking.feed()
    rows.add(decoded([finished("a", 9), finished("a", 2, 2), finished("a", 3, 2), evaluated("a", 0.0, "no env", 2)]))
    rows.add(decoded([{**finished("a", 9), "s": "broker-e1"}, finished("stranger", 1)]))
    tracking.feed()
    tracking.close()
    assert [call[:2] for call in sink.calls[1:-1]] == [("a", 100), ("a", 200), ("a", 300)]


def test_own_scalars_ride_on_the_next_row(tmp_path, specs):
    """``record`` keeps the last of several values and ``record_mean`` averages, per task, until the next row (T31)."""
    sink = Kept()
    rows = Rows(lambda: None)
    tracking = Tracking([sink], rows, facts_of(specs, tmp_path))
    for value in (1.0, 2.0, 6.0):
        tracking.record("mine/last", value)
        tracking.record("mine/mean", value, task="a", mean=True)
    rows.add(decoded([finished("a", 1), finished("b", 1), finished("a", 2)]))
    tracking.feed()
    tracking.close()
    own = [{k: v for k, v in call[2].items() if k.startswith("mine/")} for call in sink.calls[1:-1]]
    assert own == [{"mine/last": 6.0, "mine/mean": 3.0}, {"mine/last": 6.0}, {}]


def test_own_scalars_need_a_sink(training, link):
    """What nobody would see is refused, with the way out; so is an unknown task."""
    with pytest.raises(ConfigError, match=r"nothing tracks run r1, so 'x' would be lost: call run.track"):
        training.record("x", 1.0)
    training.track(Kept())
    training.record("x", 1.0)
    training.record("x", 1.0, mean=True)
    with pytest.raises(ConfigError, match="no task 'c'"):
        training.record("x", 1.0, task="c")
    link.say(*ENDS)
    training.wait(5)


@pytest.mark.parametrize("track", [[], None, "tensorbored", 7])
def test_wrong_sinks_are_refused(training, track):
    """Nothing, an unknown name and an object without the methods are told at once."""
    with pytest.raises(ConfigError, match="track"):
        training.track(track)
    assert not training.watch.tracking.active
