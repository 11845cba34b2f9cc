"""Planners on the networks that travel with the package, beside each other and beside what knows nothing (bar C7)."""

import itertools

import numpy as np
import pytest

from benchmarks.swapping import contest
from benchmarks.swapping.contest import costs_of_types, first_met, gray_sweep, random_walk
from benchmarks.swapping.rivals import planner_of
from benchmarks.swapping.trials import learn
from drlnb.planning.swapping import SWAPPING
from drlnb.planning.swapping.cost import predict
from drlnb.planning.swapping.learned import QTable, cost, predicted_cost, swapped_types
from drlnb.planning.swapping.profile import KEEP, SWAP
from drlnb.planning.swapping.search import Search

#: Network -> multiples of the batch that fits without a plan.
CONTESTS = {
    "resnet50_32": (1.4, 1.7, 2.0, 3.0),
    "vgg16_224": (1.4,),
    "alexnet_224": (1.4,),
    "impala": (1.4, 2.0),
    "transformer": (1.4, 2.0),
}


def view_of(name, multiple, device="2080ti"):
    """Return a step of a network, at a multiple of the batch that fits without a plan."""
    return contest.view_of(name, multiple, device)[1]


def come_to(view, name):
    """Return what a planner's plan is expected to come to: whether it fits, and the seconds of a step."""
    said = predict(view.profile, SWAPPING.ask(planner_of(name), view), view.n_samples, view.memory_budget_bytes)
    return said.fits, said.step_s


@pytest.mark.slow
@pytest.mark.parametrize("device", ["2080ti", "h200_tf32"])
@pytest.mark.parametrize(("net", "multiple"), [(net, each) for net, each_of in CONTESTS.items() for each in each_of])
def test_no_planner_beats_the_search(net, multiple, device):
    """At every network and multiple; where any plan fits, its plan does."""
    view = view_of(net, multiple, device)
    fits, step_s = come_to(view, "hybrid")
    for name in ("all", "vdnn_conv", "vdnn_all", "types_exhaustive", "capuchin", "greedy", "capuchin:actions=swap"):
        other_fits, other_s = come_to(view, name)
        assert fits or not other_fits
        assert not other_fits or step_s <= other_s + 1e-9, name
    assert come_to(view, "auto") == (fits, step_s)


@pytest.mark.thorough
def test_more_actions_are_never_slower():
    """Of those that fit: what the search may do more, it need not do."""
    view = view_of("impala", 1.6)
    swap, mix, every = (come_to(view, f"hybrid:actions={actions}") for actions in ("swap", "swap+derive", "all"))
    assert swap[0]
    assert every[0]
    assert every[1] <= mix[1] + 1e-9 <= swap[1] + 2e-9


def test_a_step_that_fits_keeps_everything():
    """Whatever the network (bar G5)."""
    for net in CONTESTS:
        view = view_of(net, 1.0)
        assert SWAPPING.ask(SWAPPING.build("auto"), view).key is None


def test_squeezing_alone_holds_more_where_little_is_read():
    """The frames' networks save what is never read again: batches beyond plain at no cost in time."""
    view = view_of("impala", 1.3)
    fits, step_s = come_to(view, "hybrid:actions=squeeze")
    assert fits
    work_s = predict(view.profile, SWAPPING.build("none").plan(view), view.n_samples).step_s
    assert step_s == pytest.approx(work_s)


# ------------------------------------------------------------------ the patent's learner
def table_of(view, w=0.5):
    """Return the costs of all sets of layer types."""
    return costs_of_types((view.profile, view), w)


@pytest.mark.parametrize("net", ["resnet50_32", "impala", "alexnet_32"])
def test_the_table_visits_the_best_set_of_types(net):
    """In nearly all of twenty seeds, within three hundred trials; the plan chosen at the end is told apart (bar C7)."""
    n_types, costs = table_of(view_of(net, 1.6))
    results = [
        learn(QTable(n_types=n_types), costs.__getitem__, 300, np.random.default_rng(seed)) for seed in range(20)
    ]
    visited = [costs[each.best] <= costs.min() + 1e-12 for each in results]
    assert sum(visited) >= 19
    chosen = [costs[each.chosen] <= costs.min() + 1e-12 for each in results]
    assert sum(chosen) <= sum(visited), "it never rests, so what it chooses last need not be the best"


@pytest.mark.slow
def test_trials_to_find_beside_what_knows_nothing():
    """A hundred seeds on ResNet-50: all three find the best set within three hundred trials, by median."""
    n_types, costs = table_of(view_of("resnet50_32", 1.7))
    found = {"table": [], "random": []}
    for seed in range(100):
        generator = np.random.default_rng(seed)
        found["table"].append(learn(QTable(n_types=n_types), costs.__getitem__, 300, generator).found_at)
        found["random"].append(first_met(random_walk(n_types, 300, generator), costs))
    sweep = first_met(gray_sweep(n_types), costs)
    assert sweep <= 2**n_types
    assert np.median(found["table"]) <= 2**n_types * 2
    assert np.median(found["random"]) <= 300


def test_a_sweep_meets_every_set_once():
    """One type changes at a time: the yardstick is sound."""
    plans = list(gray_sweep(4))
    assert sorted(plans) == list(range(16))
    assert all((a ^ b).bit_count() == 1 for a, b in itertools.pairwise(plans))
    walk = list(random_walk(4, 50, np.random.default_rng(0)))
    assert all((a ^ b).bit_count() == 1 for a, b in itertools.pairwise(walk))


def test_learning_on_a_part_of_the_data_is_kept():
    """A table that has learned the plan needs fewer trials afterwards than one that has not, by median."""
    n_types, costs = table_of(view_of("impala", 1.6))
    fresh, trained = [], []
    for seed in range(20):
        generator = np.random.default_rng(seed)
        table = QTable(n_types=n_types)
        learn(table, costs.__getitem__, 240, generator)
        after = learn(table, costs.__getitem__, 60, generator)
        before = learn(QTable(n_types=n_types), costs.__getitem__, 60, generator)
        trained.append(np.mean(after.costs))
        fresh.append(np.mean(before.costs))
    assert np.median(trained) <= np.median(fresh) + 0.02


def test_the_weight_moves_the_optimum():
    """A heavier weight of memory never asks for a larger peak, nor a lighter one for a slower step."""
    view = view_of("impala", 0.9)
    search = Search(view, (SWAP,))
    seconds, peaks = [], []
    for w in (0.0, 0.5, 1.0):
        n_types, costs = table_of(view, w)
        walk = search.numbers.walk(swapped_types(search, int(np.argmin(costs))).actions, (), search.room)
        seconds.append(walk.t)
        peaks.append(walk.peak)
        assert len(costs) == 2**n_types
    assert seconds == sorted(seconds)
    assert peaks == sorted(peaks, reverse=True)
    kept = search.every(KEEP)
    assert predicted_cost(search, kept, 0.0) == pytest.approx(cost(1.0, 1.0, 0.0))
