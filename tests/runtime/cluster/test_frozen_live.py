"""A real training whose policy has a frozen part: it goes to each host once."""

import sys

import cloudpickle
import pytest
import torch
from torch import nn

from drlnb.records.columns.distribution import BaseMissing, DistributionPlanned
from drlnb.records.round import ParametersCommitted
from drlnb.views.distribution import measured
from tests.runtime.laws import check_laws

pytestmark = pytest.mark.cluster

SHAPE = {"n_envs": 4, "n_steps": 32, "batch_size": 64, "n_epochs": 1, "learning_rate": 1e-3, "clip_range": 0.2}


class Frozen(nn.Module):
    """Random features of a million parameters that nobody trains, and two layers that are trained."""

    def __init__(self, observation_space, action_space):
        super().__init__()
        self.lift, self.body = nn.Linear(observation_space.shape[0], 1024), nn.Linear(1024, 1024)
        for parameter in (*self.lift.parameters(), *self.body.parameters()):
            parameter.requires_grad_(False)
        self.pi, self.vf = nn.Linear(1024, int(action_space.n)), nn.Linear(1024, 1)

    def features(self, obs):
        return torch.tanh(self.body(torch.tanh(self.lift(obs))))

    def actor(self, obs):
        return self.pi(self.features(obs))

    def critic(self, obs):
        return self.vf(self.features(obs))[:, 0]


def test_a_frozen_part_of_a_policy_is_sent_once(make_bench):
    """4 MB of 4.2 stay at the host in each round but the first; the panel says so, and how long collectors waited."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    bench = make_bench()
    try:
        run = bench.start([bench.spec("a", steps=6 * 4 * 32, policy=Frozen, policy_kwargs={}, **SHAPE)])
        assert run.end()["a"]["state"] == "done"
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
    journal = check_laws(run.out)
    first, *later = journal.of(DistributionPlanned)
    assert (first.kept_bytes, len(later)) == (0, 6)
    for planned in later:
        assert planned.kept_bytes > 4_000_000
        assert planned.n_bytes - planned.kept_bytes < 300_000
    assert [event.base for event in journal.of(ParametersCommitted)] == [0, 1, 2, 3, 4, 5, 6]
    assert not journal.of(BaseMissing)
    view = measured.versions(journal)
    assert 0.0 < view.value("pause") < 60.0
    assert "hosts kept the rest" in view.sentence
