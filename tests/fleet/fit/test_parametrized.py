"""Modules whose parameters torch computes from others: they travel, and train as in a plain loop."""

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune

import drlnb
from drlnb.rl.networks.same_bits import one_thread
from drlnb.runtime.children.shares.step import compute_share
from tests.fleet.fit import work
from tests.fleet.fit.work import ADAM, assert_same, learner, make
from tests.runtime.fit.shared import plain_steps, shared_steps, written

CROSS_ENTROPY = nn.functional.cross_entropy


class Symmetric(nn.Module):
    """A parametrization of the user's own."""

    def forward(self, weight):
        return weight.triu() + weight.triu(1).T


def symmetric(layer):
    parametrize.register_parametrization(layer, "weight", Symmetric())


def twice(layer):
    parametrizations.weight_norm(layer)
    parametrizations.weight_norm(layer, "bias", 0)


WAYS = {
    "spectral_norm": parametrizations.spectral_norm,
    "weight_norm": parametrizations.weight_norm,
    "orthogonal": parametrizations.orthogonal,
    "own": symmetric,
    "twice": twice,
    "hooks": nn.utils.spectral_norm,
    "pruned": lambda layer: prune.l1_unstructured(layer, "weight", 0.3),
}


def net(way):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        module = nn.Sequential(nn.Linear(10, 6), nn.Tanh(), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 2))
        WAYS[way](module[2])
    return module


@pytest.mark.parametrize("way", WAYS)
def test_it_is_the_plain_loop_bit_by_bit(begin, way):
    """Also if another process goes on in the midst."""
    task = begin(net(way))
    first, second = learner(begin, task), learner(begin, task)
    make(first, 5)
    second.restore(*first.state())
    make(second, task.total_timesteps)
    again = net(way)  # those of hooks have no copies in torch
    assert_same(second, work.plain_loop(again, work.table(), CROSS_ENTROPY, torch.optim.Adam, **ADAM, is_copied=False))


@pytest.mark.parametrize("way", ["weight_norm", "orthogonal", "own", "twice"])
def test_two_learners_train_it_as_one_does(tmp_path, way):
    with one_thread():
        spec = written(tmp_path, net(way), work.table(), CROSS_ENTROPY, batch_size=70)
        ours = shared_steps(spec, (50, 20), 5).module
        wanted = plain_steps(net(way), work.table(), CROSS_ENTROPY, 5, batch_size=70)
    for name, value in wanted.named_parameters():
        assert (dict(ours.named_parameters())[name] - value).abs().max() < 1e-5, name
    assert parametrize.is_parametrized(ours[2], "weight")


def test_what_iterates_in_a_forward_pass_is_refused_to_two(begin):
    """A spectral norm keeps vectors that follow each pass: one learner's."""
    trained = learner(begin, begin(net("spectral_norm"), n_learners=2))
    with pytest.raises(
        RuntimeError, match=r"a forward pass changes 2\.parametrizations\.weight\.0\._u of the module, and"
    ):
        compute_share(trained, 0, 0, 5, 0, lambda: True)


@pytest.mark.cluster
@pytest.mark.slow
def test_executors_and_clients_rebuild_it(tmp_path):
    """In processes that have never seen its class, which torch makes anew for each module."""
    with drlnb.Fleet(slots=1) as fleet:
        run = fleet.fit(net("twice"), work.table(), CROSS_ENTROPY, torch.optim.Adam, **ADAM, out=tmp_path / "r")
        run.wait(timeout_s=60)
        trained = run.load()
    with one_thread():
        wanted = work.plain_loop(net("twice"), work.table(), CROSS_ENTROPY, torch.optim.Adam, **ADAM)
    assert all(map(torch.equal, trained.state_dict().values(), wanted.state_dict().values()))
    parametrize.remove_parametrizations(trained[2], "weight")
    assert isinstance(trained[2].weight, nn.Parameter)
