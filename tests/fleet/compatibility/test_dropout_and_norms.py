"""Networks with dropout and batch normalisation, as scripts for Stable-Baselines3 make and train them."""

import numpy as np
import pytest
import torch
from torch import nn

import drlnb

NORM = "net.features.norm."
MODELS = pytest.mark.parametrize(
    ("kind", "env", "more"),
    [
        (drlnb.PPO, "CartPole-v1", {"n_steps": 64}),
        (drlnb.PPO, "Pendulum-v1", {"n_steps": 64}),
        (drlnb.DQN, "CartPole-v1", {"learning_starts": 0, "batch_size": 8}),
    ],
)


class Features(nn.Module):
    """The observation, flat, normalised, and half of it left out."""

    def __init__(self, observation_space):
        super().__init__()
        self.features_dim = int(np.prod(observation_space.shape))
        self.norm, self.drop = nn.BatchNorm1d(self.features_dim), nn.Dropout(0.5)

    def forward(self, observations):
        return self.drop(self.norm(observations.flatten(1)))


def made(kind, env="CartPole-v1", **more):
    return kind("MlpPolicy", env, policy_kwargs={"net_arch": [16, 16], "features_extractor_class": Features}, **more)


def statistics(model):
    return {name: each for name, each in model.get_parameters()["policy"].items() if name.startswith(NORM)}


def same(these, those):
    return all(torch.equal(these[name], those[name]) for name in those)


@MODELS
def test_predicting_moves_nothing_and_answers_the_same(kind, env, more):
    """Six predictions of one observation: one answer, and the statistics that the model was made with."""
    model = made(kind, env, seed=1, **more)
    before, obs = statistics(model), model.observation_space.sample()
    answers = [model.predict(obs, deterministic=True)[0] for _ in range(6)]
    assert all(np.array_equal(answer, answers[0]) for answer in answers)
    assert len(before) == 5
    assert same(statistics(model), before)


@MODELS
def test_learning_moves_weights_and_statistics(kind, env, more):
    """After a budget of 64 steps: each bias, each running mean; a model that was saved and loaded has them."""
    model = made(kind, env, seed=1, **more)
    before = statistics(model)
    model.learn(64, local=True)
    after = statistics(model)
    for name in ("bias", "running_mean"):
        assert not torch.isclose(after[NORM + name], before[NORM + name], atol=1e-8).any()


def test_collecting_moves_no_statistics():
    """A DQN that collects alone: everything is as it was."""
    model = made(drlnb.DQN, seed=1, learning_starts=10, train_freq=1, gradient_steps=0)
    before = statistics(model)
    model.learn(100, local=True)
    assert same(statistics(model), before)


def test_a_saved_model_has_its_statistics(tmp_path):
    """Saved and loaded, it answers as before, and goes on to the bits of one that was not."""
    model = made(drlnb.PPO, seed=1, n_steps=64)
    model.learn(64, local=True)
    model.save(tmp_path / "model.zip")
    again = drlnb.PPO.load(tmp_path / "model.zip", trust=True)
    assert same(statistics(again), statistics(model))
    obs = np.stack([model.observation_space.sample() for _ in range(20)])
    assert np.array_equal(again.predict(obs, deterministic=True)[0], model.predict(obs, deterministic=True)[0])


def test_a_policy_is_a_module_in_evaluation_mode():
    """``model.policy`` answers as predict; put into training mode it drops, and its statistics count."""
    model = made(drlnb.PPO, seed=1, n_steps=64)
    policy, obs = model.policy, torch.randn(50, 4)

    def predicted():
        return torch.from_numpy(model.predict(obs.numpy(), deterministic=True)[0])

    assert torch.equal(policy.greedy(obs), predicted())
    expected = policy.outputs(obs)
    policy.set_training_mode(True)
    assert not torch.equal(policy.outputs(obs), policy.outputs(obs))
    policy.set_training_mode(False)
    assert not torch.equal(policy.outputs(obs), expected)
    assert torch.equal(policy.greedy(obs), predicted())


def test_what_is_wrong_with_a_network_is_told_where_the_model_is_made():
    """Noise that stays on while it acts is refused in one line."""

    class Noisy(Features):
        def forward(self, observations):
            return nn.functional.dropout(observations.flatten(1))

    kwargs = {"features_extractor_class": Noisy}
    with pytest.raises(ValueError, match="answers differently when asked twice in evaluation mode"):
        drlnb.PPO("MlpPolicy", "CartPole-v1", policy_kwargs=kwargs)
