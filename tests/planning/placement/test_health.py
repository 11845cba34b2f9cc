"""How often each slot is expected to fail, by what was seen of it under work."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lease_indices import CheckedPool
from pool_words import (
    cancelled,
    grant,
    idled,
    node_lost,
    requested,
    returned,
    setting,
    slot_added,
    slot_failed,
    tenant_lost,
)

from drlnb.planning.leasing.settings import LeasingSettings
from drlnb.planning.placement.health import Seen, failure_rates

DAY_S = 86_400.0


def test_without_a_failure_nothing_is_expected_of_any_slot():
    """Nor before anything was seen under work."""
    assert failure_rates({"a": Seen("n0", 0, DAY_S), "b": Seen("n1", 0, 0.0)}) == {"a": 0.0, "b": 0.0}
    assert failure_rates({"a": Seen("n0", 3, 0.0)}) == {"a": 0.0}
    assert failure_rates({}) == {}


def test_rates_by_hand():
    """One failure in 3 days of three slots: the prior is .8 failures in 2.4 days."""
    seen = {"n0/a": Seen("n0", 1, DAY_S), "n0/b": Seen("n0", 0, DAY_S), "n1/a": Seen("n1", 0, DAY_S)}
    rates = {slot: rate * DAY_S for slot, rate in failure_rates(seen).items()}
    of_n0, of_n1 = 1.8 / (2.4 + 2.0), 0.8 / (2.4 + 1.0)
    assert rates["n0/a"] == pytest.approx(0.7 * of_n0 + 0.3 * 1.8 / 3.4)
    assert rates["n0/b"] == pytest.approx(0.7 * of_n0 + 0.3 * 0.8 / 3.4)
    assert rates["n1/a"] == pytest.approx(0.7 * of_n1 + 0.3 * 0.8 / 3.4)


slots = st.builds(Seen, st.sampled_from(["n0", "n1"]), st.integers(0, 5), st.floats(1.0, 1e7))


@given(st.lists(slots, min_size=2, max_size=6), st.floats(1.1, 10.0))
def test_more_failures_are_worse_and_more_time_is_better(seen, more):
    """Of two slots of a node, and of all of them if all had more time; everything in other units is the same."""
    seen = {str(i): each for i, each in enumerate(seen)}
    rates = failure_rates(seen)
    for slot, each in seen.items():
        for other, rate in ((seen[name], rates[name]) for name in seen):
            if other.node == each.node and other.n_failures > each.n_failures and other.exposure_s <= each.exposure_s:
                assert rate > rates[slot]
    longer = failure_rates({slot: Seen(s.node, s.n_failures, s.exposure_s * more) for slot, s in seen.items()})
    assert longer == pytest.approx({slot: rate / more for slot, rate in rates.items()})


# -------------------------------------------------------------------- what a pool has seen
@pytest.fixture
def pool():
    """Return a pool of two slots on a node."""
    pool = CheckedPool(LeasingSettings(), 1)
    for slot in ("n0/a", "n0/b"):
        pool.handle(slot_added(slot))
    return pool


def seen(pool, slot="n0/a"):
    return pool.state.known.seen[slot]


def test_an_idle_slot_shows_nothing(pool):
    """Seconds count while it is lent, in a lease that goes on, too; an expired one's drain does not."""
    lease = grant(pool, requested("a", t=10.0, home=("n0/a",)))
    pool.handle(slot_added("n9/a", t=13.0))
    assert seen(pool) == Seen("n0", 0, 3.0)
    pool.handle(returned(lease.fence, t=15.0, clean=False))
    pool.handle(idled("n0/a", t=17.0))
    pool.handle(cancelled("none", t=100.0))
    assert seen(pool) == Seen("n0", 0, 5.0)
    assert seen(pool, "n0/b") == Seen("n0", 0, 0.0)


def test_the_death_of_its_executor_blames_a_slot(pool):
    """Whoever held it, or nobody; said twice it is one."""
    pool.handle(slot_failed("n0/a", t=1.0))
    pool.handle(slot_failed("n0/a", t=2.0))
    pool.handle(slot_added("n0/a", t=3.0, epoch=1))
    grant(pool, requested("a", t=4.0, home=("n0/a",)))
    pool.handle(slot_added("n0/a", t=5.0, epoch=2))  # it died, and a new one is there
    assert seen(pool) == Seen("n0", 2, 1.0)
    assert seen(pool, "n0/b").n_failures == 0


def test_deaths_in_a_row_under_one_task_count_once(pool):
    """It may be the task that kills them: another one's death counts."""
    for k, task in enumerate("aaab", 1):
        lease = grant(pool, requested(task, t=float(k), round=k, home=("n0/a",), allowed=("n0/a",)))
        pool.handle(tenant_lost("n0/a", task, t=k + 0.5, fence=lease.fence))
        if k == 3:
            assert seen(pool).n_failures == 1
    assert seen(pool).n_failures == 2


def test_the_loss_of_a_node_blames_its_slots(pool):
    """But for one whose executor had died before."""
    pool.handle(slot_failed("n0/a", t=1.0))
    pool.handle(node_lost("n0", t=2.0))
    assert (seen(pool).n_failures, seen(pool, "n0/b").n_failures) == (1, 1)


def test_who_returns_a_lease_or_drains_a_slot_blames_nobody(pool):
    """A user's exception ends the work, not the executor: its lease is returned, with work in flight or not."""
    for k, clean in enumerate((True, False), 1):
        lease = grant(pool, requested("a", t=float(k), round=k, home=("n0/a",), allowed=("n0/a",)))
        pool.handle(returned(lease.fence, t=k + 0.5, clean=clean))
    pool.handle(idled("n0/a", t=3.0))
    pool.handle(setting("slot.drain", "n0/a", t=4.0))
    pool.handle(setting("slot.undrain", "n0/a", t=5.0))
    assert seen(pool) == Seen("n0", 0, 1.0)
