"""DQN beside Stable-Baselines3: its weights and its batch give its parameters."""

from typing import Any

import numpy as np
import pytest
import torch

from drlnb.rl.algorithms.dqn import DqnLearner
from drlnb.rl.algorithms.dqn_actor import DqnActor
from drlnb.rl.fragments import Fragment
from drlnb.rl.local.train import train_local
from drlnb.rl.pickled import pack

pytestmark = pytest.mark.slow


def flat_of(module: Any, learner: DqnLearner) -> torch.Tensor:
    """Their tensors in our flat order: layer by layer, weight before bias, on both sides; then buffers."""
    flat = torch.zeros_like(learner.adam.flat)
    theirs = [*module.parameters(), *module.buffers()]
    for entry, tensor in zip(learner.layout.entries, theirs, strict=True):
        assert tuple(tensor.shape) == entry.shape
        if entry.name.endswith("tracked"):  # theirs is not copied to the target network, where nobody reads it
            continue
        flat[entry.start : entry.stop] = tensor.detach().ravel()
    return flat


class Normed(torch.nn.Module):
    """Batch normalisation of the observations."""

    def __init__(self, space: Any) -> None:
        super().__init__()
        self.features_dim = space.shape[0]
        self.norm = torch.nn.BatchNorm1d(self.features_dim)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return self.norm(obs)


@pytest.mark.parametrize(
    ("activation", "optimizer", "by_hand", "normed"),
    [
        ("ReLU", {}, True, False),
        ("ReLU", {}, False, False),
        ("Mish", {}, True, False),
        ("ELU", {"optimizer_class": "RMSprop"}, True, False),
        ("ReLU", {}, False, True),
    ],
)
def test_updates_equal_stable_baselines3s(activation, optimizer, by_hand, normed, make_dqn_spec):
    """Same weights, same 3 batches of 32, target copied before: all parameters equal to 1e-5 after 1 and 3 steps."""
    sb3 = pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed (extra bench)")
    from stable_baselines3.common.logger import Logger
    from stable_baselines3.common.type_aliases import ReplayBufferSamples

    hyper = {"learning_rate": 0.01, "gamma": 0.9, "tau": 0.7, "max_grad_norm": 0.5, "batch_size": 32}
    kwargs = {"net_arch": [16, 16], "activation_fn": getattr(torch.nn, activation)}
    classes = {key: getattr(torch.optim, name) for key, name in optimizer.items()}
    features: dict[str, Any] = {}
    if normed:
        classes["features_extractor_class"] = Normed
        features["features_extractor_class"] = {"name": "Normed", "pickled": pack(Normed)}
    theirs = sb3.DQN("MlpPolicy", "CartPole-v1", policy_kwargs=kwargs | classes, seed=3, device="cpu", **hyper)
    theirs.set_logger(Logger(None, []))
    spec = make_dqn_spec(
        total_timesteps=1_000_000,
        policy_kwargs={**kwargs, "activation_fn": activation, **optimizer, **features},
        **hyper,
    )
    ours = DqnLearner(spec, by_hand=by_hand)
    ours.adam.flat.copy_(flat_of(theirs.q_net, ours))
    ours.target.copy_(0.3 * ours.adam.flat)
    with torch.no_grad():
        for name, trained in theirs.q_net.state_dict().items():
            theirs.q_net_target.state_dict()[name].copy_(0.3 * trained)
    rng = np.random.default_rng(0)
    for n_steps, n_updates in ((1, 1), (3, 2)):
        shape = (n_steps, 32)
        arrays = {name: rng.standard_normal((*shape, 4)).astype(np.float32) for name in ("obs", "next_obs")}
        arrays |= {"action": rng.integers(0, 2, shape), "reward": (3 * rng.standard_normal(shape)).astype(np.float32)}
        arrays["terminated"] = rng.random(shape) < 0.2
        samples = [
            ReplayBufferSamples(
                torch.from_numpy(arrays["obs"][i]),
                torch.from_numpy(arrays["action"][i][:, None]),
                torch.from_numpy(arrays["next_obs"][i]),
                torch.from_numpy(arrays["terminated"][i][:, None].astype(np.float32)),
                torch.from_numpy(arrays["reward"][i][:, None]),
            )
            for i in range(n_steps)
        ]
        from stable_baselines3.common.utils import get_parameters_by_name, polyak_update

        for _ in range(n_updates):
            polyak_update(theirs.q_net.parameters(), theirs.q_net_target.parameters(), 0.7)
            statistics = (get_parameters_by_name(net, ["running_"]) for net in (theirs.q_net, theirs.q_net_target))
            polyak_update(*statistics, 1.0)
        batches = iter(samples)
        theirs.replay_buffer.sample = lambda *_, source=batches, **__: next(source)
        theirs.train(gradient_steps=n_steps, batch_size=32)
        ours.begin(1, 0)
        header = {"n_timesteps": 0, "n_target_updates": n_updates, "n_gradient_steps": n_steps, "metrics": {}}
        ours.stage(0, Fragment(header, arrays))
        ours.finish()
        for entry in (each for each in ours.layout.entries if each.name.endswith("tracked")):
            ours.adam.flat[entry.start] = ours.target[entry.start] = 0.0
        torch.testing.assert_close(ours.adam.flat, flat_of(theirs.q_net, ours), atol=1e-5, rtol=0)
        torch.testing.assert_close(ours.target, flat_of(theirs.q_net_target, ours), atol=1e-5, rtol=0)


def theirs_told(hyper: dict[str, Any], n_envs: int, total: int, monkeypatch: Any) -> tuple[list[Any], list[float]]:
    """Run theirs; return (timesteps, gradient steps, target updates before them) of each spell, epsilon per step."""
    import stable_baselines3 as sb3
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.dqn import dqn

    spells: list[Any] = []
    epsilons: list[float] = []
    moved: list[int] = [0]
    monkeypatch.setattr(dqn, "polyak_update", lambda params, *_: moved.append(1) if list(params) else None)
    model = sb3.DQN("MlpPolicy", make_vec_env("CartPole-v1", n_envs), seed=0, device="cpu", **hyper)
    choose = model._sample_action

    def sample_action(learning_starts: int, *args: Any) -> Any:
        epsilons.append(1.0 if model.num_timesteps < learning_starts else model.exploration_rate)
        return choose(learning_starts, *args)

    def train(gradient_steps: int, batch_size: int) -> None:
        spells.append((model.num_timesteps, gradient_steps, sum(moved)))
        moved.clear()

    monkeypatch.setattr(model, "_sample_action", sample_action)
    monkeypatch.setattr(model, "train", train)
    model.learn(total)
    return spells, epsilons


def ours_told(hyper: dict[str, Any], n_envs: int, total: int, monkeypatch: Any, make: Any) -> tuple[Any, ...]:
    """Run ours; return the same two lists."""
    spells: list[Any] = []
    epsilons: list[float] = []
    epsilon, finish = DqnActor._epsilon, DqnLearner.finish

    def seen(actor: DqnActor, first: int, n_steps: int) -> np.ndarray:
        found = epsilon(actor, first, n_steps)
        if n_steps == 1:  # a choice; the log-probabilities ask for the whole round
            epsilons.append(found.item())
        return found

    def finished(learner: DqnLearner, *args: Any) -> dict[str, float]:
        header = learner._header
        spells.append((header["n_timesteps"], header["n_gradient_steps"], header["n_target_updates"]))
        return finish(learner, *args)

    monkeypatch.setattr(DqnActor, "_epsilon", seen)
    monkeypatch.setattr(DqnLearner, "finish", finished)
    train_local(make(total_timesteps=total, n_envs=n_envs, **hyper))
    return spells, epsilons


@pytest.mark.parametrize(("n_envs", "gradient_steps"), [(1, 4), (1, -1), (4, 4)])
def test_when_things_happen_equals_stable_baselines3s(n_envs, gradient_steps, make_dqn_spec, monkeypatch):
    """Over a whole budget: each spell's time, gradient steps and target updates, and the epsilon of every step."""
    pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed (extra bench)")
    hyper = {"train_freq": 16, "gradient_steps": gradient_steps, "learning_starts": 48, "target_update_interval": 10}
    hyper |= {"exploration_fraction": 0.5, "exploration_final_eps": 0.04, "batch_size": 4, "buffer_size": 1000}
    hyper |= {"policy_kwargs": {"net_arch": [4]}}
    total = 300 * n_envs  # no multiple of a round
    theirs = theirs_told(hyper, n_envs, total, monkeypatch)
    ours = ours_told(hyper, n_envs, total, monkeypatch, make_dqn_spec)
    assert ours[0] == theirs[0]
    assert len(theirs[0]) > 10
    np.testing.assert_allclose(ours[1], theirs[1], atol=1e-12)


def test_a_convolutional_update_equals_stable_baselines3s():
    """CnnPolicy, same weights, 3 batches of 8 pictures: all parameters equal to 1e-5."""
    sb3 = pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed (extra bench)")
    from stable_baselines3.common.logger import Logger
    from stable_baselines3.common.type_aliases import ReplayBufferSamples

    from tests.rl.algorithms.test_dqn_networks import SIDE, Lit, task

    hyper = {"learning_rate": 1e-3, "gamma": 0.9, "max_grad_norm": 0.5, "batch_size": 8, "buffer_size": 100}
    kwargs = {"features_extractor_kwargs": {"features_dim": 16}}
    theirs = sb3.DQN("CnnPolicy", Lit(), policy_kwargs=kwargs, seed=3, device="cpu", **hyper)
    theirs.set_logger(Logger(None, []))
    ours = DqnLearner(task(policy_kwargs=kwargs, total_timesteps=1_000_000, **hyper))
    ours.adam.flat.copy_(flat_of(theirs.q_net, ours))
    ours.target.copy_(ours.adam.flat)
    rng = np.random.default_rng(0)
    arrays = {name: rng.integers(0, 256, (3, 8, SIDE, SIDE, 1), np.uint8) for name in ("obs", "next_obs")}
    arrays |= {"action": rng.integers(0, 2, (3, 8)), "reward": rng.standard_normal((3, 8)).astype(np.float32)}
    arrays["terminated"] = rng.random((3, 8)) < 0.2
    first = {name: torch.from_numpy(arrays[name]).permute(0, 1, 4, 2, 3) for name in ("obs", "next_obs")}
    samples = iter(
        ReplayBufferSamples(
            first["obs"][i],
            torch.from_numpy(arrays["action"][i][:, None]),
            first["next_obs"][i],
            torch.from_numpy(arrays["terminated"][i][:, None].astype(np.float32)),
            torch.from_numpy(arrays["reward"][i][:, None]),
        )
        for i in range(3)
    )
    theirs.replay_buffer.sample = lambda *_, **__: next(samples)
    theirs.train(gradient_steps=3, batch_size=8)
    ours.begin(0, 24)
    header = {"n_timesteps": 24, "n_target_updates": 0, "metrics": {}}
    ours.stage(0, Fragment(header, arrays))
    ours.finish()
    torch.testing.assert_close(ours.adam.flat, flat_of(theirs.q_net, ours), rtol=0, atol=1e-5)
