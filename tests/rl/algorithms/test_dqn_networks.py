"""DQN beside the MLP: convolutions, observations by key, modules of the user's own, images into an MLP."""

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from drlnb.records.errors import ConfigError
from drlnb.records.spec import RlWork
from drlnb.rl.algorithms.dqn import DqnLearner, Rows
from drlnb.rl.algorithms.registry import make_actor
from drlnb.rl.checkpoints.files import pack as packed
from drlnb.rl.checkpoints.files import unpack
from drlnb.rl.collecting.evaluation import evaluate_parameters
from drlnb.rl.envs.make import probe
from drlnb.rl.fragments import Fragment
from drlnb.rl.local.train import LocalLoop, train_local
from drlnb.rl.networks.networks import MlpTowers
from drlnb.rl.networks.trained_state import views
from drlnb.rl.pickled import pack
from tests.rl.test_rows import Keyed, Sign

SIDE = 36


class Lit(gymnasium.Env):
    """A picture is lit left or right; saying which pays 1.  Cut after 8 steps."""

    action_space = spaces.Discrete(2)
    observation_space = spaces.Box(0, 255, (SIDE, SIDE, 1), np.uint8)

    def __init__(self) -> None:
        self._side = self._t = 0

    def _obs(self) -> np.ndarray:
        self._side = int(self.np_random.integers(2))
        picture = np.zeros((SIDE, SIDE, 1), np.uint8)
        picture[:, self._side * SIDE // 2 : (self._side + 1) * SIDE // 2] = 200
        return picture

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
        super().reset(seed=seed)
        self._t = 0
        return self._obs(), {}

    def step(self, action: Any) -> Any:
        paid = float(int(action) == self._side)
        self._t += 1
        return self._obs(), paid, False, self._t == 8, {}


class Own(nn.Module):
    """A linear function of the brightness of each half."""

    def __init__(self, observation_space: spaces.Box, action_space: spaces.Discrete, scale: float = 1.0) -> None:
        super().__init__()
        self.linear = nn.Linear(2, int(action_space.n))
        self._scale = scale

    def actor(self, obs: torch.Tensor) -> torch.Tensor:
        halves = obs.mean(dim=(1, 2)).reshape(len(obs), 2, -1).mean(dim=2)
        return self.linear(halves * self._scale)


class Deaf(Own):
    """Has a parameter that nothing reaches."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.spare = nn.Parameter(torch.zeros(1))


def task(env: Any = Lit, policy: Any = "CnnPolicy", **given: Any) -> RlWork:
    """Return a small DQN task of an environment's class."""
    source = {"env": env.__name__, "env_factory": pack(env), "env_kwargs": given.pop("kwargs", {})}
    top = {"name": "a", "seed": 5, "n_envs": 2, "total_timesteps": 96, "n_collectors": 1, "algo": "dqn"}
    top |= {key: given.pop(key) for key in list(given) if key in top}
    own = policy if isinstance(policy, str) else {"name": policy.__name__, "pickled": pack(policy)}
    hyper = {"policy": own, "batch_size": 8, "buffer_size": 200, "learning_starts": 16, "train_freq": 4}
    hyper |= {"target_update_interval": 16}
    if own == "CnnPolicy":
        hyper["policy_kwargs"] = {"features_extractor_kwargs": {"features_dim": 8}}
    return RlWork(hyperparameters=hyper | given, **source, **top, **probe(source))


def test_the_convolutional_network_is_features_and_one_layer():
    """Four convolution and feature layers, then values: no hidden layer, as Stable-Baselines3's CnnPolicy for DQN."""
    names = [entry.name for entry in DqnLearner(task()).layout.entries]
    assert [name for name in names if name.startswith("net.q.")] == []
    assert names[-2:] == ["net.head.weight", "net.head.bias"]
    assert len(names) == 2 * 5


def test_pictures_stay_bytes_in_ring_and_block():
    """Nothing turns them into floats before the network: the ring and the minibatches are uint8."""
    loop = LocalLoop(task())
    while loop.n_timesteps < 32:
        loop.round()
    assert loop._replay.ring._obs.dtype == np.uint8
    block = loop._replay.ring.draw((2, 4), np.random.default_rng(0))
    assert block["obs"].dtype == np.uint8
    learner = DqnLearner(task())
    arrays = {**block, "action": block["action"], "terminated": block["terminated"]}
    assert learner._columns(Fragment({"n_timesteps": 0}, arrays))[0]["obs"].dtype == torch.uint8
    loop.close()


@pytest.mark.parametrize(("env", "policy"), [(Lit, "CnnPolicy"), (Keyed, "MultiInputPolicy"), (Lit, Own)])
def test_actor_and_learner_agree(env, policy):
    """What is published acts as the trained network says, for every kind of network."""
    spec = task(env, policy)
    learner = DqnLearner(spec)
    actor = make_actor(spec)
    actor.load(learner.published())
    space = spec.observation_space
    rows = np.random.default_rng(1).integers(0, 2, (5, *space["shape"])).astype(space["dtype"])
    wanted = learner.networks.q_values(torch.from_numpy(rows)).detach().numpy()
    assert actor.forward(rows) == pytest.approx(wanted, abs=1e-6)


@pytest.mark.thorough
@pytest.mark.parametrize("policy", ["CnnPolicy", Own])
def test_going_on_is_as_if_it_had_never_stopped(policy):
    """Stopped after any round, with its ring and both networks, bit for bit; written as files in between."""
    spec = task(policy=policy)
    whole = train_local(spec).parameters
    first = LocalLoop(spec)
    for _ in range(6):
        first.round()
    facts, blobs = packed(spec, first.trained())
    _, trained = unpack(facts, blobs, "here", spec)
    second = LocalLoop(spec, trained)
    while second.n_timesteps < spec.total_timesteps:
        second.round()
    first.close()
    second.close()
    assert second.parameters.tobytes() == whole.tobytes()


def test_the_target_network_moves_when_told_only():
    """A step on the trained network leaves the target's values; an update makes them equal."""
    learner = DqnLearner(task(policy=Own))
    obs = torch.full((1, SIDE, SIDE, 1), 100, dtype=torch.uint8)
    before = learner.networks.target_values(obs).clone()
    learner.adam.flat.add_(0.5)
    assert torch.equal(learner.networks.target_values(obs), before)
    learner._move_target(1)
    assert torch.equal(learner.networks.target_values(obs), learner.networks.q_values(obs).detach())


@pytest.mark.thorough
def test_where_it_is_lit_is_learnt():
    """A module of one's own finds the lit half: the mean of 8 rewards nears 8, chance is 4."""
    hyper = {"learning_rate": 0.05, "gamma": 0.0, "gradient_steps": 8, "exploration_fraction": 0.5, "batch_size": 16}
    spec = task(policy=Own, total_timesteps=400, **hyper, policy_kwargs={"scale": 4.0})
    assert evaluate_parameters(spec, train_local(spec).parameters, n_episodes=4).mean > 7.5


def test_a_dictionary_without_images_is_an_mlp():
    """Its rows go through the numpy actor and gradients by hand, choices one-hot."""
    learner = DqnLearner(task(Sign, "MultiInputPolicy"))
    assert isinstance(learner.networks, MlpTowers)
    assert views(learner.adam.flat, learner.layout)["q.0.weight"].shape == (64, 4)


def test_an_mlp_gets_images_divided_by_255():
    """200 becomes 200 / 255 in minibatches and in the actor."""
    spec = task(policy="MlpPolicy")
    learner, actor = DqnLearner(spec), make_actor(spec)
    actor.load(learner.published())
    image = np.full((1, 1, SIDE, SIDE, 1), 200, np.uint8)
    arrays = {"obs": image, "next_obs": image, "action": np.zeros((1, 1), np.int64)}
    arrays |= {"reward": np.zeros((1, 1), np.float32), "terminated": np.zeros((1, 1), bool)}
    rows = Rows(**learner._columns(Fragment({"n_timesteps": 0}, arrays))[0]).part(0)
    assert rows.obs.numpy() == pytest.approx(np.full((1, SIDE * SIDE), 200 / 255), rel=1e-6)
    assert actor.forward(image[0]) == pytest.approx(learner.networks.q_values(rows.obs).detach().numpy(), abs=1e-6)


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        (Deaf, "no gradient reaches net.spare"),
        (lambda *_, **__: nn.Linear(2, 2), r"must make an nn.Module with actor\(obs\)$"),
    ],
)
def test_modules_that_break_the_contract_are_told(policy, told):
    """As for the other algorithms; a critic is not asked for."""
    with pytest.raises(ConfigError, match=told):
        DqnLearner(task(policy=policy))


def test_policies_that_do_not_fit_are_told():
    """The same words as for the other algorithms."""
    with pytest.raises(ConfigError, match="MlpPolicy takes arrays, Keyed has Dict observations"):
        make_actor(task(Keyed, "MlpPolicy"))
    with pytest.raises(ConfigError, match="CnnPolicy takes images"):
        DqnLearner(task(Sign, "CnnPolicy", kwargs={"keyed": False}))
