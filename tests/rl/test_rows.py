"""Observations by key, and choices as observations: rows, networks on them, statistics, and the way round them."""

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from drlnb.records.errors import ConfigError, EnvError
from drlnb.records.spec import RlWork
from drlnb.rl.algorithms.registry import make_actor, make_learner
from drlnb.rl.collecting.collector import Collector
from drlnb.rl.collecting.evaluation import evaluate_parameters
from drlnb.rl.envs.make import _FlatRows as FlatRows
from drlnb.rl.envs.make import describe, make_env, probe
from drlnb.rl.envs.snapshots import restorable
from drlnb.rl.local.train import LocalLoop, train_local
from drlnb.rl.networks.extractors import CombinedExtractor
from drlnb.rl.networks.modules import build
from drlnb.rl.pickled import pack
from drlnb.rl.rows import RowForm, as_rows

CAMERA = spaces.Box(0, 255, (36, 40, 3), np.uint8)
VECTORS = {
    "flags": spaces.MultiBinary(2),
    "mode": spaces.Discrete(3, start=1),
    "pair": spaces.MultiDiscrete([2, 3]),
    "place": spaces.Box(-np.inf, np.inf, (2,), np.float32),
}
KEYED = {"camera": CAMERA, **VECTORS}


class Keyed(gymnasium.Env):
    """Says by every key how many steps there were; cut after 5."""

    action_space = spaces.Discrete(2)

    def __init__(self, camera: bool = True, bad: str = "") -> None:
        self.observation_space = spaces.Dict(KEYED if camera else VECTORS)
        self._bad = bad
        self._t = 0

    def _obs(self) -> dict[str, Any]:
        t = self._t
        obs = {
            "camera": np.full(CAMERA.shape, 10 * t, np.uint8),
            "flags": np.array([t % 2, 1], np.int8),
            "mode": 1 + t % 3,
            "pair": np.array([t % 2, t % 3]),
            "place": np.array([t, -2.0 * t], np.float32),
        }
        if t == 2 and self._bad == "nan":
            obs["place"][1] = np.nan
        if t == 2 and self._bad == "choice":
            obs["mode"] = 7
        if t == 2 and self._bad == "missing":
            del obs["flags"]
        if t == 2 and self._bad == "shape":
            obs["place"] = np.zeros(3, np.float32)
        return {key: obs[key] for key in reversed(obs) if key in self.observation_space.spaces}

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
        super().reset(seed=seed)
        self._t = 0
        return self._obs(), {}

    def step(self, action: Any) -> Any:
        self._t += 1
        return self._obs(), float(action), False, self._t == 5, {}


class Sign(gymnasium.Env):
    """Shows a sign; the action that equals it pays 1."""

    action_space = spaces.Discrete(2)

    def __init__(self, keyed: bool = True) -> None:
        sign = spaces.Discrete(2)
        self.observation_space = spaces.Dict({"noise": spaces.Box(-1.0, 1.0, (2,)), "sign": sign}) if keyed else sign
        self._keyed, self._sign, self._t = keyed, 0, 0

    def _obs(self) -> Any:
        self._sign = int(self.np_random.integers(2))
        noise = self.np_random.uniform(-1.0, 1.0, 2).astype(np.float32)
        return {"noise": noise, "sign": self._sign} if self._keyed else self._sign

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
        super().reset(seed=seed)
        self._t = 0
        return self._obs(), {}

    def step(self, action: Any) -> Any:
        paid = float(int(action) == self._sign)
        self._t += 1
        return self._obs(), paid, False, self._t == 8, {}


class Nested(gymnasium.Env):
    """Has a dictionary within a dictionary."""

    observation_space = spaces.Dict({"in": spaces.Dict({"a": spaces.Discrete(2)})})
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
        return {"in": {"a": 0}}, {}


def task(env: Any = Keyed, policy: Any = "MultiInputPolicy", *, algo: str = "ppo", **given: Any) -> RlWork:
    """Return a small task of an environment's class; `kwargs` are its constructor's."""
    kwargs = given.pop("kwargs", {})
    source = {"env": env.__name__, "env_factory": pack(env), "env_kwargs": kwargs}
    top = {"name": "a", "seed": 5, "n_envs": 2, "total_timesteps": 400, "n_collectors": 1, "algo": algo}
    top |= {key: given.pop(key) for key in list(given) if key in top}
    hyper = {"policy": policy, "n_steps": 8, "batch_size": 8, "n_epochs": 1, **given}
    return RlWork(hyperparameters=hyper, **source, **top, **probe(source))


# ---------------------------------------------------------------------------------------------------- rows


def test_a_row_without_images_is_the_keys_side_by_side():
    """In the order of the space: flags, one-hot of the mode, one-hots of the pair, the place; worked by hand."""
    env = make_env(task(kwargs={"camera": False}))
    env.reset()
    row = env.step(1)[0]  # t = 1: flags 1 1, mode 2 of 1..3, pair 1 1, place 1 -2
    assert row.tolist() == [1, 1, 0, 1, 0, 0, 1, 0, 1, 0, 1, -2]
    assert row.dtype == np.float32


def test_a_row_with_images_is_bytes_and_images_stay_as_they_are():
    """12 numbers of 4 bytes come first, then the picture byte for byte."""
    env = make_env(task())
    env.reset()
    row = env.step(1)[0]
    assert (row.dtype, row.shape) == (np.uint8, (4 * 12 + 36 * 40 * 3,))
    assert row[:48].view(np.float32).tolist() == [1, 1, 0, 1, 0, 0, 1, 0, 1, 0, 1, -2]
    assert (row[48:] == 10).all()


def test_bytes_are_padded_to_whole_numbers():
    """A picture of 37 x 37 x 1 leaves 3 bytes to the next multiple of 4."""
    space = spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Box(0, 255, (37, 37, 1), np.uint8)})
    assert RowForm.of(describe(space)).width == 8 + 1369 + 3


def test_a_discrete_observation_is_one_hot():
    """A bare choice becomes a row of its own, with MlpPolicy, as Stable-Baselines3 has it."""
    spec = task(Sign, "MlpPolicy", kwargs={"keyed": False})
    assert spec.observation_space["shape"] == [2]
    rows, single = as_rows(spec.observation_space, np.array([1, 0, 1]))
    assert (rows.tolist(), single) == ([[0, 1], [1, 0], [0, 1]], False)
    assert as_rows(spec.observation_space, 1)[1] is True


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        ("nan", "the observation is not finite: 'place' is array"),
        ("choice", "an observation 'mode' that is none of its space's choices"),
        ("missing", "an observation without the key 'flags' of its space"),
        ("shape", r"an observation 'place' of shape \(3,\), its space says \(2,\)"),
    ],
)
def test_a_broken_observation_names_key_environment_and_step(bad, told):
    """What is wrong with one key is told with the key, by the probe and by the collector."""
    with pytest.raises(EnvError, match=told):
        probe({"env": "Keyed", "env_factory": pack(Keyed), "env_kwargs": {"bad": bad}})
    fine = task()
    broken = RlWork.from_plain({**fine.to_plain(), "env_kwargs": {"bad": bad}})
    with pytest.raises(EnvError, match=f"Keyed, environment 0, step 1 of round 0.*{told}"):
        Collector(broken, env_indices=[0]).collect(parameters(fine), version=1, round=0, n_steps=4)


def test_nested_dictionaries_are_refused():
    """What cannot be laid out is refused by the probe, with what can."""
    with pytest.raises(EnvError, match=r"Nested: observation space Dict.* policies take Box, Discrete, .*Dict of"):
        probe({"env": "Nested", "env_factory": pack(Nested)})


def test_the_space_survives_a_journey_with_sorted_keys():
    """The order of the keys is data of its own: a reader that sorts mappings gives the same rows."""
    import json

    plain = describe(spaces.Dict([("z", spaces.Discrete(2)), ("a", spaces.Discrete(3))]))
    told = json.loads(json.dumps(plain, sort_keys=True))
    assert [part.name for part in RowForm.of(told).parts] == ["z", "a"]


def test_a_keyed_environment_can_be_frozen():
    """The wrapper around it is no hindrance for a snapshot."""
    assert restorable(task())


# ---------------------------------------------------------------------------------------------------- networks


def parameters(spec: RlWork) -> np.ndarray:
    """Return what an untrained learner publishes."""
    return make_learner(spec).published()


def test_features_are_the_images_then_flat_keys_in_order():
    """256 features of the camera, 2 flags, 3 of the mode, 5 of the pair, 2 of the place: 268, in the space's order."""
    extractor = CombinedExtractor(spaces.Dict({"camera": spaces.Box(0, 255, (3, 36, 40), np.uint8), **VECTORS}))
    obs = {
        "camera": torch.zeros(1, 3, 36, 40),
        "flags": torch.tensor([[1.0, 0.0]]),
        "mode": torch.tensor([[0.0, 1.0, 0.0]]),
        "pair": torch.tensor([[1.0, 0.0, 0.0, 0.0, 1.0]]),
        "place": torch.tensor([[3.0, 4.0]]),
    }
    features = extractor(obs)
    assert (features.shape, extractor.features_dim) == ((1, 268), 268)
    assert features[0, 256:].tolist() == [1, 0, 0, 1, 0, 1, 0, 0, 0, 1, 3, 4]


def test_a_module_sees_images_scaled_and_channels_first():
    """255 becomes 1, channels come first, numbers are their own; from one row."""
    seen = {}

    class Looks(nn.Module):
        features_dim = 1

        def __init__(self, observation_space: spaces.Dict) -> None:
            super().__init__()
            seen["space"] = observation_space
            self.weight = nn.Parameter(torch.ones(1))

        def forward(self, obs: dict[str, torch.Tensor]) -> torch.Tensor:
            seen["obs"] = obs
            return obs["place"][:, :1] * self.weight

    import drlnb.rl.networks.modules as modules

    spec = task(policy_kwargs={"features_extractor_class": {"name": "Looks", "pickled": "x"}})
    original, modules._own = modules._own, lambda told, what: Looks
    try:
        module = build(spec)
    finally:
        modules._own = original
    rows, _ = as_rows(spec.observation_space, {**Keyed()._obs(), "camera": np.full(CAMERA.shape, 255, np.uint8)})
    module.both(torch.from_numpy(rows))
    assert seen["space"]["camera"].shape == (3, 36, 40)
    assert seen["space"]["mode"] == spaces.Discrete(3, start=1)
    assert seen["obs"]["camera"].shape == (1, 3, 36, 40)
    assert (seen["obs"]["camera"] == 1.0).all()
    assert seen["obs"]["mode"].tolist() == [[1, 0, 0]]


def test_keys_without_images_are_an_mlps_rows():
    """No torch module is needed: the first layer takes the 12 numbers."""
    learner = make_learner(task(kwargs={"camera": False}))
    assert learner.layout.activation == "tanh"
    assert learner.layout["pi.0.weight"].shape == (64, 12)


def test_policies_that_do_not_fit_are_refused():
    """Each is told with the one that fits, before anything is built."""
    with pytest.raises(ConfigError, match="MlpPolicy takes arrays, Keyed has Dict observations: say policy='MultiInpu"):
        make_actor(task(policy="MlpPolicy"))
    with pytest.raises(ConfigError, match="CnnPolicy takes arrays, Keyed has Dict"):
        make_learner(task(policy="CnnPolicy"))
    with pytest.raises(ConfigError, match="MultiInputPolicy takes Dict observations, Sign has discrete: say MlpPolicy"):
        make_learner(task(Sign, kwargs={"keyed": False}))


@pytest.mark.parametrize("camera", [True, False])
def test_actor_and_learner_agree_on_rows(camera):
    """The learner's first ratio is 1: what acted is what learns (torch or numpy), statistics included."""
    spec = task(kwargs={"camera": camera}, normalize=True, batch_size=16)
    learner = make_learner(spec)
    collector = Collector(spec, env_indices=[0, 1])
    for number in range(2):  # the second round is normalised by the first one's statistics
        found = collector.collect(learner.published(), version=number, round=number, n_steps=8)
        learner.begin(number, 16 * (number + 1))
        learner.stage(0, found)
        metrics = learner.finish()
    assert abs(metrics["train/approx_kl"]) < 1e-6
    assert metrics["train/clip_fraction"] == 0.0


# ---------------------------------------------------------------------------------------------------- statistics


@pytest.mark.parametrize("camera", [True, False])
def test_statistics_are_those_of_the_boxes(camera):
    """The place has t = 0 1 2 3 4 0 1 2: mean 13/8; choices keep mean 0 and variance 1, so they pass unchanged."""
    spec = task(kwargs={"camera": camera}, normalize={"norm_obs": True, "norm_reward": False})
    learner = make_learner(spec)
    learner.begin(0, 16)
    learner.stage(0, Collector(spec, env_indices=[0, 1]).collect(learner.published(), version=0, round=0, n_steps=8))
    learner.finish()
    moments = learner.kept.obs_moments
    assert moments.mean[-2:] == pytest.approx([13 / 8, -13 / 4], rel=1e-4)
    assert moments.mean[:-2].tolist() == [0.0] * 10
    assert moments.var[:-2] == pytest.approx(np.ones(10), abs=1e-12)
    form = RowForm.of(spec.observation_space["of"])
    rows, _ = as_rows(spec.observation_space, Keyed(camera)._obs())
    seen = form.normalised(rows, moments.mean, moments.var)
    # var of t: (0+1+4+9+16+0+1+4)/8 - (13/8)^2 = 1.734375; place 0 becomes -1.625 / sqrt(1.734375) = -1.2339
    assert form.vector(seen)[0, -2] == pytest.approx(-1.2339, abs=1e-3)
    assert form.vector(seen)[0, :10].tolist() == form.vector(rows)[0, :10].tolist()
    assert seen[:, 48:].tobytes() == rows[:, 48:].tobytes()


# ---------------------------------------------------------------------------------------------------- the way round


@pytest.mark.parametrize("algo", ["ppo", "gpf"])
def test_split_and_resume_change_nothing(algo):
    """Rows train, stop, go on and are split as arrays do: bit for bit."""
    hyper = {"reward_scale": 1.0, "batch_size": 8} if algo == "gpf" else {}
    spec = task(algo=algo, kwargs={"camera": False}, total_timesteps=64, normalize=True, **hyper)
    whole = train_local(spec).parameters
    split = RlWork.from_plain({**spec.to_plain(), "n_collectors": 2})
    assert train_local(split).parameters.tobytes() == whole.tobytes()
    first = LocalLoop(spec)
    first.round()
    first.round()
    second = LocalLoop(spec, first.trained())
    while second.n_timesteps < 64:
        second.round()
    first.close()
    second.close()
    assert second.parameters.tobytes() == whole.tobytes()


def test_the_sign_is_learnt():
    """From a dictionary with noise beside it: the mean of 8 rewards nears 8 (chance: 4)."""
    hyper = {"n_envs": 4, "n_steps": 16, "batch_size": 64, "n_epochs": 8, "learning_rate": 0.01}
    spec = task(Sign, total_timesteps=900, policy_kwargs={"net_arch": [16]}, gae_lambda=0.0, **hyper)
    assert evaluate_parameters(spec, train_local(spec).parameters, n_episodes=8).mean > 7.5


def test_predict_takes_observations_batches_and_rows():
    """One observation gives one action, a batch of keys gives as many as it has, and its rows give the same."""
    spec = task(kwargs={"camera": False})
    actor = make_actor(spec)
    actor.load(parameters(spec))
    one = Keyed(camera=False)._obs()
    assert actor.predict(one, deterministic=True)[0].shape == ()
    many = {key: np.stack([np.asarray(value)] * 3) for key, value in one.items()}
    actions, _ = actor.predict(many, deterministic=True)
    assert actions.shape == (3,)
    rows, _ = as_rows(spec.observation_space, many)
    assert actor.predict(rows, deterministic=True)[0].tolist() == actions.tolist()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"place": np.zeros(3)}, r"observation 'place' must have the shape \(2,\) or \(n, \*\(2,\)\), got \(3,\)"),
        ({"mode": np.array([1, 2])}, "the keys of an observation must have the same number of rows"),
        ({"mode": 9}, "observation 'mode' that is none of its space's choices"),
    ],
)
def test_a_wrong_observation_is_told_by_predict(change, told):
    """The key is named, and what it should be."""
    spec = task(kwargs={"camera": False})
    actor = make_actor(spec)
    actor.load(parameters(spec))
    with pytest.raises(ValueError, match=told):
        actor.predict({**Keyed(camera=False)._obs(), **change})
    with pytest.raises(ValueError, match="must be given an observation of type int, its space says Dict"):
        actor.predict(3)


def test_arrays_are_left_alone():
    """An environment with a Box gets no wrapper around it."""
    assert not isinstance(make_env("CartPole-v1"), FlatRows)


# ---------------------------------------------------------------------------------------------------- images


class Bright(gymnasium.Env):
    """One grey of 4 x 4 pixels, 51 = 0.2 of 255."""

    observation_space = spaces.Box(0, 255, (4, 4, 1), np.uint8)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
        super().reset(seed=seed)
        return np.full((4, 4, 1), 51, np.uint8), {}

    def step(self, action: Any) -> Any:
        return np.full((4, 4, 1), 51, np.uint8), 1.0, False, False, {}


def test_an_mlp_gets_images_divided_by_255():
    """51 becomes 0.2 for learner and actor, as in Stable-Baselines3; not with normalize_images=False."""
    spec = task(Bright, "MlpPolicy")
    image = np.full((1, 4, 4, 1), 51, np.uint8)
    learner = make_learner(spec)
    assert learner.networks.rows([image]) == pytest.approx(np.full((1, 16), 0.2), rel=1e-6)
    actor = make_actor(spec)
    actor.load(learner.published())
    outputs = learner.networks.both(torch.from_numpy(learner.networks.rows([image])))[0]
    assert actor.forward(image) == pytest.approx(outputs.detach().numpy(), abs=1e-6)
    raw = make_learner(task(Bright, "MlpPolicy", policy_kwargs={"normalize_images": False}))
    assert raw.networks.rows([image]).max() == 51.0
    assert raw.layout.sha != learner.layout.sha
