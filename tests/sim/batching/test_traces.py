"""Traces of contention: each family is what its name says, whoever draws it and whatever the members' speeds."""

from itertools import groupby

import numpy as np
import pytest

from drlnb.records.errors import ConfigError
from drlnb.sim.batching.traces import FAMILIES, MIXED, Contention


def _bursts(slow):
    """Lengths of the runs of slow splits that begin and end within a column."""
    runs = [(key, len(list(run))) for key, run in groupby(slow)]
    return [length for key, length in runs[1:-1] if key]


def test_static_members_have_noise_alone():
    """Speeds scatter lognormally around each member's own, by 5 %."""
    trace = Contention(family="static", n_splits=4000)
    assert not trace.slow.any()
    logs = np.log(trace.speeds_hz / np.array(MIXED))
    assert abs(logs.mean()) < 0.002
    assert logs.std() == pytest.approx(0.05, rel=0.02)


@pytest.mark.parametrize("dwell", [2, 20])
def test_memoryless_bursts_have_the_duty_and_the_dwell_asked_for(dwell):
    """12 % of splits are slow; a burst takes `dwell` splits on average."""
    trace = Contention(family="memoryless", dwell=float(dwell), speeds=(1.0,) * 64, n_splits=8000)
    assert trace.slow.mean() == pytest.approx(0.12, rel=0.05)
    lengths = [length for column in trace.slow.T for length in _bursts(column)]
    assert np.mean(lengths) == pytest.approx(dwell, rel=0.05)


def test_periodic_members_are_slow_for_two_splits_of_each_period():
    """Each has one of the periods, and phases differ."""
    trace = Contention(family="periodic", periods=(10, 13), n_splits=1000, seed=3)
    periods = set()
    for column in trace.slow.T:
        begins = np.flatnonzero(column[1:] & ~column[:-1])
        (period,) = set(np.diff(begins))
        periods.add(int(period))
        assert set(_bursts(column)) == {2}
    assert periods == {10, 13}
    assert len({int(np.flatnonzero(column)[0]) for column in trace.slow.T}) > 2


def test_a_correlated_burst_visits_the_members_one_after_the_other():
    """Two splits each, in the same order each time; pauses between bursts are 12.5 splits long on average."""
    trace = Contention(family="correlated", n_splits=20_000, seed=1)
    assert trace.slow.sum(axis=1).max() == 1
    visited = [int(row.argmax()) if row.any() else -1 for row in trace.slow]
    runs = [(member, len(list(run))) for member, run in groupby(visited)]
    orders, pauses, order = set(), [], []
    for member, length in runs[:-1]:
        if member == -1:
            pauses.append(length)
            continue
        assert length == 2
        order.append(member)
        if len(order) == len(MIXED):
            orders.add(tuple(order))
            order = []
    ((first, *others),) = orders
    assert sorted([first, *others]) == list(range(8))
    assert [first, *others] != list(range(8))
    assert np.mean(pauses) == pytest.approx(12.5, rel=0.1)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_seed_is_a_trace(family):
    """The same again; another seed is another one; who is slow when does not depend on the members' speeds."""
    trace = Contention(family=family, seed=4, n_splits=200)
    assert (trace.speeds_hz == Contention(family=family, seed=4, n_splits=200).speeds_hz).all()
    assert (trace.speeds_hz != Contention(family=family, seed=5, n_splits=200).speeds_hz).all()
    faster = Contention(family=family, seed=4, n_splits=200, speeds=tuple(3 * s for s in MIXED))
    np.testing.assert_allclose(faster.speeds_hz, 3 * trace.speeds_hz, rtol=1e-12)
    depth = trace.speeds_hz / np.array(MIXED)
    assert (depth[trace.slow] < 0.3 * 1.25).all()
    assert (depth[~trace.slow] > 0.8).all()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"family": "bursty"}, "family must be one of static, memoryless, periodic, correlated, got 'bursty'"),
        ({"speeds": ()}, r"speeds must be 1 to 64 speeds > 0 in samples per second, got \(\)"),
        ({"speeds": (100.0, 0.0)}, r"speeds must be 1 to 64 speeds > 0 .*, got \(100.0, 0.0\)"),
        ({"speeds": (float("nan"),)}, r"speeds must be .*, got \(nan,\)"),
        ({"periods": (2,)}, r"periods must be 1 to 64 whole numbers > 2, got \(2,\)"),
        ({"dwell": 0.5}, "dwell must be a number from 1 to .*, got 0.5"),
        ({"n_splits": 5}, r"n_splits must be a whole number in 10\.\.100000, got 5"),
    ],
)
def test_what_cannot_be_drawn_is_refused(wrong, message):
    """In one line, with the value."""
    with pytest.raises(ConfigError, match=message):
        Contention(**wrong)
