"""Callbacks of a run that nobody waits for: one task each, in a thread that ends with the run."""

import pytest

import drlnb
from drlnb.fleet import follower as module
from drlnb.fleet import listening
from drlnb.fleet.follower import Follower
from drlnb.fleet.listening import listen
from drlnb.fleet.training import Training
from drlnb.records.errors import ConfigError
from drlnb.runtime.files.run_directory import RunDir
from tests.fleet.conftest import ended, finished, header, opened


@pytest.fixture
def training(link, specs, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_PAUSE_S", 0.0)
    monkeypatch.setattr(listening, "_LOOK_S", 0.001)
    run = RunDir(tmp_path / "run")
    run.create({"run": "r1", "tasks": [spec.to_plain() for spec in specs]})
    made = Training(Follower(link, "r1", specs, run))
    yield made
    made.close()


ENDS = (ended("a"), ended("b"))


def test_a_callback_hears_of_its_task_alone(training, link):
    """Each step of b's rounds from the first one on, none of a's; the thread ends with the run."""
    heard, n_envs = [], training.specs["b"].n_envs

    def callback(locals_, globals_):
        heard.append((locals_["self"].spec.name, locals_["metrics"]["time/total_timesteps"]))

    link.say(header("a"), opened("a"), finished("a", 1), header("b"), opened("b"), finished("b", 1))
    thread = listen(training, callback, task="b")
    link.say(finished("a", 2), finished("b", 2), *ENDS)
    thread.join(10)
    assert not thread.is_alive()
    assert heard == [("b", 100)] * (100 // n_envs) + [("b", 200)] * (100 // n_envs)
    assert not [asked for asked in link.asked if asked[0] == "stop"]


def test_false_and_errors_stop_their_task_only(training, link, capsys):
    """False becomes one stop of that task; so does an error, which is said in a line."""

    def broken(locals_, globals_):
        raise ZeroDivisionError("mine")

    link.say(header("a"), opened("a"), finished("a", 1), header("b"), opened("b"), finished("b", 1), finished("b", 2))
    threads = [listen(training, lambda *_: False, task="b"), listen(training, broken, task="a")]
    threads[1].join(10)
    link.say(*ENDS)
    threads[0].join(10)
    assert sorted(asked for asked in link.asked if asked[0] == "stop") == [("stop", "a"), ("stop", "b")]
    assert "a callback of a raised ZeroDivisionError: mine; the task was stopped" in capsys.readouterr().err


def test_what_cannot_be_heard_is_refused(training):
    """A task that is not there or not named, no callback, and one whose evaluations nobody planned."""
    for task in (None, "c"):
        with pytest.raises(ConfigError, match=f"this run has no task {task!r}; it has a, b"):
            listen(training, lambda *_: None, task=task)
    with pytest.raises(ConfigError, match="callback must be a drlnb callback"):
        listen(training, 3, task="a")
    with pytest.raises(ConfigError, match=r"cannot be given .*eval_freq.*: hand the callback to a model's learn"):
        listen(training, drlnb.EvalCallback(verbose=0), task="a")


class Counting(drlnb.BaseCallback):
    """Hears of each step."""

    def _on_step(self):
        return True


@pytest.mark.parametrize(
    ("callback", "said"),
    [
        (Counting, 1),
        (lambda: [Counting(), lambda *_: True], 1),
        (lambda: drlnb.EveryNTimesteps(10, Counting()), 1),
        (lambda: drlnb.CheckpointCallback(10**9, "none"), 0),
        (drlnb.BaseCallback, 0),
    ],
    ids=["own", "own in a list", "own in a stock one", "stock", "base"],
)
def test_who_hears_of_steps_is_told_once_when(training, link, capsys, callback, said):
    """Code of the user's that is called for each step; not those that the package brings."""
    link.say(header("a"), opened("a"), finished("a", 1), finished("a", 2))
    thread = listen(training, callback(), task="a")
    link.say(*ENDS)
    thread.join(10)
    line = (
        "drlnb: steps are made in other processes: _on_step is called for all steps of a round when it has ended, "
        "without infos, rewards and dones; learn(..., local=True) calls it as each is made"
    )
    assert capsys.readouterr().err.splitlines().count(line) == said
