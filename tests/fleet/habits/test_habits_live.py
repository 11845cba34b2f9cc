"""What differs on a cluster of what a script of Stable-Baselines3's does, on one open fleet."""

import pickle
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
import torch

import drlnb
from drlnb.records.errors import ConfigError
from tests.fleet.compatibility.worlds import ROUND, Own, dqn, ppo

pytestmark = pytest.mark.cluster

#: Rounds of 32 steps over 2 environments, each copy in a process of its own.
TWO = {"n_envs": 2, "n_collectors": 2}


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


SCRIPT = """
import gymnasium
import numpy as np

import drlnb

print("begins")


class Mine(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.zeros(3, np.float32), 1.0, self.steps >= 10, False, {}


model = drlnb.PPO("MlpPolicy", Mine, n_steps=16, batch_size=16, n_epochs=1, n_envs=2, n_collectors=2)
model.learn(64)
print(model.num_timesteps, model.ep_info_buffer[-1]["r"])
"""


class Counting(drlnb.BaseCallback):
    """Counts as scripts do, and stops after so many calls."""

    def __init__(self, stop_at=10**9):
        super().__init__()
        self.stop_at, self.heard, self.told = stop_at, [], []

    def _on_training_start(self):
        self.told.append("start")

    def _on_rollout_end(self):
        self.told.append("rollout")

    def _on_training_end(self):
        self.told.append("end")

    def _on_step(self):
        self.heard.append((self.n_calls, self.num_timesteps, self.model.num_timesteps))
        self.logger.record("mine/calls", self.n_calls)
        return self.n_calls < self.stop_at


# -------------------------------------------------------------------- callbacks
def test_each_vector_step_is_heard_of_when_its_round_has_ended(fleet, capsys):
    """With the counters of the step; a line says when that is, and what is not told."""
    counting = Counting()
    model = ppo(verbose=1, fleet=fleet, **TWO).learn(96, counting)
    assert counting.heard == [(n, 2 * n, 2 * n) for n in range(1, 49)]
    assert counting.told == ["start", "rollout", "rollout", "rollout", "end"]
    assert model.num_timesteps == 96
    out, err = capsys.readouterr()
    assert [line.split("|")[2].strip() for line in out.splitlines() if "calls" in line] == ["16", "32", "48"]
    (line,) = [line for line in err.splitlines() if "_on_step" in line]
    assert line.endswith("without infos, rewards and dones; learn(..., local=True) calls it as each is made")


def test_false_stops_a_run(fleet):
    """No step is told of afterwards in that round; the model has what the run had made by then."""
    counting = Counting(stop_at=20)
    model = ppo(fleet=fleet).learn(10**6, counting)
    assert [calls for calls, *_ in counting.heard][:20] == list(range(1, 21))
    assert fleet.trainings[-1].status == "stopped"
    assert 32 <= model.num_timesteps < 10**6


@pytest.mark.parametrize(
    ("reads", "said"),
    [
        (lambda callback: callback.training_env.env_method("reset"), "training_env is at hand in this process alone"),
        (lambda callback: callback.training_env.set_attr("level", 3), r"learn\(..., local=True\)"),
        (lambda callback: callback.locals["infos"], "with local=True also infos, rewards, dones, new_obs of each step"),
        (lambda callback: callback.model.set_env(Own()), "wait for it, or stop it"),
    ],
)
def test_what_is_in_other_processes_is_told(fleet, reads, said):
    """One line, out of `learn`; the run is stopped, and the model can go on."""

    class Reading(drlnb.BaseCallback):
        def _on_step(self):
            reads(self)

    model = ppo(Own(), fleet=fleet)
    with pytest.raises(ConfigError, match=said) as refused:
        model.learn(10**6, Reading())
    assert len(str(refused.value).splitlines()) == 1
    assert fleet.trainings[-1].status == "stopped"
    before = model.num_timesteps
    assert model.learn(32, reset_num_timesteps=False).num_timesteps == before + 32


def test_an_evaluation_stops_by_its_threshold_and_keeps_the_best(fleet, tmp_path):
    """In the environment that it was given, with files as there."""
    stop = drlnb.StopTrainingOnRewardThreshold(25.0)
    evaluation = drlnb.EvalCallback(
        Own(reward=3.0), callback_on_new_best=stop, eval_freq=32, n_eval_episodes=2, log_path=tmp_path,
        best_model_save_path=tmp_path, verbose=0,
    )  # fmt: skip
    ppo(Own(), fleet=fleet).learn(10**6, evaluation)
    assert fleet.trainings[-1].status == "stopped"
    assert evaluation.best_mean_reward == 30.0
    assert np.load(tmp_path / "evaluations.npz")["results"][0].tolist() == [30.0, 30.0]
    assert drlnb.PPO.load(tmp_path / "best_model", env=Own()).num_timesteps == 32


# -------------------------------------------------------------------- the script's own environments
def scripts():
    """Return a class as a script has it: no other process can import it."""

    class Mine(gymnasium.Env):
        observation_space, action_space = Own.observation_space, Own.action_space

        def __init__(self, reward=1.0):
            self.reward, self.steps = reward, 0

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.steps = 0
            return np.zeros(3, np.float32), {}

        def step(self, action):
            self.steps += 1
            return np.zeros(3, np.float32), self.reward, self.steps >= 10, False, {}

    Mine.__module__ = "__main__"
    return Mine


def test_classes_functions_and_objects_of_a_script_travel(fleet):
    """With what was set on the object before a budget, and between two."""
    mine = scripts()
    for env, reward in ((mine, 1.0), (lambda: mine(2.0), 2.0), (mine(3.0), 3.0)):
        model = ppo(env, fleet=fleet, **TWO).learn(64)
        assert [episode["r"] for episode in model.ep_info_buffer] == [10 * reward] * 6
    env = mine(4.0)
    model = ppo(env, fleet=fleet).learn(32)
    env.reward = 5.0
    model.learn(32)
    assert model.ep_info_buffer[-1]["r"] == 50.0


def test_an_environment_that_a_script_has_registered_travels(fleet, monkeypatch):
    """By its id."""
    spec = gymnasium.envs.registration.EnvSpec("Scripts-v0", entry_point=scripts(), max_episode_steps=5)
    monkeypatch.setitem(gymnasium.registry, "Scripts-v0", spec)
    model = ppo("Scripts-v0", fleet=fleet, **TWO).learn(32)
    assert {episode["l"] for episode in model.ep_info_buffer} == {5}


@pytest.mark.usefixtures("fleet")  # what its client opens meanwhile is closed
def test_a_script_needs_no_guard(tmp_path):
    """One that asks for processes at its top, with a class of its own: no process runs it a second time."""
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout.split()) == (0, ["begins", "64", "10.0"]), done.stderr


# -------------------------------------------------------------------- the model afterwards, and again
def test_a_model_is_used_saved_and_goes_on(fleet, tmp_path):
    """Policy, parameters, files, copies to step, pickles; then another budget with another rate, as in one process."""
    here, there = (ppo(seed=5, **given) for given in ({}, {"fleet": fleet}))
    for model, local in ((here, True), (there, False)):
        model.learn(64, local=local)
        model.learning_rate = 1e-5
        model.learn(32, local=local, reset_num_timesteps=False)
        model.set_env(gymnasium.make("CartPole-v1", max_episode_steps=7))
        model.learn(32, local=local, reset_num_timesteps=False)
    assert np.array_equal(here.parameters, there.parameters)
    assert (there.num_timesteps, there.learning_rate) == (128, 1e-5)
    obs = there.get_env().reset()
    action = there.predict(obs, deterministic=True)[0]
    assert there.policy(torch.as_tensor(obs), deterministic=True)[0].tolist() == action.tolist()
    for again in (drlnb.PPO.load(there.save(tmp_path / "m")), pickle.loads(pickle.dumps(there))):
        assert np.array_equal(again.parameters, there.parameters)
        assert again.predict(obs, deterministic=True)[0].tolist() == action.tolist()


def test_a_setting_is_changed_by_a_callback(fleet):
    """From a later round on: the run says which rate it learns with. What comes after its end counts in the next."""

    class Slower(drlnb.BaseCallback):
        def _on_rollout_end(self):
            if self.metrics["train/learning_rate"] < 1e-4:
                self.done = True
            self.model.learning_rate = 1e-5

        def _on_step(self):
            return not hasattr(self, "done")

    slower, model = Slower(), ppo(fleet=fleet)
    model.learn(10**6, slower)
    assert slower.done
    assert model.learning_rate == 1e-5


def test_a_dqn_of_a_cluster_keeps_its_ring_for_the_next_budget(fleet, tmp_path):
    """It is saved beside the model."""
    model = dqn(fleet=fleet).learn(48)
    ring = model.save_replay_buffer(tmp_path / "ring")
    other = dqn()
    other.load_replay_buffer(ring)
    assert other.learn(16, local=True).num_timesteps == 16


def test_a_bar_shows_a_run_to_its_end(fleet, capsys):
    """One line; nothing is written behind it."""
    drlnb.PPO("MlpPolicy", "CartPole-v1", **ROUND, fleet=fleet).learn(64, progress_bar=True)
    err = capsys.readouterr().err
    assert err.split("\r")[-1].startswith("100% [####################] 64 of 64 steps")
    assert err.endswith("left\n")
