"""Batches to train on, and trainings that are called by their names."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from drlnb.learned.placement.playing import makespan_s
from drlnb.planning.placement import GANGS, Cluster
from drlnb.planning.placement.rules import random_rule
from drlnb.sim.placement import Conditions, FaultModel, load_trace
from drlnb.sim.placement.training import Site, any_batches, batches_of, patent_for

SMALL = Cluster.uniform(1, 3)
FAILING = Site(SMALL, FaultModel(mtbf_days=1.0), Conditions(), 0)


@pytest.fixture(scope="module")
def trace():
    return load_trace()


def test_a_batch_is_the_same_jobs_and_faults_each_time(trace):
    """Whoever plays it; and a seed is a sequence of batches."""
    rng = np.random.default_rng
    first, again = (next(batches_of(trace, FAILING, rng(s))) for s in (3, 3))
    ends = [makespan_s(batch, GANGS.build("ect")) for batch in (first, first, again)]
    assert ends[0] == ends[1] == ends[2]
    makespan_s(first, random_rule(5))
    assert makespan_s(first, GANGS.build("ect")) == ends[0]


def test_batches_of_a_cluster_differ_in_jobs_and_faults(trace):
    """The rates stay: slots keep their numbers' luck."""
    batches = batches_of(trace, FAILING, np.random.default_rng(0))
    views = [next(batch.play()) for batch in itertools.islice(batches, 4)]
    assert len({view.rate_hz for view in views}) == 1
    assert len({view.window for view in views}) > 1
    assert all(len(view.window) == 1 for view in views)


def test_any_batches_are_of_many_clusters_and_terms(trace):
    """Of four batches three show several jobs; every gang fits."""
    some = list(itertools.islice(any_batches(trace, 0), 12))
    assert [batch.window for batch in some] == [False, True, True, True] * 3
    views = [next(batch.play()) for batch in some]
    assert len({view.cluster.n_slots for view in views}) > 2
    assert len({view.terms for view in views}) > 2
    assert len({view.rate_hz for view in views}) == 12


@pytest.mark.parametrize("n_slots", [1, 2, 3])
def test_a_pool_of_any_size_has_its_patent(n_slots, monkeypatch):
    """Trained for so many slots, it gives plans there; gangs of all slots are among what it is trained on."""
    monkeypatch.setattr("drlnb.sim.placement.training.BEFORE_RUN_S", 0.05)
    names = tuple([f"n0/cpu{i}" for i in range(n_slots)])
    planner = patent_for(names)
    site = Site(Cluster.uniform(1, n_slots), FaultModel(), Conditions(), 0)
    view = replace(next(next(batches_of(load_trace(), site, np.random.default_rng(0))).play()), names=names)
    assert set(GANGS.ask(planner, view).slots) <= set(range(n_slots))
