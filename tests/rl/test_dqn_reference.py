"""DQN beside Stable-Baselines3: its weights and its batch give its parameters."""

from typing import Any

import numpy as np
import pytest
import torch

from drlnb.rl.dqn import DqnLearner
from drlnb.rl.fragments import Fragment

pytestmark = pytest.mark.slow


def flat_of(module: Any, learner: DqnLearner) -> torch.Tensor:
    """Their tensors in our flat order: layer by layer, weight before bias, on both sides."""
    flat = torch.zeros_like(learner.adam.flat)
    theirs = list(module.parameters())
    for entry, tensor in zip(learner.layout.entries, theirs, strict=True):
        assert tuple(tensor.shape) == entry.shape
        flat[entry.start : entry.stop] = tensor.detach().ravel()
    return flat


@pytest.mark.parametrize("by_hand", [True, False])
def test_updates_equal_stable_baselines3s(by_hand, make_dqn_spec):
    """Same weights, same 3 batches of 32, target copied before: all parameters equal to 1e-5 after 1 and 3 steps."""
    sb3 = pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed (extra bench)")
    from stable_baselines3.common.logger import Logger
    from stable_baselines3.common.type_aliases import ReplayBufferSamples

    hyper = {"learning_rate": 0.01, "gamma": 0.9, "tau": 0.7, "max_grad_norm": 0.5, "batch_size": 32}
    theirs = sb3.DQN("MlpPolicy", "CartPole-v1", policy_kwargs={"net_arch": [16, 16]}, seed=3, device="cpu", **hyper)
    theirs.set_logger(Logger(None, []))
    spec = make_dqn_spec(total_timesteps=1_000_000, policy_kwargs={"net_arch": [16, 16]}, **hyper)
    ours = DqnLearner(spec, by_hand=by_hand)
    ours.adam.flat.copy_(flat_of(theirs.q_net, ours))
    ours.target.copy_(0.3 * ours.adam.flat)
    with torch.no_grad():
        for target, trained in zip(theirs.q_net_target.parameters(), theirs.q_net.parameters(), strict=True):
            target.copy_(0.3 * trained)
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
        from stable_baselines3.common.utils import polyak_update

        for _ in range(n_updates):
            polyak_update(theirs.q_net.parameters(), theirs.q_net_target.parameters(), 0.7)
        batches = iter(samples)
        theirs.replay_buffer.sample = lambda *_, source=batches, **__: next(source)
        theirs.train(gradient_steps=n_steps, batch_size=32)
        ours.begin(1, 0)
        header = {"n_timesteps": 0, "n_target_updates": n_updates, "n_gradient_steps": n_steps, "metrics": {}}
        ours.stage(0, Fragment(header, arrays))
        ours.finish()
        torch.testing.assert_close(ours.adam.flat, flat_of(theirs.q_net, ours), atol=1e-5, rtol=0)
        torch.testing.assert_close(ours.target, flat_of(theirs.q_net_target, ours), atol=1e-5, rtol=0)
