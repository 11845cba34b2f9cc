"""A gang computes each minibatch together: every member makes the steps of one learner, whatever its part."""

import threading
from dataclasses import replace

import numpy as np
import pytest
import torch

from drlnb.rl.algorithms.registry import make_learner
from drlnb.rl.collecting.collector import Collector, split_envs

#: Another optimiser, whose state counts.
MOMENTUM = {"optimizer_class": "SGD", "optimizer_kwargs": {"momentum": 0.9}}


class Gang:
    """Members in threads that meet at each sum; a member's part is in proportion to its size."""

    def __init__(self, sizes):
        self.sizes, self.meeting = sizes, threading.Barrier(len(sizes))
        self.parts = [None] * len(sizes)

    def member(self, number):
        return Member(self, number)


class Member:
    def __init__(self, gang, number):
        self.gang, self.number = gang, number

    def own(self, n_samples):
        ends = np.cumsum([0, *self.gang.sizes]) / sum(self.gang.sizes) * n_samples
        start, stop = np.round(ends).astype(int)[self.number : self.number + 2]
        return int(start), int(stop)

    def add_up(self, gradient, statistics):
        self.gang.parts[self.number] = gradient.clone(), statistics.clone()
        self.gang.meeting.wait(30)
        for i, sum_ in enumerate((gradient, statistics)):
            sum_.copy_(sum(part[i] for part in self.gang.parts))
        self.gang.meeting.wait(30)


def collected(spec):
    """Return a round's fragments of two collectors."""
    parameters, found = make_learner(spec).published(), []
    for share in split_envs(spec.n_envs, 2):
        collector = Collector(spec, env_indices=share)
        found.append(collector.collect(parameters, version=1, round=1, n_steps=16))
        collector.close()
    return found


def finished(spec, fragments, sizes, by_hand=True):
    """Make a round by members of some sizes; return each one's learner and metrics."""
    gang = Gang(sizes)
    learners = [type(make_learner(spec))(spec, by_hand=by_hand) for _ in sizes]
    metrics = [None] * len(sizes)

    def work(number):
        learner = learners[number]
        learner.shared = gang.member(number) if len(sizes) > 1 else None
        learner.begin(1, 64)
        for worker, fragment in enumerate(fragments):
            learner.stage(worker, fragment)
        metrics[number] = learner.finish()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(sizes))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return learners, metrics


@pytest.mark.parametrize("by_hand", [True, False])
@pytest.mark.parametrize(
    "hyper",
    [
        {"algo": "ppo", "ent_coef": 0.01, "clip_range_vf": 0.2, "max_grad_norm": 0.05},
        {"algo": "ppo", "normalize_advantage": False, "normalize": True},
        {"algo": "gpf", "reward_scale": 0.1, "n_action_samples": 5},
        pytest.param({"algo": "ppo", "learning_rate": 0.01, "policy_kwargs": MOMENTUM}, marks=pytest.mark.thorough),
    ],
    ids=["ppo", "ppo normalised", "gpf", "ppo momentum"],
)
@pytest.mark.parametrize("sizes", [(3, 1), (0, 1), (5, 2, 1)])
def test_a_minibatch_that_is_shared_makes_the_step_of_one_learner(sizes, hyper, by_hand, make_spec):
    """To 1e-6, also with shares of nothing; advantages are those of the whole minibatch, the gradient is clipped once.

    All members have the same bits afterwards.  A learner whose members normalise advantages over their own samples,
    or clip their own gradients, is off by a hundred times more.
    """
    spec = make_spec(**{name: value for name, value in hyper.items() if name != "algo"})
    spec = replace(spec, algo=hyper["algo"])
    fragments = collected(spec)
    (alone,), (expected,) = finished(spec, fragments, (1,), by_hand)
    learners, metrics = finished(spec, fragments, sizes, by_hand)
    assert (alone.adam.flat - make_learner(spec).adam.flat).abs().max() > 1e-4, "it has learnt"
    for learner, told in zip(learners, metrics, strict=True):
        torch.testing.assert_close(learner.adam.flat, alone.adam.flat, atol=1e-6, rtol=0)
        assert told == pytest.approx(expected, rel=1e-4, abs=1e-6)
        assert learner.state()[1].tobytes() == learners[0].state()[1].tobytes()


def test_the_kl_of_the_whole_minibatch_ends_the_round(make_spec):
    """All members stop at the same minibatch."""
    spec = make_spec(target_kl=1e-4, learning_rate=0.05, n_epochs=5)
    fragments = collected(spec)
    (alone,), _ = finished(spec, fragments, (1,))
    learners, metrics = finished(spec, fragments, (3, 1))
    assert alone.kept.n_updates < 5
    assert [learner.kept.n_updates for learner in learners] == [alone.kept.n_updates] * 2
    assert metrics[0] == metrics[1]
