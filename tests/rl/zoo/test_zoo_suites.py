"""MuJoCo, Box2D and Atari train by the zoo's entries where their extras are installed."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from drlnb.fleet.tasks.task import Task
from drlnb.records.spec import RlWork
from drlnb.rl.envs.make import make_env, probe
from drlnb.rl.envs.wrappers import tally_of
from drlnb.rl.local.train import train_local

ZOO = Path(__file__).parent / "ppo.yml"


def needs(extra, *modules):
    missing = [module for module in modules if find_spec(module) is None]
    return pytest.mark.skipif(bool(missing), reason=f"{', '.join(missing)} not installed (extra {extra})")


def spec_of(env, file=ZOO, **given):
    spec = Task.from_zoo(file, env, **given).spec
    return RlWork.from_plain({**spec.to_plain(), **probe(spec)})


@pytest.mark.slow
@needs("mujoco", "mujoco")
def test_half_cheetah_trains_by_its_entry(tmp_path):
    """Two rounds of 512 steps, 256 x 256 networks, normalised: finite losses, an episode of 1000 steps."""
    file = tmp_path / "ppo.yml"  # the zoo's entry is for v4, which MuJoCo's newest releases do not run
    file.write_text(ZOO.read_text(encoding="utf-8").replace("HalfCheetah-v4:", "HalfCheetah-v5:"), encoding="utf-8")
    spec = spec_of("HalfCheetah-v5", file, total_timesteps=1024, n_epochs=2)
    assert (spec.observation_space["shape"], spec.action_space["shape"], spec.n_collectors) == ([17], [6], 1)
    done = train_local(spec)
    last = done.metrics[-1]
    assert done.n_timesteps == 1024
    assert np.isfinite([last["train/value_loss"], last["train/approx_kl"]]).all()
    assert last["rollout/ep_len_mean"] == 1000


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:builtin type:DeprecationWarning")  # Box2D's extension crashes if it is an error
@needs("box2d", "Box2D")
def test_lunar_lander_trains_by_its_entry():
    """One round of 2 environments x 1024 steps ends episodes with returns of the size that the game gives."""
    done = train_local(spec_of("LunarLanderContinuous-v3", total_timesteps=2048, n_envs=2, n_epochs=1))
    assert done.n_timesteps == 2048
    assert -500 < done.metrics[-1]["rollout/ep_rew_mean"] < 0


@pytest.mark.slow
@needs("atari", "ale_py", "cv2")
def test_pong_trains_by_the_atari_entry():
    """One round of the ``atari`` entry: four 84 x 84 frames, a CNN, finite losses."""
    spec = spec_of("ALE/Pong-v5", total_timesteps=256, n_envs=2, n_epochs=1)
    assert spec.observation_space["shape"] == [84, 84, 4]
    assert spec.observation_space["dtype"] == "uint8"
    last = train_local(spec).metrics[-1]
    assert np.isfinite([last["train/value_loss"], last["train/entropy_loss"]]).all()


@pytest.mark.slow
@needs("atari", "ale_py", "cv2")
def test_a_lost_life_ends_the_agents_episode_not_the_game():
    """In Breakout, 5 lives are 5 episodes for the agent, with signs as rewards, and one game with one raw score."""
    env = make_env({"env": "ALE/Breakout-v5", "env_wrappers": [{"name": "AtariWrapper", "kwargs": {}}]})
    assert env.unwrapped._frameskip == 1
    env.action_space.seed(0)
    env.reset(seed=3)
    tally, n_ends, raw = tally_of(env), 0, 0.0
    rewards, games = set(), []
    for _ in range(5000):
        _, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        rewards.add(reward)
        raw += reward
        if terminated or truncated:
            n_ends += 1
            games += tally.drain()
            if games:
                break
            env.reset()
    assert (n_ends, len(games)) == (5, 1)
    assert rewards <= {-1.0, 0.0, 1.0}
    score, n_frames = games[0]
    assert score >= raw >= 1, "rows far up are worth more than 1 each"
    assert n_frames > 4 * 50
    obs, _ = env.reset()
    assert obs.shape == (84, 84, 1)
    assert env.unwrapped.ale.lives() == 5
    env.close()


@pytest.mark.slow
@needs("atari", "ale_py", "cv2")
def test_gymnasiums_preprocessing_and_frame_stack():
    """The other way to the same shape: AtariPreprocessing, then FrameStack; 30 no-ops at most, skip 4."""
    wrappers = [{"name": "AtariPreprocessing", "kwargs": {"noop_max": 30, "frame_skip": 4}}]
    source = {"env": "ALE/Pong-v5", "env_wrappers": [*wrappers, {"name": "FrameStack", "kwargs": {"n_stack": 4}}]}
    found = probe(source)
    assert (found["observation_space"]["shape"], found["action_space"]["n"]) == ([84, 84, 4], 6)
