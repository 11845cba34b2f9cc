"""What theory expects of shared slots, beside the same chain solved as a system of linear equations."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drlnb.planning.leasing.load import bound, expected_load


def solved(n_tasks, n_slots, d):
    """Return utilisation and inflation of the chain of k tasks at the slots, left at rate 1/d, met at 1/(1-d) each."""
    rates = np.zeros((n_tasks + 1, n_tasks + 1))
    for k in range(n_tasks):
        rates[k, k + 1] = (n_tasks - k) / (1 - d)
        rates[k + 1, k] = min(k + 1, n_slots) / d
    flow = (rates - np.diag(rates.sum(axis=1))).T
    flow[-1] = 1.0
    shares = np.linalg.solve(flow, np.eye(n_tasks + 1)[-1])
    busy = sum(min(k, n_slots) * share for k, share in enumerate(shares))
    rounds_hz = busy / d
    return busy / n_slots, n_tasks / rounds_hz


@given(st.integers(1, 9), st.integers(1, 5), st.floats(0.05, 0.9))
def test_the_formula_is_the_chains_balance(n_tasks, n_slots, d):
    """Utilisation, and by Little's law the time of a round, whose length alone is 1."""
    load = expected_load(n_tasks, n_slots, d)
    utilisation, round_s = solved(n_tasks, n_slots, d)
    assert load.utilisation_frac == pytest.approx(utilisation, rel=1e-6)
    assert load.inflation == pytest.approx(round_s, rel=1e-6)


@given(st.lists(st.floats(0.01, 0.99), min_size=1, max_size=8), st.integers(1, 9))
def test_no_slots_compute_more_than_tasks_have_to_compute(d, n_slots):
    """The bound is at most the whole, shrinks with slots, and grows with duties."""
    now = bound(d, n_slots)
    assert now == pytest.approx(min(1.0, sum(d) / n_slots))
    assert bound(d, n_slots + 1) <= now <= bound([*d, 0.5], n_slots) <= 1.0
    assert bound(sorted(d), n_slots) == now
