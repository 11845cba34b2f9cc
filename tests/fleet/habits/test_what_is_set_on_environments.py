"""What a script sets on the environments that it holds counts in training, or is told."""

import csv
import os
import threading
import time
from types import SimpleNamespace
from typing import ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec

import drlnb
from drlnb.records.errors import EnvError
from drlnb.rl.collecting.evaluation import evaluate_parameters
from drlnb.rl.envs.given import taken_apart
from drlnb.rl.envs.make import make_env, training_env
from tests.fleet.compatibility.worlds import Own, ppo


def returns(model):
    return [episode["r"] for episode in model.ep_info_buffer]


# -------------------------------------------------------------------- attributes, before the model is built
def test_attributes_that_were_set_on_a_registered_environment_count():
    """Gravity of another planet, whether the environment has been played before or not."""
    for played in (False, True):
        env = gymnasium.make("CartPole-v1")
        env.unwrapped.gravity = 20.0
        if played:
            env.reset(seed=3)
            env.step(0)
        model = ppo(env, n_envs=2)
        assert [make_env(model.spec, index=i).unwrapped.gravity for i in range(3)] == [20.0] * 3
        assert model.spec.env == "CartPole-v1"
        assert model.learn(32, local=True).num_timesteps == 32


def test_attributes_of_wrappers_count():
    """As a scale that was set after the wrapper was made; what has no default, too."""
    env = gymnasium.wrappers.TimeLimit(gymnasium.wrappers.FlattenObservation(gymnasium.make("Pendulum-v1")), 50)
    env.env.mood = "good"
    env.unwrapped.m = 2.0
    made = make_env(ppo(env).spec)
    assert (made.env.mood, made.unwrapped.m, type(made)) == ("good", 2.0, gymnasium.wrappers.TimeLimit)


def test_a_time_limit_that_was_set_counts():
    """In the attribute that many scripts know, though it begins with an underscore."""
    env = gymnasium.make("MountainCar-v0")
    env._max_episode_steps = 30
    made = make_env(ppo(env).spec)
    made.reset(seed=0)
    assert next(n for n in range(1, 300) if made.step(1)[3]) == 30


def test_an_environment_that_nobody_has_changed_stays_an_id():
    """Though it was played: its state is no setting."""
    env = gymnasium.make("Pendulum-v1", g=5.0)
    env.reset(seed=1)
    for _ in range(7):
        env.step(env.action_space.sample())
    spec = ppo(env).spec
    assert (spec.env_factory, spec.env_kwargs) == (None, {"g": 5.0})


class Pickled(gymnasium.utils.EzPickle, Own):
    """Keeps its arguments, as environments of Box2D and MuJoCo do."""

    metadata: ClassVar = {"render_modes": ["rgb_array"]}

    def __init__(self, render_mode=None):
        gymnasium.utils.EzPickle.__init__(self, render_mode)
        Own.__init__(self)
        self.render_mode = render_mode


def test_how_an_environment_is_drawn_is_no_setting(monkeypatch):
    """It stays an id, whose model is loaded without trust, though its arguments were kept by itself."""
    monkeypatch.setitem(gymnasium.registry, "Pickled-v0", EnvSpec("Pickled-v0", entry_point=f"{__name__}:Pickled"))
    env = gymnasium.make("Pickled-v0", render_mode="rgb_array")
    assert taken_apart(env).make is None
    assert taken_apart(gymnasium.make("Pickled-v0")).make is None
    env.unwrapped.reward = 3.0
    assert taken_apart(env).make is not None


def test_each_of_several_has_its_own():
    """Attributes that differ from one to the next."""
    envs = [gymnasium.make("CartPole-v1") for _ in range(3)]
    for gravity, env in zip((5.0, 9.8, 20.0), envs, strict=True):
        env.unwrapped.gravity = gravity
    spec = ppo(SimpleNamespace(num_envs=3, envs=envs, step=None, reset=None)).spec
    assert [make_env(spec, index=i).unwrapped.gravity for i in range(3)] == [5.0, 9.8, 20.0]


# -------------------------------------------------------------------- attributes, between two budgets
def test_attributes_that_are_set_after_the_model_was_built_count():
    """A curriculum in a loop: the next budget is played for the reward that the script has set."""
    env = Own()
    model = ppo(env)
    seen = []
    for env.reward in (1, 2, 5):
        model.learn(32, local=True, reset_num_timesteps=False)
        seen.append(returns(model)[-1])
    assert seen == [10.0, 20.0, 50.0]


def test_an_environment_that_nobody_touches_goes_on_where_it_stood():
    """Two budgets make the bits of one."""
    twice = ppo(Own(reward=1)).learn(24, local=True)
    twice.learn(24, local=True, reset_num_timesteps=False)
    (once,) = [ppo(Own(reward=1)).learn(64, local=True)]
    assert returns(twice) == returns(once)
    assert np.array_equal(twice.parameters, once.parameters)


def test_gravity_between_two_budgets():
    """Of a registered environment, too; in the copies that learn."""
    env = gymnasium.make("CartPole-v1")
    model = ppo(env).learn(16, local=True)
    env.unwrapped.gravity = 20.0
    model.learn(16, local=True)
    assert make_env(model.spec).unwrapped.gravity == 20.0
    other = gymnasium.make("CartPole-v1")
    model.set_env(other)
    other.unwrapped.gravity = 3.0
    model.learn(16, local=True)
    assert make_env(model.spec).unwrapped.gravity == 3.0


def test_what_is_set_on_copies_is_told(capsys):
    """`get_env` steps copies; the line says what changes those that learn."""
    model = ppo(Own())
    capsys.readouterr()
    env = model.get_env()
    env.get_attr("reward")
    assert capsys.readouterr().err == ""
    env.set_attr("reward", 5)
    line = (
        "get_env() gives copies: what is set there counts there alone; a callback's training_env or model.set_env(...) "
        "changes those that learn"
    )
    assert capsys.readouterr().err == f"drlnb: {line}\n"
    assert env.get_attr("reward") == [5]


# -------------------------------------------------------------------- Monitor
class Monitor(gymnasium.Wrapper):
    """What Stable-Baselines3's is to a script: it has begun a file."""

    __module__ = "stable_baselines3.common.monitor"

    def __init__(self, env, path, info_keywords=()):
        super().__init__(env)
        path.write_text(f"#{{}}\nr,l,t{''.join(f',{name}' for name in info_keywords)}\n")
        self.results_writer = SimpleNamespace(file_handler=SimpleNamespace(name=str(path), lock=threading.Lock()))
        self.info_keywords, self.t_start = info_keywords, time.time() - 100


def rows(path):
    return list(csv.DictReader(path.read_text().splitlines()[1:]))


@pytest.mark.parametrize("registered", [False, True])
def test_a_monitors_file_is_written_while_it_learns(tmp_path, registered):
    """A row per episode that is trained on: neither trying nor evaluating the environment adds one."""
    path = tmp_path / "monitor.csv"
    inner = gymnasium.make("CartPole-v1") if registered else Own(reward=3)
    keywords = () if registered else ("mood",)
    model = ppo(Monitor(inner, path, keywords), n_envs=2)
    assert rows(path) == []
    model.learn(128, drlnb.EvalCallback(eval_freq=16, n_eval_episodes=1, verbose=0), local=True)
    written = rows(path)
    assert written
    assert all(float(row["t"]) >= 100 for row in written)
    if registered:
        assert [row["r"] for row in written] == [f"{float(row['l'])}" for row in written]
    else:
        assert [(row["r"], row["l"], row["mood"]) for row in written] == [("30.0", "10", "good")] * 6


def test_each_of_several_monitors_writes_its_own(tmp_path):
    """As `make_vec_env(..., monitor_dir=...)` makes them."""
    paths = [tmp_path / f"{i}.monitor.csv" for i in range(2)]
    envs = [Monitor(Own(reward=1 + i), path) for i, path in enumerate(paths)]
    ppo(SimpleNamespace(num_envs=2, envs=envs, step=None, reset=None)).learn(64, local=True)
    assert [[row["r"] for row in rows(path)] for path in paths] == [["10.0"] * 3, ["20.0"] * 3]


class VecMonitor:
    """What Stable-Baselines3's is to a script: it has begun one file for several environments."""

    def __init__(self, venv, path):
        path.write_text("#{}\nr,l,t\n")
        self.venv, self.num_envs, self.info_keywords, self.t_start = venv, venv.num_envs, (), time.time()
        self.results_writer = SimpleNamespace(file_handler=SimpleNamespace(name=str(path)))


def test_a_monitor_around_several_writes_the_episodes_of_all(tmp_path):
    """It had a header alone, and nobody was told."""
    path = tmp_path / "all.monitor.csv"
    several = SimpleNamespace(num_envs=2, envs=[Own(reward=1.0), Own(reward=2.0)])
    ppo(VecMonitor(several, path)).learn(64, local=True)
    assert sorted(row["r"] for row in rows(path)) == ["10.0"] * 3 + ["20.0"] * 3


def test_an_evaluation_on_environments_that_learn_adds_no_rows(tmp_path):
    """As a collector plays the last one of a run; training goes on writing behind it."""
    path = tmp_path / "monitor.csv"
    model = ppo(Monitor(Own(reward=1), path))
    env = training_env(model.spec, 0)
    evaluate_parameters(model.spec, model.parameters, n_episodes=2, envs=[env])
    assert rows(path) == []
    env.reset()
    while not env.step(0)[2]:
        pass
    assert [row["r"] for row in rows(path)] == ["10.0"]


def test_an_environment_with_a_monitors_file_can_be_frozen(tmp_path):
    """Between two rows the file is closed, so episodes go on from one budget to the next."""
    path = tmp_path / "monitor.csv"
    model = ppo(Monitor(Own(reward=1), path)).learn(24, local=True)
    model.learn(24, local=True, reset_num_timesteps=False)
    assert [row["l"] for row in rows(path)] == ["10"] * 6
    assert os.access(path, os.R_OK)
    assert training_env(model.spec, 1).unwrapped.reward == 1


def test_what_is_no_environment_is_told_what_is():
    """One line."""
    with pytest.raises(EnvError, match="env must be an environment, its id, a class or function that returns one, or"):
        ppo([Own()])
