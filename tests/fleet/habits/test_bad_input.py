"""What cannot be is told in one line that names the thing and the way, when it is given and not rounds later."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

import drlnb
from drlnb.records.errors import ConfigError, EnvError, UnsupportedSpace

SMALL = {"n_steps": 16, "batch_size": 16, "n_epochs": 1, "seed": 0, "policy_kwargs": {"net_arch": [8]}}


def ppo(env="CartPole-v1", **given):
    return drlnb.PPO("MlpPolicy", env, **{**SMALL, **given})


@pytest.fixture(scope="module")
def model():
    return ppo()


def told(error, act, said):
    """Act, and return what was told: one line."""
    with pytest.raises(error, match=said) as refused:
        act()
    assert len(str(refused.value).splitlines()) == 1
    assert len(str(refused.value)) < 400
    return str(refused.value)


class Small(gymnasium.Env):
    observation_space = spaces.Box(-1, 1, (3,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(3, np.float32), {}

    def step(self, action):
        return np.zeros(3, np.float32), 0.0, False, False, {}


def small(**of):
    return type("Small", (Small,), of)


# -------------------------------------------------------------------- what is no environment
@pytest.mark.parametrize("env", [3, None, object(), [], {}, np.zeros(3), [Small()], (Small(),)])
def test_what_is_no_environment(env):
    """Objects of any kind, a list of environments too."""
    told(EnvError, lambda: ppo(env), "env must be an environment, its id, a class or function that returns one, or a v")


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ("CartPool-v1", "unknown environment 'CartPool-v1'; did you mean CartPole-v1"),
        ("", "environment '' cannot be made: Malformed environment ID"),
        (dict, "the factory of dict must return a gymnasium.Env, got dict"),
        (lambda: 3, "the factory of lambda must return a gymnasium.Env, got int"),
        (
            small(step=lambda self, a: (np.zeros(3), 0.0, False, {})),
            "step must return .observation, reward, terminated",
        ),
        (small(reset=lambda self, **given: np.zeros(3)), "reset must return .observation, info., got ndarray"),
        (small(reset=lambda self: (np.zeros(3), {})), "Small raised in reset: TypeError: .* keyword argument 'seed'"),
        (small(reset=lambda self, **given: (np.zeros(5), {})), "an observation of shape .5,., its space says .3,."),
        (small(step=lambda self, a: (np.zeros(3), float("nan"), 0, 0, {})), "step 0 returned the reward nan"),
    ],
)
def test_environments_that_break_the_contract(env, said):
    """Of the class, and of an object of it."""
    told(EnvError, lambda: ppo(env), said)
    if isinstance(env, type) and issubclass(env, gymnasium.Env):
        told(EnvError, lambda: ppo(env()), said)


# -------------------------------------------------------------------- spaces that do not fit
@pytest.mark.parametrize(
    ("of", "said"),
    [
        ({"observation_space": None}, "observation space None is not supported, policies take Box, Discrete"),
        ({"observation_space": spaces.Text(3)}, "FlattenObservation turns many spaces into a Box"),
        ({"observation_space": spaces.Tuple((spaces.Discrete(2),) * 2)}, "FlattenObservation turns many spaces"),
        ({"observation_space": spaces.Dict({})}, "observation space Dict.. is not supported"),
        ({"action_space": spaces.Box(0, 3, (2,), np.int64)}, "a Box of actions must hold floats"),
        ({"action_space": spaces.Dict({"a": spaces.Discrete(2)})}, "actions may be Discrete, MultiDiscrete, MultiBin"),
        ({"action_space": spaces.Sequence(spaces.Discrete(2))}, "actions may be Discrete, MultiDiscrete, MultiBin"),
    ],
)
def test_spaces_that_nobody_serves(of, said):
    """With what serves."""
    assert "Small" in told(UnsupportedSpace, lambda: ppo(small(**of)), said)


@pytest.mark.parametrize(
    ("make", "error", "said"),
    [
        (lambda: drlnb.DQN("MlpPolicy", "Pendulum-v1"), UnsupportedSpace, "dqn needs discrete actions, .*: choose ppo"),
        (
            lambda: drlnb.GPF("MlpPolicy", "Pendulum-v1", reward_scale=1.0),
            UnsupportedSpace,
            "gpf needs discrete actions, Pendulum-v1 takes box ones: choose ppo",
        ),
        (lambda: ppo(use_sde=True), ConfigError, "use_sde needs Box actions, CartPole-v1 takes discrete ones"),
        (lambda: ppo(use_masking=True), EnvError, r"use_masking needs a method action_masks\(\), or info"),
        (lambda: drlnb.PPO("MultiInputPolicy", "CartPole-v1"), ConfigError, "MultiInputPolicy takes Dict .*say MlpPol"),
        (lambda: drlnb.PPO("CnnPolicy", "CartPole-v1"), ConfigError, "CnnPolicy takes images .*; use MlpPolicy"),
    ],
)
def test_algorithms_and_policies_that_do_not_fit(make, error, said):
    """When the model is built."""
    told(error, make, said)


# -------------------------------------------------------------------- policies
class NoActor(nn.Module):
    def __init__(self, observation_space, action_space):
        super().__init__()
        self.layer = nn.Linear(4, 2)


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ("MlpPolic", "policy must be MlpPolicy, CnnPolicy, MultiInputPolicy, or a function"),
        (None, "policy must be MlpPolicy, CnnPolicy, MultiInputPolicy, or a function"),
        (3, "policy must be MlpPolicy, CnnPolicy, MultiInputPolicy, or a function"),
        ("MlpLstmPolicy", "policy cannot be recurrent: no algorithm here learns from sequences"),
        (nn.Linear, "policy Linear raised TypeError"),
        (nn.Linear(4, 2), "policy: a Linear is made already: give the class, or a function, that makes it"),
        (NoActor, r"policy NoActor must make an nn.Module with actor\(obs\) and critic\(obs\)"),
        (lambda observation_space, action_space: 3, r"policy lambda must make an nn.Module with actor\(obs\)"),
    ],
)
def test_policies_of_other_libraries(policy, said):
    """When the model is built, with what a policy is here."""
    told(ConfigError, lambda: drlnb.PPO(policy, "CartPole-v1", n_steps=16, batch_size=16), said)


def test_a_policy_derived_from_theirs():
    """Their base class has another constructor: the line says what does it here."""
    base = type("ActorCriticPolicy", (), {"__module__": "stable_baselines3.common.policies"})
    told(
        ConfigError,
        lambda: drlnb.PPO(type("CustomActorCriticPolicy", (base,), {}), "CartPole-v1"),
        "policy: CustomActorCriticPolicy is a class for Stable-Baselines3: here it is a name, with policy_kwargs",
    )


@pytest.mark.parametrize(
    ("kwargs", "said"),
    [
        ({"optimizer_class": torch.optim.LBFGS}, "optimizer_class LBFGS cannot train here: TypeError: .*'closure'"),
        ({"optimizer_class": 3}, "optimizer_class must be Adam, .* of torch.optim, or a class of optimizers, got 3"),
        ({"optimizer_class": nn.Linear}, "optimizer_class must be Adam, .*, got 'torch.nn.modules.linear.Linear'"),
        ({"optimizer_kwargs": {"amsgrad": True}}, "optimizer_kwargs of Adam takes the keys betas, eps, weight_decay,"),
        ({"activation_fn": nn.ReLU()}, r"activation_fn is a class, such as torch.nn.ReLU, or its name, got ReLU\(\)"),
        ({"activation_fn": nn.PReLU}, "activation_fn must be one of tanh, relu"),
        ({"net_arch": nn.Linear}, "net_arch holds widths, whole numbers >= 1, got <class"),
        ({"net_arch": {"pi": [8], "qf": [8]}}, "net_arch takes the keys pi, vf, not qf"),
        ({"net_arch": [0]}, "net_arch holds widths, whole numbers >= 1, got 0"),
        ({"share_features_extractor": 3}, "share_features_extractor must be"),
        ({"squash_output": True}, "squash_output needs use_sde=True"),
        ({"full_std": False}, "full_std needs use_sde=True"),
        ({"use_expln": True}, "use_expln needs use_sde=True"),
        ({"lstm_hidden_size": 3}, "policy_kwargs takes the keys .*, not lstm_hidden_size"),
        ({"features_extractor_class": nn.Flatten}, "Flatten must make an nn.Module with features_dim"),
        ({"features_extractor_class": nn.Linear}, "features_extractor_class Linear raised TypeError"),
        ([1], "policy_kwargs must be a mapping"),
    ],
)
def test_arguments_of_networks(kwargs, said):
    """No optimizer that is not known, nor anything that would be left out without a word; no base64 in what is said."""
    told(ConfigError, lambda: ppo(policy_kwargs=kwargs), said)


# -------------------------------------------------------------------- observations
@pytest.mark.parametrize(
    ("obs", "said"),
    [
        (gymnasium.make("CartPole-v1").reset(seed=0), r"got what reset\(\) returns: say obs, info = env.reset\(\)"),
        ((np.zeros(4), 1.0, False, False, {}), r"got what step\(\) returns: say obs, reward, terminated, truncated, i"),
        ([[0.0], [0.0, 1.0]], r"observation must have the shape \(4,\) or \(n, \*\(4,\)\), got \[\[0.0\], \[0.0, 1.0"),
        (None, r"observation must be numbers of the shape \(4,\) or \(n, \*\(4,\)\), got None"),
        ("seen", r"observation must be numbers of the shape .*, got 'seen'"),
        ({"a": np.zeros(4)}, r"observation must be numbers of the shape .*, got \{'a'"),
        (np.zeros(5), r"observation must have the shape \(4,\) or \(n, \*\(4,\)\), got \(5,\)"),
    ],
)
def test_what_predict_cannot_take(model, obs, said):
    """First of all what `reset()` returns as it is."""
    told(ValueError, lambda: model.predict(obs), said)


def test_masks_of_a_model_without_masks(model):
    """As of `MaskablePPO`; the line says with what."""
    told(ValueError, lambda: model.predict(np.zeros(4), action_masks=[True, False]), "trained with use_masking=True")
