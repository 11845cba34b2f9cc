"""Callbacks in this process: each step as it is made, Stable-Baselines3's own, scalars of the user's, a curriculum."""

from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest

import drlnb
from drlnb.fleet.callbacks import stock
from drlnb.fleet.callbacks.base import BaseCallback, CallbackList, as_callback
from drlnb.fleet.callbacks.foreign import Foreign
from drlnb.fleet.callbacks.progress import table
from drlnb.fleet.policies.logger import Logger
from drlnb.records.errors import ConfigError

SMALL = {"n_steps": 16, "batch_size": 16, "n_epochs": 1, "seed": 0, "policy_kwargs": {"net_arch": [8]}}


def ppo(env="CartPole-v1", **given):
    return drlnb.PPO("MlpPolicy", env, **{**SMALL, **given})


class Steps(BaseCallback):
    """Notes what each step says."""

    def __init__(self, last=10**9):
        super().__init__()
        self.heard, self.last = [], last

    def _on_step(self):
        told = self.locals
        self.heard.append((self.n_calls, self.num_timesteps, told["rewards"], told["dones"], told["infos"]))
        self.shown = told["new_obs"]
        return self.n_calls < self.last


@pytest.mark.parametrize(
    "given", [{}, {"n_envs": 4}, {"n_envs": 4, "n_collectors": 2}, {"n_envs": 3, "normalize": True}]
)
def test_each_step_is_heard_of_as_it_is_made(given):
    """One call per vector step, with what the environments answered; the training is the same with it and without."""
    heard, model = Steps(), ppo(**given)
    model.learn(64, callback=heard, local=True)
    n = model.n_envs
    assert [call[:2] for call in heard.heard] == [(i, n * i) for i in range(1, len(heard.heard) + 1)]
    assert len(heard.heard) * n == model.num_timesteps
    assert {len(call[4]) for call in heard.heard} == {n}
    assert heard.shown.shape == (n, 4)
    assert (model.parameters == ppo(**given).learn(64, local=True).parameters).all()


def test_ends_of_episodes_say_how_they_went():
    """Their last observation, return and length; a time limit is no end."""
    heard = Steps()
    gymnasium.register("Short-v0", entry_point=gymnasium.spec("CartPole-v1").entry_point, max_episode_steps=3)
    try:
        model = ppo("Short-v0", n_envs=2).learn(32, callback=heard, local=True)
    finally:
        gymnasium.registry.pop("Short-v0")
    third = heard.heard[2]
    assert third[3].tolist() == [True, True]
    assert third[4][0]["episode"] == {"r": 3.0, "l": 3}
    assert third[4][0]["TimeLimit.truncated"] is True
    assert third[4][0]["terminal_observation"].shape == (4,)
    assert "episode" not in heard.heard[0][4][0]
    assert model.ep_info_buffer[0] == {"r": 3.0, "l": 3.0}


def test_false_ends_the_calls_at_once_and_the_training_after_its_round():
    """Ten calls of sixteen; the round is made to its end."""
    heard, model = Steps(last=10), ppo()
    model.learn(160, callback=[heard], local=True)
    assert (len(heard.heard), model.num_timesteps) == (10, 16)


def test_what_steps_elsewhere_do_not_say():
    """The line names what there is."""
    callback = BaseCallback()
    callback.init_callback(SimpleNamespace(num_timesteps=0))
    with pytest.raises(ConfigError, match=r"locals has no 'infos': it holds self; with local=True also infos, rewards"):
        callback.locals["infos"]
    assert callback.locals.get("infos") is None


# -------------------------------------------------------------------- scalars of the user's
class Recording(BaseCallback):
    def _on_step(self):
        self.logger.record("mine/last", self.n_calls)
        self.logger.record_mean("mine/mean", self.n_calls)
        self.logger.record_mean("mine/mean", None)
        self.logger.record("mine/text", "words", exclude="tensorboard")
        self.logger.dump(3)
        return True


def test_recorded_scalars_stand_beside_the_rounds_own(capsys):
    """The last number of a round, or their mean; texts are left out."""
    ppo(verbose=1).learn(32, callback=Recording(), local=True)
    lines = [line.replace(" ", "") for line in capsys.readouterr().out.splitlines()]
    assert [line for line in lines if "last" in line] == ["|last|16|", "|last|32|"]
    assert [line for line in lines if line.startswith("|mean|")] == ["|mean|8.5|", "|mean|24.5|"]
    assert not any("text" in line for line in lines)


def test_a_logger_says_lines(capsys):
    """There are no levels."""
    Logger().warn("a", 3)
    assert capsys.readouterr().err == "drlnb: a 3\n"


def test_a_table_has_a_part_for_each_word_before_the_slash():
    """Long names are cut; whole numbers stay whole."""
    lines = table({"a/" + "x" * 50: 1e6, "b": 0.5}).splitlines()
    assert lines[2].split("|")[1].strip() == "x" * 33
    assert lines[2].split("|")[2].strip() == "1000000"
    assert len({len(line) for line in lines}) == 1


# -------------------------------------------------------------------- a curriculum
class Harder(BaseCallback):
    """Changes gravity at a step, and looks at it at the next."""

    def _on_step(self):
        if self.n_calls == 1:
            self.training_env.set_attr("gravity", 20.0)
        self.seen = self.training_env.get_attr("gravity")
        return True


def test_environments_can_be_changed_while_they_learn():
    """Those that step, not copies; elsewhere the line says how."""
    callback, model = Harder(), ppo(n_envs=2)
    model.learn(32, callback=callback, local=True)
    assert callback.seen == [20.0, 20.0]
    with pytest.raises(ConfigError, match=r"training_env is at hand in this process alone: learn\(..., local=True\)"):
        _ = callback.training_env


# -------------------------------------------------------------------- Stable-Baselines3's
class Theirs:
    """What its `BaseCallback` is to a training."""

    __module__ = "stable_baselines3.common.callbacks"

    def __init__(self, verbose=0):
        self.verbose, self.n_calls, self.num_timesteps, self.heard = verbose, 0, 0, []

    def init_callback(self, model):
        self.model = model

    def on_training_start(self, locals_, globals_):
        self.locals = locals_
        self.heard.append("start")

    def on_rollout_start(self):
        self.heard.append("rollout")

    def on_step(self):
        self.n_calls += 1
        self.num_timesteps = self.model.num_timesteps
        return self._on_step()

    def on_rollout_end(self):
        self.heard.append("rollout end")

    def on_training_end(self):
        self.heard.append("end")


class Derived(Theirs):
    __module__ = "__main__"

    def _on_step(self):
        self.heard.append((self.n_calls, self.num_timesteps, len(self.locals["infos"])))
        self.model.logger.record("mine/x", 1.0)
        return self.n_calls < 20


def test_a_class_derived_from_theirs_is_called_as_there():
    """In their order, with counters at each step; the model counts along."""
    theirs, model = Derived(), ppo(n_envs=2)
    model.learn(320, callback=theirs, local=True)
    steps = [call for call in theirs.heard if isinstance(call, tuple)]
    assert steps == [(i, 2 * i, 2) for i in range(1, 21)]
    assert theirs.heard[:2] == ["start", "rollout"]
    assert theirs.heard[-3:] == ["rollout end", "rollout", "end"]
    assert theirs.locals["total_timesteps"] == 320
    assert model.num_timesteps == 64


def named(name, **attributes):
    made = type(name, (Theirs,), {"__module__": "stable_baselines3.common.callbacks"})()
    vars(made).update(attributes)
    return made


def test_those_that_are_here_too_become_ours(tmp_path):
    """With the same arguments; what they hold becomes ours as well."""
    stop = named("StopTrainingOnRewardThreshold", reward_threshold=3.0)
    env = gymnasium.make("CartPole-v1")
    ours = as_callback(
        named(
            "EvalCallback",
            eval_env=env,
            callback_on_new_best=stop,
            callback=None,
            n_eval_episodes=2,
            eval_freq=16,
            log_path=str(tmp_path / "evaluations"),
            best_model_save_path=str(tmp_path),
            deterministic=True,
            render=False,
        )
    )
    assert isinstance(ours, stock.EvalCallback)
    assert isinstance(ours.callback_on_new_best, stock.StopTrainingOnRewardThreshold)
    model = ppo().learn(160, callback=ours, local=True)
    assert model.num_timesteps == 16
    assert (tmp_path / "evaluations.npz").exists()
    assert (tmp_path / "best_model.zip").exists()
    saving = as_callback(
        named(
            "CheckpointCallback",
            save_freq=8,
            save_path=str(tmp_path),
            name_prefix="x",
            save_replay_buffer=False,
            save_vecnormalize=False,
        )
    )
    ppo().learn(16, callback=saving, local=True)
    assert (tmp_path / "x_16_steps.zip").exists()
    listed = as_callback(named("CallbackList", callbacks=[named("ConvertCallback", callback=lambda a, b: True)]))
    assert isinstance(listed, CallbackList)
    every = as_callback(named("EveryNTimesteps", n_steps=5, callback=Derived()))
    assert isinstance(every, stock.EveryNTimesteps)
    assert isinstance(every.callback, Foreign)
    none = named("StopTrainingOnNoModelImprovement", max_no_improvement_evals=2, min_evals=1)
    assert as_callback(none).max_no_improvement_evals == 2


# -------------------------------------------------------------------- a replay ring of its own
def test_a_replay_ring_can_be_saved_and_taken(tmp_path):
    """The loaded model goes on with the bits of the one that was saved; a file that is none is told."""
    given = {"learning_starts": 8, "buffer_size": 64, "seed": 0, "policy_kwargs": {"net_arch": [8]}}
    model = drlnb.DQN("MlpPolicy", "CartPole-v1", **given).learn(40, local=True)
    model.save(tmp_path / "m")
    path = model.save_replay_buffer(tmp_path / "ring")
    assert path.name == "ring.safetensors"
    loaded = drlnb.DQN.load(tmp_path / "m")
    loaded.load_replay_buffer(tmp_path / "ring")
    rings = [each.trained.replay.arrays for each in (model, loaded)]
    assert rings[0].keys() == rings[1].keys()
    assert all(np.array_equal(rings[0][name], rings[1][name]) for name in rings[0])
    loaded.learn(16, local=True)
    with pytest.raises(ConfigError, match=r"m.zip holds no replay ring"):
        loaded.load_replay_buffer(tmp_path / "m.zip")
    with pytest.raises(ConfigError, match="this model has no replay ring yet: a DQN has one once it has learnt"):
        ppo().save_replay_buffer(tmp_path / "none")
