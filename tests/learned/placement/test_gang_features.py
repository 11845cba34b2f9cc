"""What the network sees: by hand on two nodes of four, and that numbers of slots and masked slots change nothing."""

import math
from dataclasses import replace

import numpy as np
import pytest

from drlnb.learned.placement.features import BY_RULE, N_JOB, N_SLOT, Gang, Seen, job_rows
from drlnb.learned.placement.network import Network
from drlnb.learned.placement.planner import Learned, steps
from drlnb.learned.placement.train import new_network, weights_of
from drlnb.planning.placement import JobView, Terms
from drlnb.planning.placement.ect import ect
from tests.batches import view_of

NODES = (0, 0, 0, 0, 1, 1, 1, 1)
RATES = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28)


@pytest.fixture(scope="module")
def network():
    """One that was not trained: all that it is asked for holds of any weights."""
    import torch

    torch.manual_seed(0)
    return Network(weights_of(new_network()))


def _shuffled(view, order):
    """Return the view with slot i in the place of slot order[i] before."""
    pick = lambda values: tuple(values[k] for k in order)  # noqa: E731
    cluster = replace(view.cluster, node_of=pick(view.cluster.node_of))
    return replace(view, cluster=cluster, state=pick(view.state), rate_hz=pick(view.rate_hz))


def test_rows_of_slots_by_hand():
    """A gang of three on two nodes of four, one slot busy: what can be counted by eye."""
    state = ("busy", *["free"] * 7)
    view = view_of(RATES, nodes=NODES, state=state, jobs=[(3, 7200.0)], terms=Terms(locality_frac=0.05))
    gang = Gang(Seen(view), view.window[0])
    rows = gang.rows()
    assert rows.shape == (7, N_SLOT)
    # node 0 has just the three that are wanted, and the healthiest: every candidate is there
    assert rows[:, BY_RULE].tolist() == [1, 1, 1, 0, 0, 0, 0]
    mean = sum(map(math.log, RATES)) / 8
    np.testing.assert_allclose(rows[:, 4], [math.log(rate) - mean for rate in RATES[1:]])
    np.testing.assert_allclose(rows[:, 8], [1, 1, 1, 4 / 3, 4 / 3, 4 / 3, 4 / 3])
    assert rows[:, 9].tolist() == [1, 1, 1, 0, 0, 0, 0]  # holds the rest exactly
    assert rows[:, 10].tolist() == [0, 0, 0, 1, 1, 1, 1]  # and more than it
    gang.take(0)
    rows = gang.rows()
    assert len(rows) == 6
    assert rows[:, 9].tolist() == [1, 1, 0, 0, 0, 0]  # two are missing, two are left there
    np.testing.assert_allclose(rows[:, 12], [1 / 3, 1 / 3, 0, 0, 0, 0])  # chosen on this node
    assert rows[:, 13].tolist() == [0, 0, 1, 1, 1, 1]  # and on another one
    assert gang.chosen == [1]
    assert gang.n_missing == 2


def test_rows_of_jobs_by_hand():
    """The second is the largest; the third needs both nodes; waiting is a row of its own."""
    view = view_of(RATES, nodes=NODES, jobs=[(1, 3600.0), (4, 7200.0), (6, 60.0)])
    rows = job_rows(Seen(view), waits=True)
    assert rows.shape == (4, N_JOB)
    np.testing.assert_allclose(rows[:, BY_RULE], [(1 / 8) ** 2, 1, (1 / 80) ** 2, 0])  # slot seconds beside the largest
    assert rows[:, 1].tolist() == [1 / 8, 0, 2 / 8, 0]
    assert rows[:, 2].tolist() == [0, 1, 0, 0]
    assert rows[:, 10].tolist() == [1, 1, 0, 0]  # one node holds it
    assert rows[:, 14].tolist() == [0, 0, 0, 1]
    np.testing.assert_allclose(rows[:3, 7], [1 / 8, 4 / 8, 6 / 8])  # of the free slots


def test_by_young_it_sees_the_interval_of_slots_of_mean_health():
    """Slots that fail once in 72,000 s, checkpoints of 10 s: as if each job of one slot saved in 1,200 s."""
    young, same = (
        view_of([86_400 / 72_000] * 8, nodes=NODES, jobs=[(1, 7200.0)], terms=terms)
        for terms in (Terms(checkpoint_s=None, young=True), Terms(checkpoint_s=1200.0))
    )
    np.testing.assert_allclose(job_rows(Seen(young), waits=False), job_rows(Seen(same), waits=False))
    rows = [Gang(Seen(view), view.window[0]).rows() for view in (young, same)]
    np.testing.assert_allclose(*rows)


def test_columns_are_within_a_few_units():
    """Extremes: slots that never fail, a job that cannot end, the largest clusters."""
    for rates, job in (
        ([0.0] * 4, (4, 1.0)),
        ([50.0] * 64, (32, 1e7)),
        ([1e-3] * 512, (256, 86_400.0)),
    ):
        view = view_of(rates, jobs=[job, (1, 60.0)], terms=Terms(checkpoint_s=None, locality_frac=0.15))
        seen = Seen(view)
        for rows in (job_rows(seen, waits=True), Gang(seen, view.window[0]).rows()):
            assert np.isfinite(rows).all()
            assert np.abs(rows).max() < 12


def test_an_order_of_slots_changes_the_numbers_alone(network):
    """Rates all differ, so no tie hides behind the order."""
    rng = np.random.default_rng(3)
    planner = Learned(network=network)
    for _ in range(20):
        rates = rng.uniform(0.01, 1.0, 12).tolist()
        state = rng.choice(["free", "free", "busy", "failed"], 12).tolist()
        jobs = [(2, 3600.0), (1, 900.0), (3, 40_000.0)]
        state[:4] = ["free"] * 4
        view = view_of(rates, nodes=(0, 1, 2) * 4, state=state, jobs=jobs, terms=Terms(locality_frac=0.05))
        order = rng.permutation(12).tolist()
        mine, moved = planner.plan(view), planner.plan(_shuffled(view, order))
        if mine is None:
            assert moved is None
        else:
            assert moved.job == mine.job
            assert sorted(order[slot] for slot in moved.slots) == sorted(mine.slots)


def test_masked_slots_change_nothing(network):
    """Eight more slots that are kept out of use, on nodes of their own: the same logits and the same plan."""
    view = view_of(RATES, nodes=NODES, state=["free"] * 7 + ["busy"], jobs=[(3, 7200.0), (2, 60.0)])
    more = view_of(
        [*RATES, *[3.0] * 8],
        nodes=(*NODES, *[2] * 4, *[3] * 4),
        state=(*view.state, *["masked"] * 8),
        jobs=[(3, 7200.0), (2, 60.0)],
    )
    for each in ("jobs", "slots"):
        rows = [
            job_rows(Seen(v), waits=True) if each == "jobs" else Gang(Seen(v), v.window[0]).rows() for v in (view, more)
        ]
        np.testing.assert_allclose(network.logits(each, rows[:1]), network.logits(each, rows[1:]), atol=1e-12)
    assert Learned(network=network).plan(view) == Learned(network=network).plan(more)


def test_what_has_one_answer_is_not_asked():
    """One job that needs all free slots is placed without a question; a task of a fleet could not wait."""
    view = view_of(RATES, nodes=NODES, state=["busy"] * 6 + ["free"] * 2, jobs=[(2, 600.0)])
    with pytest.raises(StopIteration) as ended:
        next(steps(view))
    assert ended.value.value.slots == (6, 7)


def test_nobody_waits_on_an_idle_cluster():
    """Nothing would ever change: there is no row of waiting, and one as soon as a slot is busy."""
    jobs = [(2, 600.0), (1, 600.0)]
    idle, busy = view_of(RATES, jobs=jobs), view_of(RATES, state=["busy", *["free"] * 7], jobs=jobs)
    assert [len(next(steps(view)).rows) for view in (idle, busy)] == [2, 3]


def test_slots_that_a_job_holds_stay_and_pull_the_others_to_their_node():
    """A gang of three that kept two slots of node 1: one is added, and the two come first."""
    view = view_of(RATES, nodes=NODES, state=["free"] * 6 + ["busy"] * 2, terms=Terms(locality_frac=0.5))
    job = JobView(job="a", n_slots=3, work_s=3600.0, started=True, kept=(6, 7))
    view = replace(view, window=(job,))
    gang = Gang(Seen(view), job)
    rows = gang.rows()
    np.testing.assert_allclose(rows[:, 12], [0, 0, 0, 0, 2 / 3, 2 / 3])
    assert {4 if row == 4 else row for row in np.flatnonzero(rows[:, BY_RULE])} == set(ect(view, job))
    gang.take(4)
    assert gang.chosen == [6, 7, 4]
