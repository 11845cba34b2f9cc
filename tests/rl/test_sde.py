"""State-dependent exploration (gSDE): one matrix per stretch, its variance, and both sides of it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from drlnb.records.errors import ConfigError
from drlnb.records.spec import RlWork
from drlnb.rl.algorithms.ppo import PpoLearner, evaluate
from drlnb.rl.algorithms.registry import check_fit, make_actor, make_learner
from drlnb.rl.algorithms.resolve import resolve
from drlnb.rl.checkpoints.files import pack, unpack
from drlnb.rl.collecting.collector import Collector
from drlnb.rl.heads import Head
from drlnb.rl.local.train import LocalLoop, train_local
from drlnb.rl.networks.exported import MostLikely, Network

HEAD = Head("box", 2).exploring(3)


def task(make_spec: Any, **given: Any) -> RlWork:
    """Return a small Pendulum task that explores by state."""
    return make_spec("Pendulum-v1", **{"use_sde": True, "n_steps": 8, "batch_size": 32, **given})


def test_the_head_by_hand():
    """Mean (1, -1), features (1, 2, 0), deviations 0.5: action = mean + h E, variance = (1 + 4) / 4 + 1e-6."""
    outputs = np.array([[1.0, -1.0, 1.0, 2.0, 0.0]], np.float32)
    std = np.full((3, 2), 0.5, np.float32)
    noise = np.array([[1.0, 0.0, 0.0, -1.0, 9.0, 9.0]], np.float32)  # E before scaling: rows (1 0), (0 -1), (9 9)
    actions = HEAD.choose(outputs, noise, std)
    assert actions.tolist() == [[1.5, -2.0]]
    variance = 1.25 + 1e-6
    expected = -0.5 * ((0.25 + 1.0) / variance + 2 * np.log(variance) + 2 * np.log(2 * np.pi))
    assert HEAD.log_prob(outputs, actions, np.log(std))[0] == pytest.approx(expected, rel=1e-6)
    assert HEAD.choose(outputs, np.zeros_like(noise), std).tolist() == [[1.0, -1.0]]
    assert (HEAD.width, HEAD.noise_width, HEAD.action_shape, HEAD.action_dtype) == (5, 6, (2,), np.float32)


def test_numpy_and_torch_agree_and_equal_a_normal_distribution():
    """Log-probabilities and entropy of 20 rows: both sides, and torch.distributions, to 1e-5."""
    rng = np.random.default_rng(0)
    outputs = rng.standard_normal((20, 5)).astype(np.float32)
    log_std = rng.normal(-0.5, 0.3, (3, 2)).astype(np.float32)
    noise = HEAD.draw(rng, (20, 6))
    actions = HEAD.choose(outputs, noise, np.exp(log_std))
    there = [torch.from_numpy(array) for array in (outputs, log_std)]
    log_p, entropy = evaluate(HEAD, there[0], torch.from_numpy(actions), there[1])
    assert log_p.numpy() == pytest.approx(HEAD.log_prob(outputs, actions, log_std), abs=1e-4)
    spread = (there[0][:, 2:].square() @ there[1].exp().square() + 1e-6).sqrt()
    judged = torch.distributions.Normal(there[0][:, :2], spread)
    torch.testing.assert_close(log_p, judged.log_prob(torch.from_numpy(actions)).sum(1), rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(entropy, judged.entropy().sum(1).mean(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("squash_output", [False, True])
@pytest.mark.parametrize("use_expln", [False, True])
@pytest.mark.parametrize("n_columns", [1, 2])
def test_options_agree_with_torchs_distributions(n_columns, use_expln, squash_output):
    """One deviation per feature or per action; above 1 by the slow function; through tanh: both sides, to 1e-4.

    A squashed action's density is Normal(mean, spread)'s over the derivative of tanh; its entropy, the mean surprise.
    """
    head = Head("box", 2).exploring(3, expln=use_expln, squashed=squash_output)
    rng = np.random.default_rng(0)
    outputs = rng.standard_normal((20, 5)).astype(np.float32)
    log_std = rng.normal(0.0, 0.7, (3, n_columns)).astype(np.float32)
    assert log_std.max() > 0.1 > -0.1 > log_std.min()
    slow = np.where(log_std > 0, 1 + np.log1p(np.abs(log_std) + 1e-6), np.exp(log_std))
    std = np.repeat(slow if use_expln else np.exp(log_std), 3 - n_columns, axis=1)
    np.testing.assert_allclose(head.std(log_std), std, rtol=1e-6)
    actions = head.choose(outputs, 0.5 * head.draw(rng, (20, 6)), head.std(log_std))
    spread = np.sqrt(np.square(outputs[:, 2:]) @ np.square(std) + 1e-6)
    normal = torch.distributions.Normal(torch.from_numpy(outputs[:, :2].copy()), torch.from_numpy(spread))
    terms = normal.log_prob(torch.from_numpy(actions))
    if squash_output:
        terms = terms - torch.log(1 - torch.tanh(torch.from_numpy(actions)) ** 2 + 1e-6)
    found, entropy = evaluate(head, *(torch.from_numpy(array) for array in (outputs, actions, log_std)))
    torch.testing.assert_close(found, terms.sum(1), atol=1e-4, rtol=1e-4)
    np.testing.assert_allclose(head.log_prob(outputs, actions, log_std), terms.sum(1), atol=1e-4, rtol=1e-4)
    expected = -terms.sum(1).mean() if squash_output else normal.entropy().sum(1).mean()
    torch.testing.assert_close(entropy, expected, atol=1e-4, rtol=1e-4)


class Two(torch.nn.Module):
    """Two features of an observation."""

    def __init__(self, space: Any) -> None:
        super().__init__()
        self.features_dim = 2
        self.layer = torch.nn.Linear(space.shape[0], 2)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.layer(obs))


@pytest.mark.parametrize(
    ("extractor", "shared"),
    [
        (True, False),
        pytest.param(True, True, marks=pytest.mark.thorough),
        pytest.param(False, True, marks=pytest.mark.thorough),
        pytest.param(False, False, marks=pytest.mark.thorough),
    ],
)
def test_a_network_of_any_kind_explores_by_state(shared, extractor, make_spec):
    """With an extractor, too: the first ratio is 1, checkpoints change no bits, what is exported acts as the model."""
    kwargs = {"net_arch": [4], "full_std": False, "use_expln": True, "squash_output": True}
    kwargs |= {"share_features_extractor": shared}
    if extractor:
        kwargs["features_extractor_class"] = Two
    hyper = {**task(make_spec).hyperparameters, "n_epochs": 1, "policy_kwargs": kwargs}
    hyper = resolve("Pendulum-v1", overrides=hyper, n_envs=4).hyperparameters
    spec = replace(task(make_spec), hyperparameters=hyper, total_timesteps=96)
    learner = make_learner(spec)
    assert learner.layout["log_std"].shape == (4, 1)
    own = any("of_value" in entry.name for entry in learner.layout.entries)
    assert own == (extractor and not shared), "an MLP has no features to share"
    learner.begin(0, 32)
    learner.stage(0, Collector(spec, env_indices=range(4)).collect(learner.published(), version=0, round=0, n_steps=8))
    metrics = learner.finish()
    assert abs(metrics["train/approx_kl"]) < 1e-6
    whole = train_local(spec)
    first = LocalLoop(spec)
    first.round()
    trained = unpack(*pack(spec, first.trained()), "here")[1]
    second = LocalLoop(spec, trained)
    while second.n_timesteps < 96:
        second.round()
    first.close()
    second.close()
    assert second.parameters.tobytes() == whole.parameters.tobytes()
    actor, obs = make_actor(spec), np.random.default_rng(1).normal(size=(30, 3)).astype(np.float32)
    actor.load(whole.parameters)
    chosen = actor.predict(obs, deterministic=True)[0]
    latent = actor.forward(obs)
    np.testing.assert_allclose(chosen, 2.0 * np.tanh(latent[:, :1]), atol=1e-6)
    network, state = Network(spec), second.state()
    network.fill(state.buffer[: 4 * network.layout.n_total].view(np.float32), state.published)
    with torch.no_grad():
        np.testing.assert_allclose(MostLikely(network)(torch.from_numpy(obs)), chosen, atol=1e-5)


def test_no_gradient_goes_through_the_features():
    """The log-probability's gradient reaches means and deviations; the features' part of the outputs gets 0."""
    outputs = torch.randn(4, 5, generator=torch.Generator().manual_seed(1)).requires_grad_()
    log_std = torch.zeros(3, 2, requires_grad=True)
    evaluate(HEAD, outputs, torch.ones(4, 2), log_std)[0].sum().backward()
    assert (outputs.grad[:, 2:] == 0.0).all()
    assert (outputs.grad[:, :2] != 0.0).all()
    assert (log_std.grad != 0.0).all()


@pytest.mark.parametrize(("every", "n_matrices"), [(-1, 1), (3, 3), (1, 8)])
def test_the_matrix_is_held_for_its_stretch(every, n_matrices, make_spec):
    """Of 8 steps: one matrix, or one per 3, or per step; (action - mean) / features shows which (L = d = 1)."""
    spec = task(make_spec, sde_sample_freq=every, policy_kwargs={"net_arch": [1]})
    learner = PpoLearner(spec)
    found = Collector(spec, env_indices=range(4)).collect(learner.published(), version=0, round=0, n_steps=8)
    obs = torch.from_numpy(found.arrays["obs"].reshape(32, 3))
    outputs = learner.networks.both(obs)[0].detach().numpy().reshape(8, 4, 2)
    matrices = (found.arrays["action"][..., 0] - outputs[..., 0]) / outputs[..., 1]
    drawn = [np.unique(matrices[:, env].round(3)) for env in range(4)]
    assert [len(values) for values in drawn] == [n_matrices] * 4
    assert len(np.unique(np.concatenate(drawn))) == 4 * n_matrices  # each environment has its own
    again = Collector(spec, env_indices=range(4)).collect(learner.published(), version=1, round=1, n_steps=8)
    assert not np.array_equal(again.arrays["action"], found.arrays["action"])


def test_the_first_ratio_is_one(make_spec):
    """What acted is what learns: numpy's log-probabilities are torch's."""
    spec = task(make_spec, n_epochs=1, policy_kwargs={"net_arch": [16], "log_std_init": -1.0}, sde_sample_freq=4)
    learner = PpoLearner(spec)
    assert learner.layout["log_std"].shape == (16, 1)
    learner.begin(0, 32)
    learner.stage(0, Collector(spec, env_indices=range(4)).collect(learner.published(), version=0, round=0, n_steps=8))
    metrics = learner.finish()
    assert abs(metrics["train/approx_kl"]) < 1e-6
    assert metrics["train/clip_fraction"] == 0.0
    assert metrics["train/std"] == pytest.approx(np.exp(-1.0), abs=1e-3)  # one step of 3e-4 moved it


def test_split_and_resume_change_nothing(make_spec):
    """Matrices are keyed by environment and round: two collectors and a stop give the same bits."""
    spec = task(make_spec, total_timesteps=96, sde_sample_freq=3, normalize=True)
    whole = train_local(spec).parameters
    split = RlWork.from_plain({**spec.to_plain(), "n_collectors": 2})
    assert train_local(split).parameters.tobytes() == whole.tobytes()
    first = LocalLoop(spec)
    first.round()
    second = LocalLoop(spec, first.trained())
    while second.n_timesteps < 96:
        second.round()
    first.close()
    second.close()
    assert second.parameters.tobytes() == whole.tobytes()


def test_predict_explores_or_not(make_spec):
    """Deterministic actions are the mean's; samples differ, and both stay within the bounds."""
    spec = task(make_spec, policy_kwargs={"net_arch": [8], "log_std_init": 1.0})
    actor = make_actor(spec)
    actor.load(PpoLearner(spec).published())
    obs = np.ones((200, 3), np.float32)
    best, _ = actor.predict(obs, deterministic=True)
    drawn, _ = actor.predict(obs)
    assert np.ptp(best) == 0.0
    assert np.ptp(drawn) > 1.0
    assert np.abs(drawn).max() <= 2.0


def test_where_it_has_no_place_it_is_refused(make_spec):
    """Other actions, networks that are modules, a wrong number of steps: one line each."""
    with pytest.raises(ConfigError, match="use_sde needs Box actions, CartPole-v1 takes discrete ones"):
        check_fit(make_spec("CartPole-v1", use_sde=True))
    own = {"name": "Own", "pickled": ""}
    with pytest.raises(
        ConfigError, match="use_sde needs the features of MlpPolicy, CnnPolicy or MultiInputPolicy, not"
    ):
        PpoLearner(task(make_spec, policy=own))
    for name, value in (("full_std", False), ("use_expln", True), ("squash_output", True)):
        with pytest.raises(ConfigError, match=f"^policy_kwargs: {name} needs use_sde=True$"):
            resolve("Pendulum-v1", overrides={"policy_kwargs": {name: value}})
    endless = {"kind": "box", "shape": [1], "dtype": "float32", "low": [-1.0], "high": [None]}
    squashed = task(make_spec, policy_kwargs={"squash_output": True})
    with pytest.raises(ConfigError, match="squash_output needs actions with bounds, Pendulum-v1 has none"):
        check_fit(replace(squashed, action_space=endless))
    with pytest.raises(ConfigError, match=r"sde_sample_freq must be a whole number >= 1, or -1 .*, got 0"):
        resolve("Pendulum-v1", overrides={"use_sde": True, "sde_sample_freq": 0})
