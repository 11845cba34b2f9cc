"""Dropout and batch normalisation: off while a policy acts, on in gradient steps, and the same bits every time."""

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from drlnb.planning.swapping.state import ALL
from drlnb.records.columns.swapping import SwapOrder
from drlnb.records.errors import ConfigError
from drlnb.rl.algorithms.registry import make_actor, make_learner
from drlnb.rl.checkpoints.files import LAYOUT, describe_layout, unpack
from drlnb.rl.checkpoints.files import pack as to_files
from drlnb.rl.checkpoints.trained import State, Trained
from drlnb.rl.collecting.collector import Collector, split_envs
from drlnb.rl.fragments import Fragment
from drlnb.rl.networks.exported import Network
from drlnb.rl.networks.modules import build
from drlnb.rl.networks.same_bits import own_draws
from drlnb.rl.pickled import pack
from drlnb.runtime.swapping.driven import Driven

MEAN, COUNT = "net.features.norm.running_mean", "net.features.norm.num_batches_tracked"


class Normed(nn.Module):
    """Batch normalisation, then dropout."""

    def __init__(self, space: Any, p: float = 0.5, **norm: Any) -> None:
        super().__init__()
        self.features_dim = space.shape[0]
        self.norm, self.drop = nn.BatchNorm1d(self.features_dim, **norm), nn.Dropout(p)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return self.drop(self.norm(obs))


def kwargs_of(kind: Any = Normed, **more: Any) -> dict[str, Any]:
    """Return the policy_kwargs of a small network on such features."""
    features = {"name": kind.__name__, "pickled": pack(kind)}
    return {"net_arch": [8], "features_extractor_class": features, "features_extractor_kwargs": more}


@pytest.fixture
def make(make_spec, make_dqn_spec):
    """Build a task of an algorithm whose network has both."""

    def made(algo: str, kind: Any = Normed, of_features: Any = None, **given: Any) -> Any:
        given = {"policy_kwargs": kwargs_of(kind, **of_features or {}), **given}
        if algo == "gpf":
            return replace(make_spec(**{"reward_scale": 0.1, **given}), algo="gpf")
        return make_dqn_spec(**given) if algo == "dqn" else make_spec(**given)

    return made


def staged(learner: Any, seed: int = 0, **header: Any) -> list[Fragment]:
    """Return a round's experience: fragments of the collectors, or a block of three minibatches of DQN."""
    spec = learner.spec
    if spec.algo != "dqn":
        collectors = [Collector(spec, env_indices=share) for share in split_envs(spec.n_envs, spec.n_collectors)]
        parameters = learner.published()
        found = [each.collect(parameters, version=1, round=1, n_steps=16) for each in collectors]
        for each in collectors:
            each.close()
        return found
    rng, shape = np.random.default_rng(seed), (3, 16)
    arrays = {name: 3.0 + rng.standard_normal((*shape, 4)).astype(np.float32) for name in ("obs", "next_obs")}
    arrays |= {"action": rng.integers(0, 2, shape), "reward": rng.standard_normal(shape).astype(np.float32)}
    arrays["terminated"] = rng.random(shape) < 0.2
    about = {"n_timesteps": 100, "n_target_updates": 0, "n_gradient_steps": 3, "metrics": {}, **header}
    return [Fragment(about, arrays)]


def learn(learner: Any, found: list[Fragment], number: int = 1, **more: Any) -> dict[str, float]:
    learner.begin(number, 64 * number)
    for worker, fragment in enumerate(found):
        learner.stage(worker, fragment)
    return learner.finish(**more)


def bits(learner: Any) -> bytes:
    return learner.state()[1].tobytes()


def tensor(learner: Any, name: str, flat: Any = None) -> torch.Tensor:
    entry = learner.layout[name]
    return (learner.adam.flat if flat is None else flat)[entry.start : entry.stop].reshape(entry.shape).clone()


ALGORITHMS = pytest.mark.parametrize("algo", ["ppo", "gpf", "dqn"])


@ALGORITHMS
def test_statistics_move_in_gradient_steps_alone(algo, make):
    """Predicting, collecting and staging move nothing and answer the same; the steps move statistics and weights."""
    learner, actor = make_learner(make(algo)), make_actor(make(algo))
    before, obs = bits(learner), np.float32([[0.1, 0.2, -0.3, 0.4], [1.0, -1.0, 2.0, 0.0]])
    found = staged(learner)
    learner.begin(1, 64)
    for worker, fragment in enumerate(found):
        learner.stage(worker, fragment)
    actor.load(learner.published())
    first = actor.forward(obs)
    assert all(np.array_equal(actor.forward(obs), first) for _ in range(5))
    assert bits(learner) == before
    learner.finish()
    assert not np.isclose(tensor(learner, MEAN), 0.0).any()
    assert not torch.isclose(tensor(learner, MEAN.replace("running_mean", "bias")), torch.zeros(4)).any()
    assert tensor(learner, COUNT).item() == (3 if algo == "dqn" else 4)
    assert not learner.module.training


@ALGORITHMS
def test_actors_have_the_statistics_of_the_parameters(algo, make):
    """What acts with the published buffer answers as the learner's network in evaluation mode, exported, too."""
    spec = make(algo)
    learner, actor = make_learner(spec), make_actor(spec)
    learn(learner, staged(learner))
    obs = np.random.default_rng(1).standard_normal((7, 4)).astype(np.float32)
    with torch.no_grad():
        expected = learner.module.actor(torch.from_numpy(obs)).numpy()
    actor.load(learner.published())
    assert np.array_equal(actor.forward(obs), expected)
    policy = Network(spec)
    policy.fill(learner.state()[1][: 4 * policy.layout.n_total].view(np.float32), learner.published())
    assert not any(each.training for each in policy.modules())
    assert np.array_equal(policy.outputs(torch.from_numpy(obs)).detach().numpy(), expected)


@ALGORITHMS
def test_resumed_equals_uninterrupted(algo, make):
    """Through files, in a process that drew other numbers: the bits of two rounds without a stop, dropout's too."""
    spec = make(algo)
    learner, other = make_learner(spec), make_learner(spec)
    learn(learner, staged(learner))
    facts, buffer = learner.state()
    facts = {**facts, LAYOUT: describe_layout(learner.layout)}  # as an executor says it
    saved = State(published=learner.published(), facts=facts, buffer=np.array(buffer))
    _, trained = unpack(*to_files(spec, Trained(state=saved, n_rounds=1, n_timesteps=64)), "here")
    other.restore(trained.state.facts, trained.state.buffer)
    assert trained.state.published.tobytes() == learner.published().tobytes()
    found = staged(learner, seed=1)
    learn(learner, found, 2)
    torch.manual_seed(99)
    random.seed(99)
    np.random.seed(99)  # noqa: NPY002 - the one that modules may draw from
    learn(other, found, 2)
    assert bits(other) == bits(learner)


@ALGORITHMS
def test_an_update_that_is_undone_leaves_no_trace(algo, make):
    """Interrupted after its second step and made again: the bits of a round that nobody interrupted."""
    learner, other = make_learner(make(algo)), make_learner(make(algo))
    found, before = staged(learner), bits(learner)

    def stop(done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        learn(learner, found, on_minibatch=stop)
    assert bits(learner) == before
    assert not learner.module.training
    learner.finish()
    learn(other, found)
    assert bits(learner) == bits(other)


@ALGORITHMS
def test_a_gradient_that_is_computed_twice_draws_the_same(algo, make):
    """Whoever puts buffers back and computes a gradient once more gets the same bits."""
    learner, other = make_learner(make(algo)), make_learner(make(algo))
    found = staged(learner)

    def twice(n_samples: int, compute: Any) -> Any:
        kept = {name: buffer.clone() for name, buffer in learner.module.named_buffers()}
        compute()
        for name, buffer in learner.module.named_buffers():
            buffer.copy_(kept[name])
        return compute()

    learner.around = twice
    learn(learner, found)
    learn(other, found)
    assert bits(learner) == bits(other)


def test_numbers_that_others_draw_go_on(make):
    """A round leaves the generators of Python, numpy and torch as they were."""

    class Drawing(Normed):
        def forward(self, obs: torch.Tensor) -> torch.Tensor:
            noise = random.random() + np.random.rand() + torch.rand(()) if self.training else 0.0  # noqa: NPY002
            return super().forward(obs + noise)

    learner = make_learner(make("ppo", Drawing))
    found, other = staged(learner), make_learner(make("ppo", Drawing))
    with own_draws():
        expected = torch.rand(3), random.random(), np.random.rand()  # noqa: NPY002
    learn(learner, found)
    assert torch.equal(torch.rand(3), expected[0])
    assert (random.random(), np.random.rand()) == expected[1:]  # noqa: NPY002
    learn(other, found)
    assert bits(learner) == bits(other)


@pytest.mark.parametrize("tau", [0.0, 0.25])
def test_the_target_network_gets_the_statistics_whatever_tau(tau, make):
    """An update moves its weights by tau and copies statistics; without one both stay; it never counts a batch."""
    learner = make_learner(make("dqn", tau=tau))
    start, n = learner.target.clone(), learner.layout.n_trained
    learn(learner, staged(learner))
    assert torch.equal(learner.target, start)
    trained = learner.adam.flat.clone()
    learn(learner, staged(learner, n_target_updates=1), 2)
    assert torch.equal(learner.target[n:], trained[n:])
    torch.testing.assert_close(learner.target[:n], (1.0 - tau) * start[:n] + tau * trained[:n])
    assert tensor(learner, COUNT, learner.target).item() == 3
    assert tensor(learner, COUNT).item() == 6


def test_double_q_chooses_as_the_policy_acts(make):
    """The choice of the next action counts no batch, and draws nothing."""
    learner = make_learner(make("dqn", double_q=True))
    learn(learner, staged(learner))
    assert tensor(learner, COUNT).item() == 3


@pytest.mark.parametrize("optimizer", [{"optimizer_class": "AdamW"}, {"optimizer_class": "SGD"}])
def test_no_optimiser_steps_a_statistic(optimizer, make):
    """With weight decay of a half, the running mean is that of the batches, worked out by hand."""
    kwargs = {**kwargs_of(momentum=None, p=0.0), **optimizer, "optimizer_kwargs": {"weight_decay": 0.5}}
    learner = make_learner(make("dqn", policy_kwargs=kwargs, learning_rate=0.1))
    found = staged(learner)
    learn(learner, found)
    torch.testing.assert_close(tensor(learner, MEAN).numpy(), found[0].arrays["obs"].mean((0, 1)), rtol=1e-5, atol=0)


@pytest.mark.parametrize("n_collectors", [1, 2])
@pytest.mark.parametrize("algo", ["ppo", "gpf"])
def test_one_batch_of_the_whole_round_is_normalised_as_one(algo, n_collectors, make):
    """Gradients that could be computed as experience arrives are not: one batch is counted, whose mean is its own."""
    more = {"n_epochs": 1, "batch_size": 64, "n_collectors": n_collectors}
    learner = make_learner(make(algo, of_features={"momentum": 1.0}, **more))
    found = staged(learner)
    learner.begin(1, 64)
    for worker in reversed(range(len(found))):  # what is given away in between is of use elsewhere
        learner.stage(worker, found[worker])
    other = make_learner(make(algo, of_features={"momentum": 1.0}, **more))
    other.begin(1, 64)
    for fragment in found:
        part = learner.export_partial(fragment.header["env_indices"])
        other.import_partial(Fragment.from_bytes(part.to_bytes()))
    learner.finish()
    other.finish()
    seen = np.concatenate([fragment.arrays["obs"].reshape(-1, 4) for fragment in found])
    assert tensor(learner, COUNT).item() == 1
    torch.testing.assert_close(tensor(learner, MEAN).numpy(), seen.mean(0), rtol=1e-4, atol=1e-6)
    assert bits(other) == bits(learner)


def test_collectors_do_not_matter(make):
    """One collector or two: the same bits."""
    found = []
    for n_collectors in (1, 2):
        learner = make_learner(make("ppo", n_collectors=n_collectors))
        learn(learner, staged(learner))
        found.append(bits(learner))
    assert found[0] == found[1]


def test_a_last_sample_joins_its_neighbours(make):
    """64 samples in minibatches of 21: batch normalisation takes none of one sample."""
    learner = make_learner(make("ppo", batch_size=21, n_epochs=1, normalize_advantage=False))
    learn(learner, staged(learner))
    assert tensor(learner, COUNT).item() == 3


def test_a_buffer_that_is_put_in_anothers_place_is_kept(make):
    """``self.n = self.n + 1`` in training counts as ``self.n += 1`` does; the next round goes on from it."""

    class Replacing(Normed):
        def __init__(self, space: Any) -> None:
            super().__init__(space)
            self.register_buffer("n", torch.zeros(2), persistent=False)

        def forward(self, obs: torch.Tensor) -> torch.Tensor:
            if self.training:
                self.n = self.n + 1.0
            return super().forward(obs)

    learner = make_learner(make("ppo", Replacing))
    found = staged(learner)
    learn(learner, found)
    assert tensor(learner, "net.features.n").tolist() == [4.0, 4.0]
    before = bits(learner)

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        learn(learner, found, 2, on_minibatch=stop)
    assert bits(learner) == before
    learner.finish()
    assert tensor(learner, "net.features.n").tolist() == [8.0, 8.0]


def test_features_of_ones_own_for_policy_and_value_have_statistics_each(make):
    """share_features_extractor=False: two layers, each counting each batch once."""
    kwargs = {**kwargs_of(), "share_features_extractor": False}
    learner = make_learner(make("ppo", policy_kwargs=kwargs))
    learn(learner, staged(learner))
    counts = [tensor(learner, e.name).item() for e in learner.layout.entries if e.name.endswith("tracked")]
    assert counts == [4, 4]


@pytest.mark.parametrize("algo", ["ppo", "gpf"])
def test_several_learners_are_refused(algo, make):
    """Each would see a part of a minibatch."""
    with pytest.raises(ConfigError, match=r"n_learners must be 1 for a network with dropout or batch norm.*, got 2$"):
        make_learner(replace(make(algo), n_collectors=2, n_learners=2, deterministic=False))


def test_tables_that_stay_as_they_are_are_not_sent(make):
    """Whole numbers are no part of the parameters while nothing changes them."""

    class Table(Normed):
        def __init__(self, space: Any) -> None:
            super().__init__(space)
            self.register_buffer("order", torch.tensor([3, 1, 2, 0]))

        def forward(self, obs: torch.Tensor) -> torch.Tensor:
            return super().forward(obs[:, self.order])

    learner = make_learner(make("ppo", Table))
    assert "net.features.order" not in {entry.name for entry in learner.layout.entries}
    learn(learner, staged(learner))
    assert learner.module.get_buffer("net.features.order").tolist() == [3, 1, 2, 0]


def test_a_module_is_built_alike_whatever_it_draws_from(make):
    """A table that numpy drew is the same at every actor."""

    class Projecting(Normed):
        def __init__(self, space: Any) -> None:
            super().__init__(space)
            self.register_buffer("table", torch.from_numpy(np.random.rand(3)), persistent=False)  # noqa: NPY002

    spec = make("ppo", Projecting)
    tables = [build(spec).get_buffer("net.features.table").tolist() for _ in range(2)]
    assert tables[0] == tables[1]


def test_swapped_tensors_change_no_bit(make):
    """With everything that a step saves moved away, buffers and masks are those of plain steps."""
    spec = make("ppo", policy_kwargs={**kwargs_of(), "net_arch": [256]}, batch_size=64)
    learner, other = make_learner(spec), make_learner(spec)
    found, driven = staged(learner), Driven(learner.module)
    driven.follow(SwapOrder(plan_key=ALL, report="steps", n_samples=64, memory_budget_bytes=1 << 30), None)
    learner.around = driven.around
    try:
        learn(learner, found)
        assert any(row.get("swapped_bytes", 0) > 0 for row in driven.events())
    finally:
        driven.close()
    learn(other, found)
    assert bits(learner) == bits(other)
