"""Callbacks as scripts for Stable-Baselines3 have them: several at once, one in the other, those of that library."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

import drlnb
from drlnb.fleet.callbacks.base import BaseCallback, CallbackList, as_callback
from drlnb.fleet.callbacks.progress import LogEveryNTimesteps
from drlnb.fleet.callbacks.stock import (
    CheckpointCallback,
    EvalCallback,
    EveryNTimesteps,
    StopTrainingOnNoModelImprovement,
    StopTrainingOnRewardThreshold,
)
from tests.fleet.callbacks.test_callbacks import evaluated
from tests.fleet.callbacks.test_steps import Theirs, named
from tests.fleet.compatibility.worlds import Anything, dqn, ppo


class Hears(BaseCallback):
    """Notes when it is called, and what is at hand then."""

    def __init__(self, answer=True):
        super().__init__()
        self.heard, self.answer = [], answer

    def _on_training_start(self):
        self.heard.append("start")

    def _on_step(self):
        self.heard.append((self.num_timesteps, self.locals["new_obs"]))
        return self.answer


@pytest.mark.parametrize("kind", [ppo, dqn])
def test_many_callbacks_at_once(tmp_path, kind):
    """Each does its own: models by steps and by events, evaluations, a table; each hears of the same observations."""
    model, child, beside = kind(verbose=1), Hears(), Hears()
    every = EveryNTimesteps(20, [child, CheckpointCallback(1, tmp_path, name_prefix="event")])
    evaluation = EvalCallback(
        gymnasium.make("CartPole-v1"),
        callback_on_new_best=StopTrainingOnRewardThreshold(1e9, verbose=1),
        callback_after_eval=StopTrainingOnNoModelImprovement(9, min_evals=1, verbose=1),
        best_model_save_path=tmp_path,
        log_path=tmp_path,
        n_eval_episodes=1,
        eval_freq=32,
        warn=False,
    )
    whole = CallbackList([CheckpointCallback(32, tmp_path), evaluation, every, beside, LogEveryNTimesteps(32)])
    model.learn(64, callback=whole, log_interval=1000, local=True)
    files = {path.name for path in tmp_path.iterdir()}
    assert {"rl_model_32_steps.zip", "rl_model_64_steps.zip", "best_model.zip", "evaluations.npz"} <= files
    assert len([name for name in files if name.startswith("event_")]) == 3
    assert [heard[0] for heard in child.heard[1:]] == [20, 40, 60]
    assert (every.n_calls, every.num_timesteps, model.num_timesteps) == (64, 64, 64)
    assert child.locals["new_obs"] is beside.locals["new_obs"] is whole.locals["new_obs"]
    assert model.observation_space.contains(whole.locals["new_obs"][0])
    model.learn(16, callback=None, local=True)
    assert model.learn(16, callback=lambda _locals, _globals: True, local=True).num_timesteps == 16


def test_a_callback_in_another_one_hears_that_training_begins():
    """Once, in a list as well, and before anything else; with the model."""
    alone, listed = Hears(), Hears()
    ppo().learn(32, callback=[EveryNTimesteps(8, alone), EveryNTimesteps(8, [listed])], local=True)
    for each in (alone, listed):
        assert each.heard[0] == "start"
        assert [heard[0] for heard in each.heard[1:]] == [8, 16, 24, 32]
        assert each.model.n_envs == 1


@pytest.mark.parametrize("no", [False, np.bool_(False), torch.tensor(False)], ids=["False", "numpy's", "torch's"])
@pytest.mark.parametrize("kind", [ppo, dqn])
def test_the_first_no_ends_a_training(kind, no):
    """It is called once."""
    callback = Hears(no)
    kind().learn(640, callback=callback, local=True)
    assert (len(callback.heard), callback.n_calls) == (2, 1)


def test_a_table_comes_every_so_many_steps(capsys):
    """Of the first round that ends then; a silent model has none; theirs becomes ours."""
    callback = as_callback(named("LogEveryNTimesteps", n_steps=40, callback=None))
    assert isinstance(callback, LogEveryNTimesteps)
    ppo(verbose=1).learn(96, callback=callback, log_interval=1000, local=True)
    printed = [line for line in capsys.readouterr().out.splitlines() if "total_timesteps" in line]
    assert [int(line.split("|")[2]) for line in printed] == [48, 80]
    ppo().learn(96, callback=callback, local=True)
    assert capsys.readouterr().out == ""


# -------------------------------------------------------------------- evaluations
def test_a_callback_of_an_evaluation_knows_it():
    """As its parent, through lists; one of theirs, too, although it was given to an evaluation of theirs."""
    seen = []

    class Asks(BaseCallback):
        def _on_step(self):
            seen.append((type(self.parent), self.parent.best_mean_reward))
            return True

    class AsksTheirs(Theirs):
        __module__ = "__main__"

        def _on_step(self):
            seen.append((type(self.parent), self.parent.best_mean_reward))
            return True

    given = {"n_eval_episodes": 2, "eval_freq": 16, "deterministic": True, "verbose": 0}
    theirs = named(
        "EvalCallback", eval_env="CartPole-v1", log_path=None, best_model_save_path=None, render=False, **given
    )
    theirs.callback_on_new_best, theirs.callback = AsksTheirs(), None
    theirs.callback_on_new_best.parent = theirs
    evaluations = EvalCallback(callback_on_new_best=CallbackList([Asks()]), callback_after_eval=[Asks()], **given)
    for callback in (evaluations, theirs):
        seen.clear()
        ppo().learn(16, callback=callback, local=True)
        assert len(seen) == (2 if callback is evaluations else 1)
        assert all(issubclass(kind, EvalCallback) and best >= 1.0 for kind, best in seen)


def test_an_evaluation_of_theirs_shows_its_results():
    """A script reads them of the object that it has made: the best, and the latest, which a worse one may be."""
    theirs = named("EvalCallback", eval_env="CartPole-v1", log_path=None, best_model_save_path=None, render=False)
    vars(theirs).update(n_eval_episodes=2, eval_freq=16, deterministic=True, callback_on_new_best=None, callback=None)
    ours, seen = as_callback(theirs), []
    for mean in (3.0, 2.0):
        ours.on_evaluation(evaluated(mean))
        seen.append((theirs.best_mean_reward, theirs.last_mean_reward))
    assert seen == [(3.0, 3.0), (3.0, 2.0)]
    ppo().learn(16, callback=theirs, local=True)
    assert theirs.best_mean_reward == theirs.last_mean_reward >= 5.0


@pytest.mark.parametrize("n", [1, 3])
def test_an_evaluation_may_be_given_several_environments(n):
    """Episodes of their kind are played, as many as were asked for; what learns keeps its own number."""
    callback = EvalCallback(
        gymnasium.make_vec("CartPole-v1", num_envs=n, vectorization_mode="sync", max_episode_steps=7),
        n_eval_episodes=5,
        eval_freq=16,
        verbose=0,
    )
    model = ppo().learn(16, callback=callback, local=True)
    ((*_, first),) = [each.episodes for each in callback.evaluations]
    assert (len(callback.evaluations[0].episodes), model.n_envs) == (5, 1)
    assert first[1] <= 7


def test_an_evaluation_sees_what_the_statistics_of_training_show():
    """The parameters that it plays with hold them: it equals an evaluation of the model after its training, bitwise."""
    callback = EvalCallback(n_eval_episodes=3, eval_freq=32, verbose=0)
    model = ppo(normalize=True).learn(32, callback=callback, local=True)
    played = drlnb.rl.evaluate(model, n_episodes=3)
    assert callback.evaluations[0].episodes == tuple(zip(played.returns, played.lengths, strict=True))


# -------------------------------------------------------------------- what is saved on the way
def test_a_checkpoint_has_a_ring_if_it_shall(tmp_path):
    """A file of its own, which another model takes; the ring is as long as what was seen until then."""
    callback = CheckpointCallback(16, tmp_path, save_replay_buffer=True, save_vecnormalize=True)
    dqn().learn(32, callback=callback, local=True)
    loaded = drlnb.DQN.load(tmp_path / "rl_model_16_steps.zip")
    assert loaded.trained.replay is None
    loaded.load_replay_buffer(tmp_path / "rl_model_replay_buffer_16_steps")
    sizes = Sizes()
    assert loaded.learn(16, callback=sizes, reset_num_timesteps=False, local=True).num_timesteps == 32
    assert sizes.seen == [20, 24, 28, 32]


class Sizes(BaseCallback):
    """Notes how many transitions the ring holds."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def on_round_end(self, metrics):
        self.seen.append(metrics["replay/size"])


def test_a_checkpoint_of_what_has_no_ring_is_the_model(tmp_path):
    """And holds its statistics."""
    callback = CheckpointCallback(16, tmp_path, save_replay_buffer=True, save_vecnormalize=True)
    model = ppo(normalize=True).learn(16, callback=callback, local=True)
    assert [path.name for path in tmp_path.iterdir()] == ["rl_model_16_steps.zip"]
    loaded = drlnb.PPO.load(tmp_path / "rl_model_16_steps.zip")
    assert np.array_equal(loaded.parameters, model.parameters)


# -------------------------------------------------------------------- theirs
class Enough(Theirs):
    """Ends a training after some episodes of all environments, as one of theirs does."""

    __module__ = "stable_baselines3.common.callbacks"

    def __init__(self, n_episodes):
        super().__init__()
        self.left = n_episodes

    def _on_step(self):
        self.left -= int(np.sum(self.locals["dones"]))
        return self.left > 0


def test_episodes_end_a_training():
    """Of two environments one each: at their tenth step, and after that round."""
    callback = Enough(2)
    env = Anything(Box(-1, 1, (2,)), Discrete(2), length=10)
    model = ppo(env, n_envs=2, n_steps=8).learn(960, callback=callback, local=True)
    assert (callback.n_calls, model.num_timesteps) == (10, 32)


def test_one_of_theirs_in_one_of_ours_sees_each_step():
    """What an event calls has the same locals as what stands alone."""
    inner = Enough(1)
    inner_calls = EveryNTimesteps(5, inner)
    ppo(Anything(Box(-1, 1, (2,)), Discrete(2), length=10)).learn(960, callback=inner_calls, local=True)
    assert (inner.n_calls, inner.left) == (2, 0)


@pytest.mark.parametrize("given", [{}, {"learning_starts": 30}])
def test_exploration_is_told_as_it_falls(given):
    """From 1 to its end over a tenth of the budget; at each step, after the training, and in a copy of the file."""
    rates = []
    model = dqn(exploration_final_eps=0.2, exploration_fraction=0.5, **given)
    assert model.exploration_rate == 1.0
    model.learn(40, callback=lambda locals_, _: rates.append(locals_["self"].exploration_rate), local=True)
    left = [1.0 - 0.8 * n / 20 if n < 20 else 0.2 for n in range(1, 41)]
    wanted = [1.0 if n < given.get("learning_starts", 8) else rate for n, rate in enumerate(left, 1)]
    assert rates == pytest.approx(wanted)
    assert model.exploration_rate == pytest.approx(0.2)
    with pytest.raises(AttributeError, match="exploration_rate of a DQN cannot be assigned: exploration_final_eps is"):
        model.exploration_rate = 1.0
