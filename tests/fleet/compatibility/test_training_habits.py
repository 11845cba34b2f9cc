"""Short trainings as scripts for Stable-Baselines3 begin them: networks, rounds, spaces, numbers that come out."""

import math
import time

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete

import drlnb
from drlnb.fleet.callbacks.base import BaseCallback
from drlnb.fleet.callbacks.progress import budget_folder
from drlnb.records.errors import ConfigError, UnsupportedSpace
from drlnb.rl import evaluate
from tests.fleet.compatibility.worlds import ROUND, Anything, Echo, dqn, ppo


class Rounds(BaseCallback):
    """Keeps each round's scalars."""

    def __init__(self):
        super().__init__()
        self.rows = []

    def on_round_end(self, metrics):
        self.rows.append(dict(metrics))


def told(model, total=32, **more):
    rounds = Rounds()
    model.learn(total, callback=rounds, local=True, **more)
    return rounds.rows


def finite(rows):
    losses = [row["train/loss"] for row in rows if "train/loss" in row]  # a DQN has none before it learns
    return bool(losses) and all(map(math.isfinite, losses))


# -------------------------------------------------------------------- networks
@pytest.mark.parametrize(
    ("net_arch", "pi", "vf"),
    [
        ([], [], []),
        ([4], [4], [4]),
        ([4, 4], [4, 4], [4, 4]),
        ({"vf": [16], "pi": [8]}, [8], [16]),
        ({"vf": [8, 4], "pi": [8]}, [8], [8, 4]),
        ({"vf": [8], "pi": [8, 4]}, [8, 4], [8]),
        ({"pi": [8]}, [8], []),
        ([{"vf": [8]}], [], [8]),
        ([{"vf": [8], "pi": [4]}], [4], [8]),
    ],
)
def test_towers_are_as_wide_as_they_are_said(net_arch, pi, vf):
    """As a list for both, by name, in the old spelling; none is a linear policy.  It learns."""
    model = ppo(policy_kwargs={"net_arch": net_arch})
    rows = told(model)
    shapes = {name: tuple(tensor.shape) for name, tensor in model.get_parameters()["policy"].items()}
    for tower, widths, head, n in (("pi", pi, "action", 2), ("vf", vf, "value", 1)):
        layers = [shapes[name] for name in shapes if name.startswith(f"{tower}.") and name.endswith("weight")]
        assert layers == [*zip(widths, [4, *widths], strict=False)]
        assert shapes[f"{head}.weight"] == (n, [4, *widths][-1])
    assert finite(rows)


# -------------------------------------------------------------------- rounds and updates
@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
@pytest.mark.parametrize("clip_range_vf", [None, 0.2, -0.2])
def test_a_value_is_clipped_or_not(env, clip_range_vf):
    """By a range from 0 on; another one is refused."""
    if clip_range_vf == -0.2:
        with pytest.raises(ConfigError, match="clip_range_vf must be a number >= 0"):
            ppo(env, clip_range_vf=clip_range_vf)
    else:
        assert finite(told(ppo(env, n_epochs=2, clip_range_vf=clip_range_vf)))


@pytest.mark.parametrize("normalize", [True, False])
def test_advantages_are_normalised_or_not(normalize):
    """The first policy loss of normalised ones is minus their mean, 0; of others it is not."""
    (row,) = told(ppo(normalize_advantage=normalize, learning_rate=0.0), 16)
    assert (abs(row["train/policy_gradient_loss"]) < 1e-6) is normalize


def test_rounds_of_one_sample():
    """Have no spread to normalise by; a last minibatch of one sample makes no NaN."""
    with pytest.raises(ConfigError, match=r"batch_size must be >= 2 with normalize_advantage \(one sample has no spre"):
        drlnb.PPO("MlpPolicy", "Pendulum-v1", n_steps=1)
    assert finite(told(ppo("Pendulum-v1", n_steps=1, batch_size=1, normalize_advantage=False), 4))
    rows = told(ppo("Pendulum-v1", n_steps=64, batch_size=63, n_epochs=2), 64)
    assert finite(rows)
    assert rows[0]["train/loss"] > 0


def test_a_dqn_learns_as_often_as_it_is_said():
    """Of two environments: gradient steps by spell, or one for each transition; a time limit is passed on the way."""
    assert [row.get("train/n_updates") for row in told(dqn(n_envs=2, train_freq=4), 24)] == [None, 1, 2]
    rows = told(dqn(n_envs=2, train_freq=3, gradient_steps=-1, learning_starts=0, batch_size=2), 6)
    assert [row["train/n_updates"] for row in rows] == [6]
    limited = Anything(Box(-1, 1, (2,)), length=5)
    assert finite(told(dqn(limited, n_envs=2, train_freq=4), 64))


@pytest.mark.parametrize("interval", [1, 3])
def test_more_environments_than_steps_between_two_targets(interval):
    """The target network follows after each step of all, as it does where it shall after each four."""
    fast = {"n_envs": 4, "train_freq": 1, "learning_rate": 0.05}
    one, other, late = (dqn(target_update_interval=n, **fast) for n in (interval, 4, 1000))
    assert [row.get("train/n_updates") for row in told(one, 80)] == [None, None, *range(1, 19)]
    for each in (other, late):
        each.learn(80, local=True)
    assert np.array_equal(one.parameters, other.parameters)
    assert not np.array_equal(one.parameters, late.parameters)


@pytest.mark.parametrize("train_freq", [4, (4, "step")])
def test_steps_between_updates_are_kept_at_load(tmp_path, train_freq):
    """And may be said again."""
    path = dqn(train_freq=train_freq).learn(16, local=True).save(tmp_path / "m")
    for given in ({}, {"train_freq": train_freq}):
        again = drlnb.DQN.load(path, **given)
        assert (again.train_freq, again.learn(16, local=True).num_timesteps) == (4, 16)


@pytest.mark.parametrize("train_freq", ["4", ("1", "episode"), "non_sense", (1, "close")])
def test_what_are_no_steps_between_updates(train_freq):
    """One line names the argument."""
    with pytest.raises(ConfigError, match="train_freq"):
        dqn(train_freq=train_freq)


@pytest.mark.parametrize(
    ("make", "name"), [(lambda: ppo("Pendulum-v1"), "box"), (lambda: dqn(train_freq=4), "discrete")], ids=["ppo", "dqn"]
)
def test_a_seed_makes_a_whole_script_the_same(make, name):
    """Training, copies of the environment, samples of the policy: each action and reward is had again."""
    seen = []
    for _ in range(2):
        model = make().learn(64, local=True)
        env, rows = model.get_env(), []
        obs = env.reset()
        for _ in range(40):
            action, _ = model.predict(obs, deterministic=False)
            obs, reward, _, _ = env.step(action)
            rows.append((*action.ravel(), *reward))
        env.close()
        seen.append(rows)
    assert seen[0] == seen[1]
    assert len({row[0] for row in seen[0]}) > 1, name


# -------------------------------------------------------------------- predict
@pytest.mark.parametrize("device", ["cpu", "auto"])
@pytest.mark.parametrize(
    "make",
    [ppo, lambda **more: ppo("Pendulum-v1", **more), dqn],
    ids=["ppo of choices", "ppo of numbers", "dqn"],
)
def test_one_observation_gives_one_action_and_two_give_two(make, device):
    """Of the environment's type, from one environment and from several; also where all of it is chance."""
    model = make(device=device)
    if model.spec.algo == "dqn":
        model.exploration_final_eps = 1.0
    assert model.policy.device.type == "cpu"
    env = gymnasium.make(model.spec.env)
    vector = gymnasium.make_vec(model.spec.env, num_envs=2, vectorization_mode="sync")
    for deterministic in (True, False):
        action, state = model.predict(env.reset(seed=0)[0], deterministic=deterministic)
        assert (env.action_space.contains(action), np.shape(action), state) == (True, env.action_space.shape, None)
        actions, _ = model.predict(vector.reset(seed=0)[0], deterministic=deterministic)
        assert actions.shape == (2, *env.action_space.shape)


def test_a_dqn_that_explores_always_takes_each_action():
    """From a number as observation, too."""
    model = dqn(Echo(Discrete(2)), exploration_final_eps=1.0)
    assert {int(model.predict(0, deterministic=False)[0]) for _ in range(40)} == {0, 1}
    assert len({int(model.predict(0, deterministic=True)[0]) for _ in range(40)}) == 1


# -------------------------------------------------------------------- spaces
VECTOR, EXACT = Box(-1, 1, (2,), np.float32), Box(-1, 1, (2,), np.float64)


class Sub(Box):
    """A space of a class that is derived from gymnasium's."""


@pytest.mark.parametrize("actions", [VECTOR, EXACT], ids=["float32", "float64"])
@pytest.mark.parametrize(
    "shown",
    [VECTOR, EXACT, Dict({"a": VECTOR, "b": VECTOR}), Dict({"a": VECTOR, "b": EXACT}), Sub(-1, 1, (2,), np.float32)],
    ids=["float32", "float64", "two of float32", "one of each", "a derived class"],
)
def test_numbers_of_either_width(shown, actions):
    """Observations and actions in float64 are learnt, and actions come back as the environment takes them."""
    env = Anything(shown, actions)
    policy = "MultiInputPolicy" if isinstance(shown, Dict) else "MlpPolicy"
    model = ppo(env, policy).learn(16, local=True)
    action, _ = model.predict(env.reset(seed=0)[0], deterministic=False)
    assert (action.dtype, action.shape, actions.contains(action)) == (actions.dtype, (2,), True)


@pytest.mark.parametrize(
    "shown",
    [MultiDiscrete([4, 3]), MultiBinary(8), MultiBinary((3, 2)), Discrete(500)],
    ids=["choices", "switches", "a table of switches", "one of many"],
)
@pytest.mark.parametrize("kind", [ppo, dqn])
def test_choices_are_seen(kind, shown):
    """Two environments of them are learnt, and whole episodes played."""
    model = kind(Anything(shown, Discrete(4)), n_envs=2).learn(64, local=True)
    assert evaluate(model, n_episodes=3).lengths == (10, 10, 10)


@pytest.mark.parametrize(
    "actions",
    [Box(-1, 1, (2, 2), np.float32), MultiBinary([2, 3]), MultiDiscrete([4, 3])],
    ids=["a table of numbers", "a table of switches", "choices"],
)
def test_actions_of_several_parts(actions):
    """Are taken in their shape by PPO; DQN says what it takes."""
    model = ppo(Anything(VECTOR, actions)).learn(16, local=True)
    assert actions.contains(model.predict(np.zeros(2))[0])
    with pytest.raises(UnsupportedSpace, match="dqn"):
        dqn(Anything(VECTOR, actions))


def test_actions_of_a_plain_gaussian_are_not_squashed():
    """Without state-dependent exploration it is refused, by its name."""
    with pytest.raises(ConfigError, match="squash_output"):
        ppo("Pendulum-v1", use_sde=False, policy_kwargs={"squash_output": True})


def test_a_dqn_refuses_numbers():
    """Of an environment by its id."""
    with pytest.raises(UnsupportedSpace, match="dqn needs discrete actions, Pendulum-v1 takes box ones"):
        dqn("Pendulum-v1")


# -------------------------------------------------------------------- observations with keys, and pictures
def keyed(first=False, nested=False):
    picture = Box(0, 255, (1, 36, 36) if first else (36, 36, 1), np.uint8)
    parts = {"picture": picture, "numbers": VECTOR, "choice": Discrete(4)}
    return Dict({**parts, "inner": Dict({"choice": Discrete(4)})} if nested else parts)


SMALL_KEYED = {"net_arch": [8], "features_extractor_kwargs": {"cnn_output_dim": 8}}


@pytest.mark.parametrize("first", [False, True], ids=["channels last", "channels first"])
@pytest.mark.parametrize("kind", [ppo, dqn])
def test_keys_of_every_kind_are_learnt(kind, first):
    """Pictures, numbers and choices at once; whole episodes are played."""
    model = kind(Anything(keyed(first)), "MultiInputPolicy", policy_kwargs=SMALL_KEYED).learn(16, local=True)
    assert evaluate(model, n_episodes=2).lengths == (10, 10)


@pytest.mark.parametrize("kind", [ppo, dqn])
def test_a_single_key_is_the_array_alone(kind):
    """The same network, the same actions before and after learning."""
    env = Anything(Dict({"numbers": VECTOR}))
    one = kind(env, "MultiInputPolicy")
    other = kind(gymnasium.wrappers.FlattenObservation(env))
    obs = np.random.default_rng(0).uniform(-1, 1, (50, 2)).astype(np.float32)
    for _ in range(2):
        acted = [m.predict(seen, deterministic=True)[0] for m, seen in ((one, {"numbers": obs}), (other, obs))]
        np.testing.assert_array_equal(*acted)
        one.learn(32, local=True)
        other.learn(32, local=True)


def test_keys_in_keys_are_refused():
    """One line names the space."""
    with pytest.raises(UnsupportedSpace, match="inner"):
        ppo(Anything(keyed(nested=True)), "MultiInputPolicy")


class Goals(Anything):
    """Says where it is and where it should be."""

    def __init__(self):
        where = MultiBinary(4)
        super().__init__(Dict({"observation": where, "achieved_goal": where, "desired_goal": where}), Discrete(4))


def test_goals_are_keys():
    """As of any dictionary: PPO has no use for `compute_reward`."""
    model = ppo(Goals(), "MultiInputPolicy").learn(16, local=True)
    assert evaluate(model, n_episodes=2).lengths == (10, 10)


@pytest.mark.parametrize("policy", ["MlpPolicy", "CnnPolicy"])
def test_a_policy_for_arrays_is_told_of_keys(policy):
    """The one that takes them is named."""
    with pytest.raises((ConfigError, ValueError), match="MultiInputPolicy"):
        ppo(Goals(), policy)


def test_numbers_among_keys_are_normalised():
    """The statistics of training are the numbers' own; pictures and choices pass."""
    model = ppo(Anything(keyed()), "MultiInputPolicy", policy_kwargs=SMALL_KEYED, normalize=True)
    assert finite(told(model))
    assert evaluate(model, n_episodes=2).lengths == (10, 10)


@pytest.mark.parametrize("kind", [ppo, dqn])
def test_pictures_of_numbers_are_no_pictures(kind):
    """A convolutional policy divides bytes by 255: floats are refused, unless `normalize_images` is False."""
    env = Anything(Box(-10, 10, (1, 36, 36), np.float32))
    cnn = {"features_extractor_kwargs": {"features_dim": 8}}
    with pytest.raises(ConfigError, match="CnnPolicy takes images"):
        kind(env, "CnnPolicy", policy_kwargs=cnn).learn(16, local=True)
    assert finite(
        told(kind(env, "CnnPolicy", policy_kwargs={**cnn, "normalize_images": False}, learning_rate=1e-4), 32)
    )


# -------------------------------------------------------------------- numbers of a round
@pytest.mark.parametrize("kind", [ppo, dqn])
def test_the_speed_is_of_this_budget(kind, monkeypatch):
    """A clock that goes 1 s per look: a second budget, from 0 or going on, is not faster for the steps of the first."""
    model = kind()
    clock = iter(range(10**6))
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(clock)))
    speeds = [[row["time/fps"] for row in told(model, 64, reset_num_timesteps=reset)] for reset in (True, True, False)]
    assert max(speeds[1] + speeds[2]) <= max(speeds[0])


@pytest.mark.parametrize("kind", [ppo, dqn])
def test_a_clock_that_stands_still_divides_nothing_by_zero(kind, monkeypatch):
    """As on machines whose clock is coarse."""
    monkeypatch.setattr(time, "perf_counter", lambda: 42.0)
    assert all(row["time/fps"] >= 0 for row in told(kind(), 64))


def test_folders_of_budgets_count_on_whatever_their_name(tmp_path):
    """Also one with letters that patterns of file names know."""
    for name in ("plain", "odd[16, 16]", "a*b?"):
        (tmp_path / f"{name}_1").mkdir()
        (tmp_path / f"{name}_2").mkdir()
        (tmp_path / f"{name}_x").mkdir()
        assert budget_folder(tmp_path, name, anew=True) == tmp_path / f"{name}_3"
        assert budget_folder(tmp_path, name, anew=False) == tmp_path / f"{name}_2"


@pytest.mark.parametrize("gamma", [1.0, 0.99])
@pytest.mark.parametrize("gae_lambda", [1.0, 0.9])
@pytest.mark.parametrize("n_episodes", [1, 3])
@pytest.mark.parametrize("value", [0.0, 1.0])
def test_advantages_of_a_constant_value(gamma, gae_lambda, n_episodes, value):
    """Reward 1 at the end of each 64 steps alone: j steps before it, d^j (1 - v) + (g v - v) (1 + d + .. + d^(j-1))."""
    from drlnb.rl.objectives.advantages import gae

    n = 64 * n_episodes
    ends = (np.arange(n) % 64 == 63)[:, None]
    values = np.full((n, 1), value)
    found = gae(ends * 1.0, values, values, ends, np.zeros_like(ends), gamma=gamma, gae_lambda=gae_lambda)
    decay, left = gamma * gae_lambda, 63 - np.arange(n) % 64
    sums = np.array([sum(decay**k for k in range(j)) for j in left])
    np.testing.assert_allclose(found[:, 0], decay**left * (1 - value) + (gamma * value - value) * sums, atol=1e-9)


# -------------------------------------------------------------------- it learns
@pytest.mark.thorough
@pytest.mark.parametrize(
    ("kind", "space", "given"),
    [
        (ppo, Discrete(4), {"n_steps": 256, "batch_size": 64, "n_epochs": 4}),
        (ppo, MultiDiscrete([4, 4]), {"n_steps": 256, "batch_size": 64, "n_epochs": 4}),
        (ppo, MultiBinary(4), {"n_steps": 256, "batch_size": 64, "n_epochs": 4}),
        (ppo, Box(-1, 1, (1,), np.float32), {"n_steps": 256, "batch_size": 64, "n_epochs": 4}),
        (dqn, Discrete(4), {"learning_starts": 0, "buffer_size": 4096, "batch_size": 32}),
    ],
    ids=["a choice", "two choices", "switches", "a number", "a choice by dqn"],
)
def test_an_echo_is_learnt(kind, space, given):
    """What is shown is what pays: 9 of 10 after a few thousand steps; a choice by chance has 2.5."""
    model = kind(Echo(space), gamma=0.4, learning_rate=0.002, policy_kwargs={"net_arch": [64, 64]}, **given)
    model.learn(4096, local=True)
    assert evaluate(model, n_episodes=20).mean >= 9.0
    assert ROUND["seed"] == model.seed
