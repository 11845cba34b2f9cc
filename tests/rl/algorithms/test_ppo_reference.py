"""PPO beside Stable-Baselines3: its weights and its rollout give its parameters."""

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from drlnb.rl.algorithms.ppo import PpoLearner, evaluate
from drlnb.rl.collecting.collector import Collector
from drlnb.rl.envs.catch import CATCH_ID
from drlnb.rl.fragments import Fragment
from drlnb.rl.pickled import pack
from drlnb.rl.seeding import ENV, reset_seed

pytestmark = pytest.mark.slow

_STEPS, _ENVS, _EPOCHS = 16, 4, 3


def give_weights(theirs: Any, learner: PpoLearner) -> None:
    """Copy their policy into our flat tensor; names say which is which."""
    for ours, their in their_names(learner).items():
        entry, tensor = learner.layout[ours], theirs.policy.get_parameter(their).detach()
        assert tuple(tensor.shape) == entry.shape
        learner.adam.flat[entry.start : entry.stop] = tensor.ravel()


def their_names(learner: PpoLearner) -> dict[str, str]:
    """Our entry -> their parameter."""
    if learner.layout.activation == "module":  # convolutions
        ours = [entry.name for entry in learner.layout.entries]
        parts = {"net.features.": "features_extractor.", "net.action.": "action_net.", "net.value.": "value_net."}
        return {
            name: their + name.removeprefix(our)
            for name in ours
            for our, their in parts.items()
            if name.startswith(our)
        }
    names = {"log_std": "log_std"} if learner.layout.head.continuous else {}
    for kind in ("weight", "bias"):
        names |= {f"action.{kind}": f"action_net.{kind}", f"value.{kind}": f"value_net.{kind}"}
        for tower, their in (("pi", "policy_net"), ("vf", "value_net")):
            names |= {f"{tower}.{n}.{kind}": f"mlp_extractor.{their}.{2 * n}.{kind}" for n in (0, 1)}
    return names


def fragment_of(theirs: Any, discrete: bool) -> Fragment:
    """Our fragment of their rollout buffer (filled, not yet flattened)."""
    buffer, last = theirs.rollout_buffer, np.asarray(theirs._last_obs)
    starts = np.concatenate([buffer.episode_starts, theirs._last_episode_starts[None]]).astype(bool)
    actions = buffer.actions[..., 0].astype(np.int64) if discrete else buffer.actions.astype(np.float32)
    observations = buffer.observations.astype(np.float32)
    if last.dtype == np.uint8:  # they have channels first
        observations, last = (np.moveaxis(images, -3, -1).astype(np.uint8) for images in (observations, last))
    arrays = {
        "obs": observations,
        "last_obs": last if last.dtype == np.uint8 else last.astype(np.float32),
        "action": actions,
        "log_prob": buffer.log_probs.astype(np.float32),
        "reward": buffer.rewards.astype(np.float32),
        "terminated": starts[1:],
        "truncated": np.zeros((_STEPS, _ENVS), bool),
        "final_obs": np.zeros((0, *observations.shape[2:]), observations.dtype),
        "final_at": np.zeros((0, 2), np.int32),
    }
    return Fragment({"env_indices": list(range(_ENVS)), "n_samples": _STEPS * _ENVS}, arrays)


@pytest.mark.parametrize("by_hand", [True, False])
@pytest.mark.parametrize(
    ("env", "sde"),
    [
        ("CartPole-v1", {}),
        ("Pendulum-v1", {}),
        ("Pendulum-v1", {"use_sde": True}),
        ("CartPole-v1", {"target_kl": 1e-3}),
        ("CartPole-v1", {"policy_kwargs": {"optimizer_class": "AdamW"}}),
        ("CartPole-v1", {"policy_kwargs": {"optimizer_class": "SGD", "optimizer_kwargs": {"momentum": 0.9}}}),
        ("Pendulum-v1", {"policy_kwargs": {"optimizer_class": "RMSprop"}}),
        ("CartPole-v1", {"policy_kwargs": {"optimizer_class": "Adagrad", "optimizer_kwargs": {"weight_decay": 0.01}}}),
        (
            "Pendulum-v1",
            {"use_sde": True, "policy_kwargs": {"full_std": False, "use_expln": True, "log_std_init": 0.5}},
        ),
        ("Pendulum-v1", {"use_sde": True, "policy_kwargs": {"squash_output": True}}),
        (CATCH_ID, {"policy": "CnnPolicy", "policy_kwargs": {"net_arch": []}, "learning_rate": 5e-4}),
    ],
)
def test_updates_equal_stable_baselines3s(env, sde, by_hand, make_spec):
    """Same weights and rollout, three epochs of one batch each: all parameters equal to 1e-5 after two rounds."""
    sb3 = pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed (extra bench)")
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.logger import Logger

    hyper = {
        "n_steps": _STEPS, "batch_size": _STEPS * _ENVS, "n_epochs": _EPOCHS, "gamma": 0.9, "gae_lambda": 0.8,
        "learning_rate": 0.01, "clip_range": 0.1, "ent_coef": 0.02, "vf_coef": 0.7, "max_grad_norm": 0.3,
        "policy": "MlpPolicy", **sde,
    }  # fmt: skip
    policy_kwargs = {"net_arch": {"pi": [16, 8], "vf": [16, 8]}, **hyper.pop("policy_kwargs", {})}
    classes = {key: getattr(torch.optim, name) for key, name in policy_kwargs.items() if key == "optimizer_class"}
    theirs = sb3.PPO(
        env=make_vec_env(env, _ENVS, seed=1),
        policy_kwargs={**policy_kwargs, **classes},
        seed=3,
        device="cpu",
        **hyper,
    )
    theirs.set_logger(Logger(None, []))
    ours = PpoLearner(make_spec(env, total_timesteps=10**6, policy_kwargs=policy_kwargs, **hyper), by_hand=by_hand)
    give_weights(theirs, ours)
    _, callback = theirs._setup_learn(10**6)
    for round_ in range(2):
        theirs.collect_rollouts(theirs.env, callback, theirs.rollout_buffer, n_rollout_steps=_STEPS)
        ours.begin(round_, (round_ + 1) * _STEPS * _ENVS)
        fragment = fragment_of(theirs, discrete=ours.layout.head.kind == "discrete")
        if ours.layout.head.squashed:  # ours holds what goes through tanh
            fragment.arrays["action"] = np.arctanh(fragment.arrays["action"])
        ours.stage(0, fragment)
        theirs.train()
        ours.finish()
        for name, their in their_names(ours).items():
            entry = ours.layout[name]
            found = ours.adam.flat[entry.start : entry.stop].reshape(entry.shape)
            torch.testing.assert_close(found, theirs.policy.get_parameter(their).detach(), atol=1e-5, rtol=0)


class Normed(torch.nn.Module):
    """Batch normalisation of the observations."""

    def __init__(self, space: Any) -> None:
        super().__init__()
        self.features_dim = space.shape[0]
        self.norm = torch.nn.BatchNorm1d(self.features_dim)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return self.norm(obs)


@pytest.mark.parametrize("shared", [True, False])
def test_batch_normalisation_learns_as_theirs(shared, make_spec):
    """Same weights and rollouts, three epochs of one batch: parameters and running statistics equal to 1e-5."""
    sb3 = pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed (extra bench)")
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.logger import Logger

    hyper = {"n_steps": _STEPS, "batch_size": _STEPS * _ENVS, "n_epochs": _EPOCHS, "learning_rate": 0.01}
    kwargs = {"net_arch": {"pi": [16, 8], "vf": [16, 8]}, "share_features_extractor": shared}
    env = make_vec_env("CartPole-v1", _ENVS, seed=1)
    theirs = sb3.PPO("MlpPolicy", env, policy_kwargs={**kwargs, "features_extractor_class": Normed}, seed=3, **hyper)
    theirs.set_logger(Logger(None, []))
    extractor = {"name": "Normed", "pickled": pack(Normed)}
    policy_kwargs = {**kwargs, "features_extractor_class": extractor, "activation_fn": "tanh"}
    ours = PpoLearner(make_spec("CartPole-v1", total_timesteps=10**6, policy_kwargs=policy_kwargs, **hyper))
    towers = {"pi": "mlp_extractor.policy_net", "vf": "mlp_extractor.value_net"}
    parts = {"action": "action_net", "value": "value_net", "features": "pi_features_extractor", **towers}
    parts["of_value"] = "vf_features_extractor"
    state = theirs.policy.state_dict()
    names = {e.name: parts[e.name.split(".")[1]] + "." + e.name.split(".", 2)[2] for e in ours.layout.entries}
    for entry in ours.layout.entries:
        ours.adam.flat[entry.start : entry.stop] = state[names[entry.name]].ravel()
    _, callback = theirs._setup_learn(10**6)
    for round_ in range(2):
        theirs.collect_rollouts(theirs.env, callback, theirs.rollout_buffer, n_rollout_steps=_STEPS)
        ours.begin(round_, (round_ + 1) * _STEPS * _ENVS)
        ours.stage(0, fragment_of(theirs, discrete=True))
        theirs.train()
        ours.finish()
        state = theirs.policy.state_dict()
        assert any("running_var" in name for name in names)
        for entry in ours.layout.entries:
            found = ours.adam.flat[entry.start : entry.stop].reshape(entry.shape)
            torch.testing.assert_close(found, state[names[entry.name]].float(), atol=1e-5, rtol=1e-5)


def test_exploration_by_state_is_judged_as_theirs(make_spec):
    """Same weights, any observations and actions: log-probabilities, entropy and values equal to 1e-5."""
    sb3 = pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed (extra bench)")
    policy_kwargs = {"net_arch": {"pi": [16, 8], "vf": [16, 8]}, "log_std_init": -0.7}
    theirs = sb3.PPO("MlpPolicy", "Pendulum-v1", use_sde=True, policy_kwargs=policy_kwargs, seed=3, device="cpu")
    ours = PpoLearner(make_spec("Pendulum-v1", use_sde=True, policy_kwargs=policy_kwargs))
    rng = np.random.default_rng(0)
    with torch.no_grad():
        theirs.policy.log_std += torch.from_numpy(rng.normal(0.0, 0.3, (8, 1)).astype(np.float32))
    give_weights(theirs, ours)
    obs = torch.from_numpy(rng.standard_normal((50, 3)).astype(np.float32))
    actions = torch.from_numpy(rng.standard_normal((50, 1)).astype(np.float32))
    values, log_p, entropy = theirs.policy.evaluate_actions(obs, actions)
    outputs, found_values = ours.networks.both(obs)
    found_log_p, found_entropy = evaluate(ours.layout.head, outputs, actions, ours.networks.log_std)
    torch.testing.assert_close(found_log_p, log_p, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found_entropy, entropy.mean(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found_values, values[:, 0], rtol=1e-5, atol=1e-5)


def test_what_is_seen_equals_stable_baselines3s(make_spec):
    """One Pendulum, four rounds, the same actions through `VecNormalize`: observations and rewards equal to 1e-4."""
    pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed (extra bench)")
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    spec = make_spec("Pendulum-v1", n_envs=1, n_steps=120, batch_size=60, normalize=True)
    ours, learner = Collector(spec, env_indices=[0]), PpoLearner(spec)
    theirs = VecNormalize(DummyVecEnv([lambda: gymnasium.make("Pendulum-v1")]), gamma=0.99)
    theirs.seed(reset_seed(spec.seed, ENV, 0))
    seen = theirs.reset()
    for number in range(4):
        fragment = ours.collect(learner.published(), version=number, round=number, n_steps=120)
        arrays, ends = fragment.arrays, []
        for t in range(120):
            np.testing.assert_allclose(arrays["obs"][t], seen, atol=1e-4)
            seen, reward, done, infos = theirs.step(ours.actor.to_env(arrays["action"][t]))
            np.testing.assert_allclose(arrays["reward"][t], reward, atol=1e-4)
            ends += [infos[0]["terminal_observation"]] if done else []
        np.testing.assert_allclose(arrays["last_obs"], seen, atol=1e-4)
        np.testing.assert_allclose(arrays["final_obs"], np.reshape(ends, (-1, 3)), atol=1e-4)
        learner.begin(number, 120 * (number + 1))
        learner.stage(0, fragment)
        learner.finish()
    ours.close()
    theirs.close()
