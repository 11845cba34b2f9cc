"""A model's policy beside Stable-Baselines3's: the same parameters give the same answers."""

import re

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete

from tests.fleet.compatibility.worlds import Anything, Pictures, dqn, ppo

pytestmark = pytest.mark.slow

FOUR = Box(-1.0, 1.0, (4,), np.float32)
SDE = {"use_sde": True, "policy_kwargs": {"net_arch": [8], "log_std_init": -0.7}}
#: Environment, policy, arguments.
CASES = {
    "discrete": (lambda: gymnasium.make("CartPole-v1"), "MlpPolicy", {}),
    "box": (lambda: gymnasium.make("Pendulum-v1"), "MlpPolicy", {"policy_kwargs": {"net_arch": [8, 4]}}),
    "multidiscrete": (lambda: Anything(FOUR, MultiDiscrete([3, 2, 4])), "MlpPolicy", {}),
    "multibinary": (lambda: Anything(FOUR, MultiBinary(3)), "MlpPolicy", {}),
    "choices seen": (lambda: Anything(Discrete(5), Discrete(3)), "MlpPolicy", {}),
    "no hidden layer": (lambda: gymnasium.make("CartPole-v1"), "MlpPolicy", {"policy_kwargs": {"net_arch": []}}),
    "gSDE": (lambda: gymnasium.make("Pendulum-v1"), "MlpPolicy", SDE),
    "gSDE squashed": (
        lambda: gymnasium.make("Pendulum-v1"),
        "MlpPolicy",
        {"use_sde": True, "policy_kwargs": {"net_arch": [8], "squash_output": True, "use_expln": True}},
    ),
    "pictures": (
        lambda: Pictures(2),
        "CnnPolicy",
        {"policy_kwargs": {"features_extractor_kwargs": {"features_dim": 8}, "net_arch": {"pi": [8], "vf": [8]}}},
    ),
}


def their_name(name):
    """Return their name of one of our parameters."""
    plain = name.removeprefix("net.").replace("features.", "features_extractor.")
    tower = re.match(r"(pi|vf)\.(\d+)\.(\w+)", plain)
    if tower is None:
        return re.sub(r"^(action|value)\.", r"\1_net.", plain)
    step = 1 if name.startswith("net.") else 2  # behind each of their layers its activation follows
    which = {"pi": "policy", "vf": "value"}[tower[1]]
    return f"mlp_extractor.{which}_net.{step * int(tower[2])}.{tower[3]}"


def give(theirs, model):
    """Put random numbers into both, the same."""
    rng, names = torch.Generator().manual_seed(4), set()
    with torch.no_grad():
        for name, parameter in model.policy.named_parameters():
            drawn = torch.randn(parameter.shape, generator=rng) * 0.3
            parameter.copy_(drawn)
            theirs.get_parameter(their_name(name)).copy_(drawn)
            names.add(their_name(name))
    assert names == {name for name, _ in theirs.named_parameters()}


@pytest.mark.parametrize("case", CASES)
def test_answers_are_theirs(case):
    """Values, log-probabilities, entropies, most likely actions, and predictions, to 1e-5."""
    sb3 = pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed (extra bench)")
    make, name, given = CASES[case]
    rounds = {"n_steps": 16, "batch_size": 16, "n_epochs": 1, "seed": 0}
    theirs = sb3.PPO(name, make(), device="cpu", **rounds, **given).policy
    model = ppo(make, name, **{"policy_kwargs": {}, **given})
    give(theirs, model)
    ours, space = model.policy, model.observation_space
    space.seed(3)
    raw = np.stack([space.sample() for _ in range(40)])
    seen, batch = ours.obs_to_tensor(raw)
    their_seen, _ = theirs.obs_to_tensor(raw)
    assert batch
    with torch.no_grad():
        torch.manual_seed(1)
        actions, their_values, their_log_p = theirs(their_seen)
        values, log_p, entropy = ours.evaluate_actions(seen, actions)
        close = {"rtol": 1e-5, "atol": 1e-5}
        torch.testing.assert_close(values, their_values, **close)
        torch.testing.assert_close(log_p, their_log_p, **close)
        torch.testing.assert_close(ours.predict_values(seen), theirs.predict_values(their_seen), **close)
        their_entropy = theirs.evaluate_actions(their_seen, actions)[2]
        assert (entropy is None) == (their_entropy is None)
        if entropy is not None:
            torch.testing.assert_close(entropy, their_entropy, **close)
        for mine, wanted in zip(ours(seen, deterministic=True), theirs(their_seen, deterministic=True), strict=True):
            torch.testing.assert_close(mine, wanted, **close, check_dtype=False)
        drawn, _, own = ours(seen)
        torch.testing.assert_close(own, theirs.evaluate_actions(their_seen, drawn)[1], **close)
    predicted, wanted = (each.predict(raw, deterministic=True)[0] for each in (ours, theirs))
    np.testing.assert_allclose(predicted, wanted, **close)


def test_action_values_are_theirs():
    """Of a DQN, and the best actions."""
    sb3 = pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed (extra bench)")
    theirs = sb3.DQN("MlpPolicy", "CartPole-v1", policy_kwargs={"net_arch": [8]}, device="cpu").policy
    model = dqn()
    with torch.no_grad():
        for mine, wanted in zip(model.policy.parameters(), theirs.q_net.parameters(), strict=True):
            mine.copy_(wanted)
    obs = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(model.q_net(obs), theirs.q_net(obs), rtol=1e-5, atol=1e-5)
        assert torch.equal(model.policy(obs), theirs(obs))


def test_their_evaluation_takes_a_policy():
    """Of a model that is there, and of one that was loaded alone."""
    pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed (extra bench)")
    from stable_baselines3.common.evaluation import evaluate_policy

    model = ppo()
    for policy in (model.policy, ppo().policy):
        mean, _ = evaluate_policy(policy, gymnasium.make("CartPole-v1"), n_eval_episodes=2, warn=False)
        assert mean >= 8
