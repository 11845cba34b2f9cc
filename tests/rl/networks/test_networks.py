"""Policies beside the MLP: convolutions, extractors, modules of the user's own; and what every network must keep to."""

import re
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from torch import nn

from drlnb.records.errors import ConfigError
from drlnb.records.spec import RlWork
from drlnb.rl.algorithms.ppo import PpoLearner, evaluate
from drlnb.rl.algorithms.registry import make_actor, make_learner
from drlnb.rl.algorithms.resolve import resolve
from drlnb.rl.collecting.collector import Collector
from drlnb.rl.envs.make import describe
from drlnb.rl.heads import Head
from drlnb.rl.networks.activations import NUMPY
from drlnb.rl.networks.extractors import NatureCNN
from drlnb.rl.networks.layout import layout_of
from drlnb.rl.networks.modules import build
from drlnb.rl.networks.networks import make_networks
from drlnb.rl.pickled import pack
from drlnb.rl.seeding import NoiseStreams

IMAGES = gymnasium.spaces.Box(0, 255, (36, 38, 2), np.uint8)
HEADS = {
    "discrete": gymnasium.spaces.Discrete(3, start=2),
    "multidiscrete": gymnasium.spaces.MultiDiscrete([3, 2, 4], start=[0, 5, 1]),
    "multibinary": gymnasium.spaces.MultiBinary((2, 2)),
    "box": gymnasium.spaces.Box(-1.0, 2.0, (2,), np.float32),
}


class Pictures(gymnasium.Env):
    """Random images; the episode is cut after 5 steps."""

    observation_space = IMAGES
    action_space = HEADS["discrete"]

    def __init__(self) -> None:
        self._t = 0

    def _obs(self) -> np.ndarray:
        return self.np_random.integers(0, 256, IMAGES.shape, np.uint8)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
        super().reset(seed=seed)
        self._t = 0
        return self._obs(), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(np.asarray(action) if np.ndim(action) else np.int64(action))
        self._t += 1
        return self._obs(), float(self._t), False, self._t == 5, {}


def task(policy: Any = "CnnPolicy", *, obs: Any = IMAGES, action: Any = HEADS["discrete"], **hyper: Any) -> RlWork:
    """Return a tiny task; a policy that is a function is packed."""
    if callable(policy):
        policy = {"name": "mine", "pickled": pack(policy)}
    hyper = {"policy": policy, "n_steps": 6, "batch_size": 6, "n_epochs": 2, **hyper}

    def build() -> gymnasium.Env:
        made = Pictures()
        made.action_space = action
        return made

    return RlWork(
        name="a",
        env="pictures",
        env_factory=pack(build),
        seed=1,
        n_envs=2,
        total_timesteps=100,
        hyperparameters=hyper,
        observation_space=describe(obs),
        action_space=describe(action),
    )


def fragment(spec: RlWork, learner: Any) -> Any:
    made = Collector(spec, env_indices=range(spec.n_envs))
    try:
        return made.collect(learner.published(), version=1, round=1, n_steps=6)
    finally:
        made.close()


SMALL = {"features_extractor_kwargs": {"features_dim": 16}}


def test_nature_cnn_is_the_published_one():
    """84x84x1 images give 32x1x8x8, 64x32x4x4, 64x64x3x3 and 512x3136, one shared trunk, heads of 3 and 1."""
    spec = task(obs=gymnasium.spaces.Box(0, 255, (84, 84, 1), np.uint8))
    shapes = {entry.name: entry.shape for entry in layout_of(spec).entries}
    assert [shapes[f"net.features.cnn.{i}.weight"] for i in (0, 2, 4)] == [
        (32, 1, 8, 8),
        (64, 32, 4, 4),
        (64, 64, 3, 3),
    ]
    assert shapes["net.features.linear.0.weight"] == (512, 3136)
    assert (shapes["net.action.weight"], shapes["net.value.weight"]) == ((3, 512), (1, 512))
    assert len(shapes) == 12


def test_convolutions_begin_orthogonal_and_the_same_for_a_seed():
    """Gains: sqrt 2 in the trunk, .01 at the policy's head, 1 at the value's; global generators play no part."""
    spec = task(policy_kwargs=SMALL)
    torch.manual_seed(3)
    first = make_learner(spec).state()[1].tobytes()
    torch.manual_seed(4)
    before = torch.random.get_rng_state()
    learner = make_learner(spec)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert learner.state()[1].tobytes() == first
    flat, layout = learner.adam.flat, learner.layout

    def gram(name: str) -> torch.Tensor:
        rows = flat[layout[name].start : layout[name].stop].view(layout[name].shape[0], -1)
        return rows @ rows.T if rows.shape[0] <= rows.shape[1] else rows.T @ rows

    for name, gain in (("features.cnn.0", 2.0), ("features.linear.0", 2.0), ("action", 1e-4), ("value", 1.0)):
        found = gram(f"net.{name}.weight")
        torch.testing.assert_close(found, gain * torch.eye(len(found)), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("last", [True, False], ids=["channels last", "channels first"])
def test_images_arrive_scaled_with_channels_first(last):
    """A network of one's own sees floats in [0, 1] with the channels in front, and a space that says so."""
    seen = []

    class Net(nn.Module):
        def __init__(self, obs_space: Any, action_space: Any) -> None:
            super().__init__()
            assert obs_space.shape == (2, 36, 38)
            assert action_space == HEADS["discrete"]
            self.weight = nn.Parameter(torch.zeros(3))

        def actor(self, obs: torch.Tensor) -> torch.Tensor:
            seen.append(obs)
            return obs.mean((1, 2, 3))[:, None] * self.weight

        def critic(self, obs: torch.Tensor) -> torch.Tensor:
            return self.weight.sum().expand(len(obs))

    shape = IMAGES.shape if last else (2, 36, 38)
    spec = task(lambda o, a: Net(o, a), obs=gymnasium.spaces.Box(0, 255, shape, np.uint8))
    obs = np.zeros((1, *shape), np.uint8)
    obs[(0, 4, 5, 1) if last else (0, 1, 4, 5)] = 255
    module = build(spec)
    module.net.actor = lambda x: seen.append(x) or x  # the instance's own list: the class travelled by value
    module.actor(torch.from_numpy(obs))
    assert seen[-1].dtype == torch.float32
    assert (seen[-1][0, 1, 4, 5].item(), seen[-1].sum().item()) == (1.0, 1.0)


def test_a_convolutional_learner_and_its_actor_agree():
    """Two rounds: the torch actor's outputs equal the learner's networks, the first KL is 0, the images stay uint8."""
    spec = task(policy_kwargs=SMALL, n_epochs=1, batch_size=12, learning_rate=0.01)
    learner = PpoLearner(spec)
    for number in (1, 2):
        found = fragment(spec, learner)
        assert found.arrays["obs"].dtype == np.uint8
        learner.begin(number, 12)
        learner.stage(0, found)
        metrics = learner.finish()
        assert abs(metrics["train/approx_kl"]) < 1e-6
    actor = make_actor(spec)
    actor.load(learner.published())
    obs = found.arrays["obs"][:, 0]
    with torch.no_grad():
        expected, _ = make_networks_of(learner).both(torch.from_numpy(obs))
    np.testing.assert_allclose(actor.forward(obs), expected.numpy(), atol=1e-5)
    action, state = actor.predict(obs[0], deterministic=True)
    assert state is None
    assert spec.action_space is not None
    assert int(action) in {2, 3, 4}


def make_networks_of(learner: PpoLearner) -> Any:
    return learner.networks


def test_a_step_on_the_flat_buffer_is_a_step_on_the_module():
    """Parameters and gradients of the module are views: adding 1 to the flat vector adds 1 to each weight."""
    networks = make_networks(task(policy_kwargs=SMALL), torch.device("cpu"))
    before = {n: p.detach().clone() for n, p in networks.module.named_parameters()}
    networks.kept.adam.flat += 1.0
    for name, parameter in networks.module.named_parameters():
        torch.testing.assert_close(parameter.detach(), before[name] + 1.0)
    outputs, values = networks.both(torch.zeros((2, *IMAGES.shape), dtype=torch.uint8))
    (outputs.sum() + values.sum()).backward()
    assert networks.kept.adam.grad.abs().sum().item() > 0.0


def test_a_convolutional_learner_resumes_bit_for_bit():
    """State after round 1 in a new object, then round 2: the same bits as without the stop."""
    spec = task(policy_kwargs=SMALL)
    learner, other = PpoLearner(spec), PpoLearner(spec)
    learn(learner, fragment(spec, learner), 1)
    other.restore(*learner.state())
    found = fragment(spec, learner)
    learn(learner, found, 2)
    learn(other, found, 2)
    assert other.state()[1].tobytes() == learner.state()[1].tobytes()


def learn(learner: PpoLearner, found: Any, number: int) -> None:
    learner.begin(number, 12 * number)
    learner.stage(0, found)
    learner.finish()


@pytest.mark.parametrize("kind", list(HEADS))
def test_every_action_space_trains(kind):
    """Each kind of action is taken by its environment, and a round changes the parameters."""
    spec = task("MlpPolicy", action=HEADS[kind], policy_kwargs={"net_arch": [4]}, normalize_advantage=False)
    learner = PpoLearner(spec)
    before = learner.published()
    found = fragment(spec, learner)
    learner.begin(1, 12)
    learner.stage(0, found)
    metrics = learner.finish()
    assert np.isfinite(metrics["train/loss"])
    assert not np.array_equal(learner.published(), before)


# ---------------------------------------------------------------------------------------------------- own modules


class Fine(nn.Module):
    """Does what is asked, for vectors of 3."""

    def __init__(self, obs_space: Any, action_space: Any, width: int = 4) -> None:
        super().__init__()
        self.body = nn.Linear(obs_space.shape[0], width)
        self.pi, self.v = nn.Linear(width, action_space.n), nn.Linear(width, 1)

    def actor(self, obs: torch.Tensor) -> torch.Tensor:
        return self.pi(torch.tanh(self.body(obs)))

    def critic(self, obs: torch.Tensor) -> torch.Tensor:
        return self.v(torch.tanh(self.body(obs)))[:, 0]


class Wide(Fine):
    def critic(self, obs: torch.Tensor) -> torch.Tensor:
        return super().critic(obs)[:, None]


class Short(Fine):
    def actor(self, obs: torch.Tensor) -> torch.Tensor:
        return super().actor(obs)[:, :2]


class Infinite(Fine):
    def critic(self, obs: torch.Tensor) -> torch.Tensor:
        return super().critic(obs) / 0.0


class Unused(Fine):
    def __init__(self, *spaces: Any) -> None:
        super().__init__(*spaces)
        self.spare = nn.Linear(2, 2)


class Noisy(Fine):
    def actor(self, obs: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(super().actor(obs) + 1.0, 0.5)


class Counting(Fine):
    def __init__(self, *spaces: Any) -> None:
        super().__init__(*spaces)
        self.register_buffer("asked", torch.zeros(()))

    def actor(self, obs: torch.Tensor) -> torch.Tensor:
        self.asked += 1.0
        return super().actor(obs)


class Whole(Fine):
    def __init__(self, *spaces: Any) -> None:
        super().__init__(*spaces)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def actor(self, obs: torch.Tensor) -> torch.Tensor:
        self.steps += self.training
        return super().actor(obs)


class Bursting(Fine):
    def actor(self, obs: torch.Tensor) -> torch.Tensor:
        return super().actor(obs) / (0.0 if self.training else 1.0)


class Twisted(Fine):
    def __init__(self, *spaces: Any) -> None:
        super().__init__(*spaces)
        self.twist = nn.Parameter(torch.ones(3, dtype=torch.complex64))

    def actor(self, obs: torch.Tensor) -> torch.Tensor:
        return super().actor((obs * self.twist).abs())


class Double(Fine):
    def __init__(self, *spaces: Any) -> None:
        super().__init__(*spaces)
        self.scale = nn.Parameter(torch.ones((), dtype=torch.float64))

    def actor(self, obs: torch.Tensor) -> torch.Tensor:
        return super().actor(obs) * self.scale.float()


class Lazy(Fine):
    def __init__(self, *spaces: Any) -> None:
        super().__init__(*spaces)
        self.body = nn.LazyLinear(4)


class Raises(Fine):
    def actor(self, obs: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("no such layer")


VECTOR = gymnasium.spaces.Box(-1.0, 1.0, (3,), np.float32)


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (Wide, r"critic must return the shape \(2,\) for 2 observations, got \(2, 1\)"),
        (Short, r"actor must return the shape \(2, 3\) for 2 observations, got \(2, 2\)"),
        (Infinite, "critic returned numbers that are not finite"),
        (Unused, r"no gradient reaches net.spare.weight, net.spare.bias"),
        (Noisy, "answers differently when asked twice in evaluation mode: .* training=self.training"),
        (Counting, "buffers net.asked change as it acts: change them if self.training alone"),
        (Whole, r"buffer net.steps changes in training and is torch.int64 of shape \(\): what changes must be float32"),
        (Bursting, "actor returned numbers that are not finite for 2 observations in training mode"),
        (
            Twisted,
            "parameter net.twist of the network is torch.complex64, and policies are trained in float32: convert",
        ),
        (Double, "parameter net.scale of the network is torch.float64, and policies are trained in float32: convert"),
        (Lazy, "policy mine has lazy layers: give their sizes, the spaces say them"),
        (Raises, "raised for 2 observations in evaluation mode: RuntimeError: no such layer"),
        (lambda *_: 3, "must make an nn.Module with actor"),
    ],
)
def test_a_network_that_breaks_its_contract_is_told(kind, told):
    """What is wrong is found before the first round, with the shape or the parameter that is wrong."""
    with pytest.raises(ConfigError, match=told):
        make_learner(task(kind, obs=VECTOR))


def test_arguments_reach_the_factory_and_ours_do_not():
    """policy_kwargs are the factory's, but for the optimiser's."""
    kwargs = {"width": 7, "optimizer_kwargs": {"eps": 1e-3, "betas": [0.5, 0.9]}}
    learner = make_learner(task(Fine, obs=VECTOR, policy_kwargs=kwargs))
    assert learner.layout["net.body.weight"].shape == (7, 3)
    constants = {"eps": 1e-3, "beta1": 0.5, "beta2": 0.9, "weight_decay": 0.0}
    assert {name: learner.adam._constants[name] for name in constants} == constants


def test_an_extractor_of_ones_own_feeds_both_heads():
    """features_extractor_class gets the space and its arguments; one without features_dim is refused by name."""

    class Mine(nn.Module):
        def __init__(self, space: Any, k: int) -> None:
            super().__init__()
            self.features_dim = k
            self.layer = nn.Linear(space.shape[0], k)

        def forward(self, obs: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.layer(obs))

    kwargs: dict[str, Any] = {"features_extractor_class": {"name": "Mine", "pickled": pack(Mine)}}
    more = {"features_extractor_kwargs": {"k": 5}, "net_arch": {"pi": [6], "vf": []}, "activation_fn": "elu"}
    learner = make_learner(task("MlpPolicy", obs=VECTOR, policy_kwargs={**kwargs, **more}))
    shapes = {entry.name: entry.shape for entry in learner.layout.entries}
    assert (shapes["net.features.layer.weight"], shapes["net.pi.0.weight"]) == ((5, 3), (6, 5))
    assert (shapes["net.action.weight"], shapes["net.value.weight"]) == ((3, 6), (1, 5))
    plain = {"features_extractor_class": {"name": "Linear", "pickled": pack(lambda space: nn.Linear(3, 3))}}
    with pytest.raises(ConfigError, match=r"features_extractor_class Linear must make an nn.Module with features_dim"):
        make_learner(task("MlpPolicy", obs=VECTOR, policy_kwargs=plain))


@pytest.mark.parametrize("algo", ["ppo", "dqn"])
def test_an_extractor_of_ones_own_keeps_the_towers_of_a_convolutional_policy(algo):
    """64 and 64 on features of one's own, as in Stable-Baselines3; none on those of its network, whoever names it."""
    theirs = type("NatureCNN", (nn.Module,), {"__module__": "stable_baselines3.common.torch_layers"})

    class Mine(nn.Module):
        def __init__(self, space: Any) -> None:
            super().__init__()
            self.features_dim = int(np.prod(space.shape))
            self.gain = nn.Parameter(torch.ones(()))

        def forward(self, obs: torch.Tensor) -> torch.Tensor:
            return self.gain * obs.flatten(1)

    tower = "q" if algo == "dqn" else "pi"
    for kind, widths in ((Mine, [64, 64]), (theirs, []), (NatureCNN, []), ("NatureCNN", [])):
        given = {"policy": "CnnPolicy", "policy_kwargs": {"features_extractor_class": kind}}
        resolved = resolve("X-v0", algo, overrides=given).hyperparameters
        shapes = {
            entry.name: entry.shape for entry in layout_of(replace(task(), algo=algo, hyperparameters=resolved)).entries
        }
        assert [shape[0] for name, shape in shapes.items() if re.fullmatch(rf"net.{tower}.*weight", name)] == widths


def test_convolutions_of_vectors_and_small_images_are_refused():
    """The space is named, and what to use instead."""
    with pytest.raises(ConfigError, match=r"pictures: CnnPolicy takes images .* use MlpPolicy"):
        make_learner(task(obs=VECTOR))
    with pytest.raises(ConfigError, match="at least 36 x 36 pixels, got 20 x 40"):
        make_learner(task(obs=gymnasium.spaces.Box(0, 255, (20, 40, 3), np.uint8)))


# ------------------------------------------------------------------------------------------------ numpy and torch


@pytest.mark.parametrize("name", NUMPY)
def test_activations_agree_in_numpy_and_torch(name):
    """Each activation differs by less than 1e-6 between the actor's and the learner's side."""
    x = np.linspace(-6.0, 6.0, 97, dtype=np.float32)
    function = getattr(nn.functional, name, None) or getattr(torch, name)
    expected = function(torch.from_numpy(x.copy())).numpy()
    found = NUMPY[name](x.copy())
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("activation", ["elu", "gelu"])
def test_an_mlp_with_another_activation_acts_as_it_learns(activation, make_spec):
    """The numpy actor and the learner's towers give the same outputs to 1e-5; gradients go through autograd."""
    spec = make_spec(policy_kwargs={"net_arch": [8, 8], "activation_fn": activation})
    learner = PpoLearner(spec)
    assert learner._towers is None
    actor = make_actor(spec)
    actor.load(learner.published())
    obs = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
    expected = learner.networks.both(torch.from_numpy(obs))[0].detach().numpy()
    np.testing.assert_allclose(actor.forward(obs), expected, atol=1e-5)


@pytest.mark.parametrize("kind", list(HEADS))
def test_heads_agree_in_numpy_and_torch(kind):
    """Log-probabilities of drawn actions differ by less than 1e-5."""
    head = Head.of(describe(HEADS[kind]))
    rng = np.random.default_rng(2)
    outputs = rng.standard_normal((50, head.width)).astype(np.float32)
    noise = head.draw(rng, (50, head.width))
    log_std = np.linspace(-1.0, 0.5, head.width, dtype=np.float32) if kind == "box" else None
    std = None if log_std is None else np.exp(log_std)
    actions = head.choose(outputs, noise, std)
    assert actions.shape == (50, *head.action_shape)
    as_torch = [None if x is None else torch.from_numpy(np.asarray(x)) for x in (outputs, actions, log_std)]
    log_p, _ = evaluate(head, *as_torch)
    np.testing.assert_allclose(head.log_prob(outputs, actions, log_std), log_p.numpy(), atol=1e-5)


@pytest.mark.parametrize("kind", list(HEADS))
def test_heads_equal_torch_distributions(kind):
    """Log-probability and entropy equal torch.distributions' to 1e-5."""
    head = Head.of(describe(HEADS[kind]))
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(20, head.width, generator=generator)
    log_std = torch.full((head.width,), -0.3) if kind == "box" else None
    noise = head.draw(np.random.default_rng(1), (20, head.width))
    actions = torch.from_numpy(head.choose(outputs.numpy(), noise, None if log_std is None else log_std.exp().numpy()))
    found, entropy = evaluate(head, outputs, actions, log_std)
    if kind == "box":
        judged: Any = torch.distributions.Normal(outputs, log_std.exp())
        expected, spread = judged.log_prob(actions).sum(1), judged.entropy().sum(1)
    elif kind == "multibinary":
        judged = torch.distributions.Bernoulli(logits=outputs)
        expected, spread = judged.log_prob(actions.float()).sum(1), judged.entropy().sum(1)
    else:
        columns = actions[:, None] if kind == "discrete" else actions
        split = outputs.split(head.sizes or (head.width,), 1)
        each = [torch.distributions.Categorical(logits=part) for part in split]
        expected = sum(one.log_prob(columns[:, d]) for d, one in enumerate(each))
        spread = sum(one.entropy() for one in each)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(entropy, spread.mean(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", ["multidiscrete", "multibinary"])
def test_sampled_actions_have_the_heads_probabilities(kind):
    """20,000 draws of the acting noise: each decision's frequencies are within .02 of its probabilities."""
    head = Head.of(describe(HEADS[kind]))
    outputs = np.linspace(-1.0, 1.0, head.width, dtype=np.float32)
    noise = NoiseStreams(7, 1, (0,)).block(0, 0, (20_000, head.width), noise=head.noise)
    actions = head.choose(np.broadcast_to(outputs, noise.shape), noise)
    if kind == "multibinary":
        np.testing.assert_allclose(actions.mean(0), 1.0 / (1.0 + np.exp(-outputs)), atol=0.02)
        return
    for d, part in enumerate(head.parts()):
        probabilities = np.exp(outputs[part]) / np.exp(outputs[part]).sum()
        found = np.bincount(actions[:, d], minlength=head.sizes[d]) / 20_000
        np.testing.assert_allclose(found, probabilities, atol=0.02)


def test_no_noise_is_the_most_likely_action():
    """Zero noise picks the largest logits, the ones above 0, the mean."""
    outputs = np.array([0.1, 0.9, 0.2, 0.7, 0.3, 0.0, 0.0, 0.0, 5.0], np.float32)
    zero = np.zeros(9, np.float32)
    assert Head("multidiscrete", 9, (3, 2, 4)).choose(outputs, zero).tolist() == [1, 0, 3]
    assert Head("multibinary", 9).choose(outputs - 0.25, zero).tolist() == [0, 1, 0, 1, 1, 0, 0, 0, 1]
