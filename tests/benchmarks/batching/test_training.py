"""Training of the network: targets by hand, numpy beside torch, and that a pattern is learned."""

import numpy as np
import pytest
import torch
from torch import nn

from benchmarks.batching.training import Batch, loss_of, new_network, train, weights_of
from drlnb.learned.batching.network import ACTIONS, Network


def test_numpy_values_are_those_of_torch():
    """The same network to 1e-6, on figures of the size that it sees."""
    torch.manual_seed(0)
    network = new_network(30)
    seen = torch.randn(256, 30)
    values = Network(weights_of(network)).values(seen.numpy().astype(float))
    np.testing.assert_allclose(values, network(seen).detach().numpy(), atol=1e-6)


def _fixed(values):
    """Return a network of one input that gives these values whatever it sees."""
    network = nn.Linear(1, len(values))
    with torch.no_grad():
        network.weight.zero_()
        network.bias.copy_(torch.tensor(values))
    return network


def _batch(end):
    one = torch.zeros(1, 1)
    return Batch(one, one, torch.tensor([1.0]), torch.tensor([0.25]), torch.tensor([float(end)]))


def test_the_target_is_the_online_networks_action_at_the_target_networks_value():
    """The online net would take action 2, which the target net values at 4: target .25 + .5 x 4 = 2.25.

    The target net's own best, action 0 at 10, does not count.  Action 1 was taken, valued at 2: the error is .25, the
    smooth loss half its square.
    """
    online, target = _fixed([1.0, 2.0, 3.0]), _fixed([10.0, 0.0, 4.0])
    assert loss_of(online, target, _batch(end=0), 0.5).item() == pytest.approx(0.5 * 0.25**2)


def test_after_the_last_split_only_the_reward_counts():
    """Target .25, value 2: an error of 1.75, beyond 1 the loss is linear: 1.75 - .5."""
    online, target = _fixed([1.0, 2.0, 3.0]), _fixed([10.0, 0.0, 4.0])
    assert loss_of(online, target, _batch(end=1), 0.5).item() == pytest.approx(1.25)


class Alternating:
    """One member whose best factor is .3 in every other split, as it can see; else 1."""

    n_splits = 50

    def __init__(self):
        self.t = 0

    def seen(self):
        return np.array([[float(self.t % 2), 1.0]])

    def split(self, performance):
        wanted = (1.0, 0.3)[self.t % 2]
        self.t += 1
        return -np.abs(np.log(performance / wanted))


def test_a_pattern_that_can_be_seen_is_learned():
    """In some hundred splits, and the same weights for the same seed."""
    weights = train(iter(lambda: Alternating(), None), 700, seed=3)
    network = Network(weights)
    assert network.performance(np.array([[0.0, 1.0], [1.0, 1.0]])).tolist() == [1.0, 0.3]
    assert set(ACTIONS) >= {1.0, 0.3}


class Absent(Alternating):
    """Has a second member that is never there; were its rewards counted, the first factor would be best."""

    def seen(self):
        return np.repeat(super().seen(), 2, axis=0)

    def split(self, performance):
        return np.array([super().split(performance[:1])[0], np.nan])


def test_who_had_no_part_in_a_split_teaches_nothing():
    """Its reward is NaN: its rows are left out, and what the other one shows is learned."""
    weights = train(iter(lambda: Absent(), None), 700, seed=3)
    assert all(np.isfinite(each).all() for each in weights.values())
    assert Network(weights).performance(np.array([[0.0, 1.0], [1.0, 1.0]])).tolist() == [1.0, 0.3]


def test_a_seed_is_a_network():
    """The same weights again, other ones for another seed."""
    first, again, other = (train(iter(lambda: Alternating(), None), 250, seed=seed) for seed in (1, 1, 2))
    assert all((first[name] == again[name]).all() for name in first)
    assert any((first[name] != other[name]).any() for name in first)
