"""Action masks beside sb3-contrib: MaskablePPO's weights and rollout give its parameters."""

import numpy as np
import pytest
import torch

from drlnb.rl.algorithms.ppo import PpoLearner
from drlnb.rl.fragments import Fragment
from tests.rl.algorithms.test_ppo_reference import give_weights, their_names
from tests.rl.envs.test_masks import Doors, task

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("rooms", [0, 2])
def test_updates_equal_maskable_ppos(rooms):
    """Two rounds of three epochs with an entropy bonus: all parameters equal to 1e-5, log-probabilities too."""
    contrib = pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed (pip install sb3-contrib)")
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.logger import Logger

    steps, envs = 16, 4
    hyper = {
        "n_steps": steps, "batch_size": steps * envs, "n_epochs": 3, "gamma": 0.9, "gae_lambda": 0.8,
        "learning_rate": 0.01, "clip_range": 0.1, "ent_coef": 0.02, "vf_coef": 0.7, "max_grad_norm": 0.3,
    }  # fmt: skip
    kwargs = {"net_arch": {"pi": [16, 8], "vf": [16, 8]}}
    vec = make_vec_env(lambda: Doors(rooms, end=5), envs, seed=1)
    theirs = contrib.MaskablePPO("MlpPolicy", vec, policy_kwargs=kwargs, seed=3, device="cpu", **hyper)
    theirs.set_logger(Logger(None, []))
    ours = PpoLearner(task(rooms, n_envs=envs, total_timesteps=10**6, policy_kwargs=kwargs, **hyper))
    give_weights(theirs, ours)
    names = their_names(ours)
    _, callback = theirs._setup_learn(10**6)
    for number in range(2):
        theirs.collect_rollouts(theirs.env, callback, theirs.rollout_buffer, steps)
        buffer = theirs.rollout_buffer
        starts = np.concatenate([buffer.episode_starts, theirs._last_episode_starts[None]]).astype(bool)
        # A time limit's value is in their rewards already: for both of us it is an end here.
        actions = buffer.actions.astype(np.int64)
        fragment = Fragment(
            {"env_indices": list(range(envs)), "n_samples": steps * envs},
            {
                "obs": buffer.observations.astype(np.float32),
                "last_obs": np.asarray(theirs._last_obs, np.float32),
                "action": actions if rooms else actions.reshape(steps, envs),
                "log_prob": buffer.log_probs.astype(np.float32),
                "reward": buffer.rewards.astype(np.float32),
                "terminated": starts[1:],
                "truncated": np.zeros((steps, envs), bool),
                "final_obs": np.zeros((0, 4), np.float32),
                "final_at": np.zeros((0, 2), np.int32),
                "action_mask": buffer.action_masks.reshape(steps, envs, -1).astype(bool),
            },
        )
        ours.begin(number, (number + 1) * steps * envs)
        ours.stage(0, fragment)
        theirs.train()
        ours.finish()
        for entry, their in names.items():
            place = ours.layout[entry]
            found = ours.adam.flat[place.start : place.stop].view(place.shape)
            torch.testing.assert_close(found, theirs.policy.get_parameter(their).detach(), rtol=0, atol=1e-5)
