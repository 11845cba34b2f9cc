"""Who is blamed where an executor dies, and for how long a slot was under work: what a pool has seen of each."""

import pytest
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


@pytest.fixture
def pool():
    """Return a pool of two slots on a node."""
    pool = CheckedPool(LeasingSettings(), 1)
    for slot in ("n0/a", "n0/b"):
        pool.handle(slot_added(slot))
    return pool


def seen(pool, slot="n0/a"):
    """Return the failures that a slot is blamed for, and the seconds for which it was under work."""
    known = pool.state.leases.slots[slot]
    return known.n_failures, known.under_work_s(pool.state.t)


def test_an_idle_slot_shows_nothing(pool):
    """Seconds count while it is lent, in a lease that goes on, too; an expired one's drain does not."""
    lease = grant(pool, requested("a", t=10.0, home=("n0/a",)))
    pool.handle(slot_added("n9/a", t=13.0))
    assert seen(pool) == (0, 3.0)
    pool.handle(returned(lease.fence, t=15.0, clean=False))
    pool.handle(idled("n0/a", t=17.0))
    pool.handle(cancelled("none", t=100.0))
    assert seen(pool) == (0, 5.0)
    assert seen(pool, "n0/b") == (0, 0.0)


def test_the_death_of_its_executor_blames_a_slot(pool):
    """Whoever held it, or nobody; said twice it is one."""
    pool.handle(slot_failed("n0/a", t=1.0))
    pool.handle(slot_failed("n0/a", t=2.0))
    pool.handle(slot_added("n0/a", t=3.0, epoch=1))
    grant(pool, requested("a", t=4.0, home=("n0/a",)))
    pool.handle(slot_added("n0/a", t=5.0, epoch=2))  # it died, and a new one is there
    assert seen(pool) == (2, 1.0)
    assert seen(pool, "n0/b")[0] == 0


def test_deaths_in_a_row_under_one_task_count_once(pool):
    """It may be the task that kills them: another one's death counts."""
    for k, task in enumerate("aaab", 1):
        lease = grant(pool, requested(task, t=float(k), round=k, home=("n0/a",), allowed=("n0/a",)))
        pool.handle(tenant_lost("n0/a", task, t=k + 0.5, fence=lease.fence))
        if k == 3:
            assert seen(pool)[0] == 1
    assert seen(pool)[0] == 2


def test_the_loss_of_a_node_blames_its_slots(pool):
    """But for one whose executor had died before."""
    pool.handle(slot_failed("n0/a", t=1.0))
    pool.handle(node_lost("n0", t=2.0))
    assert (seen(pool)[0], seen(pool, "n0/b")[0]) == (1, 1)


def test_who_returns_a_lease_or_drains_a_slot_blames_nobody(pool):
    """A user's exception ends the work, not the executor: its lease is returned, with work in flight or not."""
    for k, clean in enumerate((True, False), 1):
        lease = grant(pool, requested("a", t=float(k), round=k, home=("n0/a",), allowed=("n0/a",)))
        pool.handle(returned(lease.fence, t=k + 0.5, clean=clean))
    pool.handle(idled("n0/a", t=3.0))
    pool.handle(setting("slot.drain", "n0/a", t=4.0))
    pool.handle(setting("slot.undrain", "n0/a", t=5.0))
    assert seen(pool) == (0, 1.0)
