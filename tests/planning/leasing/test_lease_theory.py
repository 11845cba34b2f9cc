"""The theory of shared slots by hand: the bound and the machine repairman."""

import pytest

from drlnb.planning.leasing.load import bound, expected_load


def test_two_tasks_one_slot_by_hand():
    """T=2, K=1, d=.5: weights 1, 2, 2; the slot works 4/5 of the time; rounds take 2 x .5 / .8 = 1.25 as long."""
    load = expected_load(n_tasks=2, n_slots=1, d=0.5)
    assert load.utilisation_frac == pytest.approx(0.8)
    assert load.inflation == pytest.approx(1.25)
    assert load.bound_frac == 1.0


@pytest.mark.parametrize(
    ("n_tasks", "n_slots", "share_of_bound", "inflation"),
    [
        (4, 1, 0.8617, 1.1606),
        (8, 2, 0.9162, 1.0914),
        (16, 4, 0.9543, 1.0479),
        (5, 1, 0.8009, None),
        (10, 2, 0.8543, None),
        (20, 4, 0.8946, None),
    ],
)
def test_goldens(n_tasks, n_slots, share_of_bound, inflation):
    """Machine repairman at d = .2, worked out elsewhere."""
    load = expected_load(n_tasks, n_slots, 0.2)
    assert load.utilisation_frac / load.bound_frac == pytest.approx(share_of_bound, abs=5e-5)
    if inflation is not None:
        assert load.inflation == pytest.approx(inflation, abs=5e-5)


def test_a_slot_each_means_no_waiting():
    """With as many slots as tasks nobody waits: utilisation d, inflation 1."""
    load = expected_load(n_tasks=3, n_slots=3, d=0.3)
    assert (load.utilisation_frac, load.inflation) == (pytest.approx(0.3), pytest.approx(1.0))


def test_many_tasks_stay_finite():
    """A thousand tasks overflow no float, and keep both slots busy."""
    assert expected_load(n_tasks=1000, n_slots=2, d=0.2).utilisation_frac == pytest.approx(1.0)


def test_bound_is_the_sum_of_duties_per_slot():
    """Unequal duties add up; more than the slots have is cut."""
    assert bound([0.1, 0.3, 0.5], n_slots=2) == pytest.approx(0.45)
    assert bound([0.9, 0.9], n_slots=1) == 1.0
    assert bound([], n_slots=1) == 0.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bound([0.5, 1.0], 1), r"d\[1\] must be in \(0, 1\), got 1.0"),
        (lambda: bound([0.5], 0), "n_slots must be >= 1, got 0"),
        (lambda: expected_load(0, 1, 0.5), "n_tasks must be >= 1, got 0"),
        (lambda: expected_load(1, -1, 0.5), "n_slots must be >= 1, got -1"),
        (lambda: expected_load(1, 1, 0.0), r"d\[0\] must be in \(0, 1\), got 0.0"),
        (lambda: expected_load(1, 1, float("nan")), r"d\[0\] must be in \(0, 1\), got nan"),
    ],
)
def test_bad_arguments(call, message):
    """Argument, limit and value are named."""
    with pytest.raises(ValueError, match=message):
        call()
