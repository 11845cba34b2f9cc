"""Callbacks: what they hear, when they stop, and what the ready-made ones do."""

from types import SimpleNamespace

import numpy as np
import pytest

from drlnb.fleet.callbacks.base import BaseCallback, CallbackList, as_callback, end_round
from drlnb.fleet.callbacks.events import Evaluated, Written
from drlnb.fleet.callbacks.stock import (
    CheckpointCallback,
    EvalCallback,
    EveryNTimesteps,
    StopTrainingOnNoModelImprovement,
    StopTrainingOnRewardThreshold,
)
from drlnb.fleet.policies.logger import Logger
from drlnb.records.errors import ConfigError


class Model:
    """Stands in for a model of 4 environments."""

    n_envs, num_timesteps, logger = 4, 0, Logger()

    spec = SimpleNamespace(env="CartPole-v1")


class Session:
    """Notes what callbacks ask for; `at_hand` are the versions that can be saved."""

    def __init__(self, *at_hand):
        self.at_hand, self.asked, self.saved = at_hand, 0, []

    def checkpoint(self):
        self.asked += 1

    def save(self, version, path, ring=None):
        if version in self.at_hand:
            self.saved.append((version, path))
        return version in self.at_hand


class Notes(BaseCallback):
    """Notes each call of its methods; `answer` is what steps return."""

    def __init__(self, answer=True):
        super().__init__()
        self.heard, self.answer = [], answer

    def _on_training_start(self):
        self.heard.append("start")

    def _on_rollout_start(self):
        self.heard.append("rollout")

    def _on_step(self):
        self.heard.append(("step", self.num_timesteps, self.n_calls))
        return self.answer

    def _on_rollout_end(self):
        self.heard.append("rollout end")

    def _on_training_end(self):
        self.heard.append("end")


def begun(callback, session=None):
    callback.init_callback(Model(), session)
    return callback


def rounds(callback, *steps):
    """Tell a callback of rounds that end at these steps; return its answers."""
    return [end_round(callback, {"time/total_timesteps": n}) for n in steps]


def evaluated(mean, n_timesteps=100, version=2, deterministic=True):
    return Evaluated(
        n_timesteps=n_timesteps, version=version, mean_reward=mean, std_reward=0.0, deterministic=deterministic,
        episodes=((mean, 7), (mean, 9)),
    )  # fmt: skip


def test_stable_baselines_methods_are_called_in_its_order():
    """Rounds of 2 steps of 4 environments are 2 `_on_step` each, counted as there, between a rollout's ends."""
    notes = begun(Notes())
    notes.on_training_start()
    assert rounds(notes, 8, 16) == [True, True]
    notes.on_training_end()
    steps = [("step", 4, 1), ("step", 8, 2)], [("step", 12, 3), ("step", 16, 4)]
    assert notes.heard == [
        "start", "rollout", *steps[0], "rollout end", "rollout", *steps[1], "rollout end", "rollout", "end",
    ]  # fmt: skip


@pytest.mark.parametrize("wrap", [lambda one: one, lambda one: CallbackList([Notes(), one])], ids=["alone", "listed"])
def test_calls_count_the_steps_of_an_environment(wrap):
    """A callback that stops at its tenth call has heard of 40 steps of 4 environments, and stops after that round."""

    class Ten(Notes):
        def _on_step(self):
            super()._on_step()
            return self.n_calls < 10

    ten = Ten()
    assert rounds(begun(wrap(ten)), 32, 64) == [True, False]
    assert [heard for heard in ten.heard if heard[0] == "step"] == [("step", 4 * n, n) for n in range(1, 11)]
    assert (ten.num_timesteps, ten.n_calls) == (64, 16)


def test_steps_that_do_not_divide_are_all_counted():
    """A round of 30 steps of 4 environments, one lost midway, is 7 calls that come to 30; one of 2 steps is a call."""
    notes = begun(Notes())
    rounds(notes, 30, 32)
    assert notes.heard[0] == ("step", 4, 1)
    assert [heard[1:] for heard in notes.heard if heard[0] == "step"][-2:] == [(30, 7), (32, 8)]


def test_one_false_of_a_list_is_enough_and_all_are_heard():
    """The list answers False, the callbacks behind the one that said it hear of the round as well."""
    first, second = Notes(answer=False), Notes()
    assert rounds(begun(CallbackList([first, [second]])), 64) == [False]
    assert ("step", 64, 16) in second.heard


def test_a_function_hears_locals_and_may_stop():
    """It gets the model as `self` and the metrics, at each of 16 steps of 4 environments; None goes on, False stops."""
    seen = []

    def callback(locals_, globals_):
        seen.append((type(locals_["self"]), locals_["metrics"]["time/total_timesteps"], globals_))
        return False if len(seen) == 18 else None

    assert rounds(begun(as_callback(callback)), 64, 128) == [True, False]
    assert seen == [(Model, 64, {})] * 16 + [(Model, 128, {})] * 2


@pytest.mark.parametrize(("wrong", "said"), [(3, "got 3"), (EvalCallback, r"an instance, EvalCallback\(...\), not")])
def test_what_is_no_callback_is_refused(wrong, said):
    """A number, or a class instead of an instance, is told in words."""
    with pytest.raises(ConfigError, match=said):
        as_callback(wrong)


def test_every_n_timesteps_counts_from_where_training_began():
    """With 100 steps, at 100 and 200, told when rounds of 64 end; a model that had 1000 steps counts from there."""
    notes = Notes()
    rounds(begun(EveryNTimesteps(100, notes)), 64, 128, 192, 256)
    assert [heard[1:] for heard in notes.heard if heard[0] == "step"] == [(100, 1), (200, 2)]
    late, model = EveryNTimesteps(100, notes), Model()
    model.num_timesteps = 1000
    late.init_callback(model)
    notes.heard.clear()
    rounds(late, 1064, 1128)
    assert [heard[1] for heard in notes.heard if heard[0] == "step"] == [1100]


def test_a_checkpoint_is_asked_for_and_saved_when_it_is_there(tmp_path):
    """`save_freq` 25 of 4 environments is 100 steps; only the checkpoint that was asked for is copied, by its steps."""
    session = Session(3, 5)
    callback = begun(CheckpointCallback(25, tmp_path, name_prefix="net"), session)
    callback.on_checkpoint(Written(n_timesteps=64, version=2, reason="checkpoint"))
    rounds(callback, 64, 128, 192)
    assert session.asked == 1
    callback.on_checkpoint(Written(n_timesteps=192, version=4, reason="periodic"))
    callback.on_checkpoint(Written(n_timesteps=256, version=5, reason="checkpoint"))
    assert session.saved == [(5, tmp_path / "net_256_steps.zip")]


@pytest.mark.parametrize("no", [False, np.bool_(False)], ids=["False", "numpy's"])
def test_every_kind_of_false_stops(no):
    """As a method, as a function, in a list, in an event's callback; None goes on."""
    for callback in (Notes(no), lambda *_: no, [Notes(), Notes(no)], EveryNTimesteps(1, Notes(no))):
        assert rounds(begun(as_callback(callback)), 64) == [False]
    assert rounds(begun(Notes(None)), 64) == [True]


def test_a_checkpoint_inside_another_callback_is_saved(tmp_path):
    """At each second event (100, 200, 300) of `EveryNTimesteps(100)`; as `callback_on_new_best` at each new best."""
    session = Session(*range(10))
    callback = begun(EveryNTimesteps(100, CheckpointCallback(2, tmp_path)), session)
    for version, n in enumerate(range(64, 384, 64)):
        before = session.asked
        rounds(callback, n)
        if session.asked > before:
            callback.on_checkpoint(Written(n_timesteps=n, version=version, reason="checkpoint"))
    assert session.saved == [(3, tmp_path / "rl_model_256_steps.zip")]
    session = Session(*range(10))
    callback = begun(EvalCallback(callback_on_new_best=CheckpointCallback(1, tmp_path), verbose=0), session)
    for mean, asked in ((5.0, 1), (4.0, 1), (6.0, 2)):
        callback.on_evaluation(evaluated(mean))
        assert session.asked == asked
    callback.on_checkpoint(Written(n_timesteps=7, version=3, reason="checkpoint"))
    assert session.saved == [(3, tmp_path / "rl_model_7_steps.zip")]


def test_evaluation_asks_the_training_for_what_it_needs(tmp_path):
    """`eval_freq` counts steps of each of 4 environments; the best is kept only where it shall be saved."""
    settings = EvalCallback(eval_freq=50, n_eval_episodes=3, deterministic=False).settings(4)
    assert settings == {"eval_freq": 200, "eval_episodes": 3, "eval_deterministic": False, "eval_keep_best": False}
    assert EvalCallback(best_model_save_path=tmp_path).settings(1)["eval_keep_best"] is True
    assert (EvalCallback().eval_freq, EvalCallback().n_eval_episodes) == (10000, 5)
    with pytest.raises(ConfigError, match="two callbacks differ in eval_freq"):
        CallbackList([EvalCallback(eval_freq=1), EvalCallback(eval_freq=2)]).settings(1)


def test_the_best_model_is_saved_once_its_checkpoint_is_there(tmp_path):
    """Returns 5, 4, 6: versions 2 and 4 are saved, each when it is at hand; one that is not yet waits for its row."""
    session = Session(2)
    callback = begun(EvalCallback(best_model_save_path=tmp_path, verbose=0), session)
    for version, mean in ((2, 5.0), (3, 4.0), (4, 6.0)):
        assert callback.on_evaluation(evaluated(mean, version=version)) is True
    assert session.saved == [(2, tmp_path / "best_model.zip")]
    session.at_hand = (3, 4)
    callback.on_checkpoint(Written(n_timesteps=9, version=3, reason="periodic"))
    callback.on_checkpoint(Written(n_timesteps=9, version=4, reason="best"))
    assert session.saved == [(2, tmp_path / "best_model.zip"), (4, tmp_path / "best_model.zip")]
    assert (callback.best_mean_reward, callback.last_mean_reward) == (6.0, 6.0)


def test_evaluations_are_logged_as_stable_baselines_does(tmp_path):
    """`evaluations.npz` holds steps, and returns and lengths of each episode."""
    callback = begun(EvalCallback(log_path=tmp_path, verbose=0))
    callback.on_evaluation(evaluated(5.0, 100))
    callback.on_evaluation(evaluated(6.0, 200, version=3))
    with np.load(tmp_path / "evaluations.npz") as log:
        assert log["timesteps"].tolist() == [100, 200]
        assert log["results"].tolist() == [[5.0, 5.0], [6.0, 6.0]]
        assert log["ep_lengths"].tolist() == [[7, 9], [7, 9]]


def test_an_evaluation_of_the_other_kind_is_not_its_business():
    """A callback that asked for samples ignores the deterministic evaluation at the end of a run."""
    callback = begun(EvalCallback(deterministic=False, verbose=0))
    callback.on_evaluation(evaluated(500.0))
    assert callback.evaluations == []
    assert callback.best_mean_reward == -np.inf


def test_a_threshold_stops_by_the_best_mean_return(capsys):
    """At 100: 99 goes on, 101 stops, and the reason is said."""
    stop = StopTrainingOnRewardThreshold(100.0, verbose=1)
    callback = begun(EvalCallback(callback_on_new_best=stop, verbose=0))
    assert callback.on_evaluation(evaluated(99.0)) is True
    assert callback.on_evaluation(evaluated(101.0)) is False
    assert "stopping: mean return 101.00 has reached 100.00" in capsys.readouterr().err


def test_no_improvement_stops_after_more_than_its_limit():
    """With a limit of 1 and 2 that do not count: one evaluation without a new best is borne."""
    callback = begun(EvalCallback(callback_after_eval=StopTrainingOnNoModelImprovement(1, min_evals=2), verbose=0))
    means = (5.0, 5.0, 5.0, 6.0, 5.0, 5.0)
    assert [callback.on_evaluation(evaluated(mean)) for mean in means] == [True, True, True, True, True, False]


@pytest.mark.parametrize("stop", [StopTrainingOnRewardThreshold(1.0), StopTrainingOnNoModelImprovement(1)])
def test_a_stop_by_evaluations_needs_evaluations(stop):
    """Given to `learn` itself it says where it belongs."""
    with pytest.raises(ConfigError, match=r"belongs into an EvalCallback: EvalCallback\(callback_"):
        begun(stop)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: EvalCallback(n_eval_episodes=0), "n_eval_episodes must be a whole number >= 1, got 0"),
        (lambda: EvalCallback(render=True), "record_episode"),
        (lambda: EveryNTimesteps(1.5, None), "n_steps must be a whole number >= 1, got 1.5"),
        (lambda: begun(EveryNTimesteps(10, EvalCallback())), "stands beside other callbacks, not in one"),
    ],
)
def test_wrong_arguments_are_told(make, said):
    """Each names the argument, what is possible, and the value."""
    with pytest.raises(ConfigError, match=said):
        make()
