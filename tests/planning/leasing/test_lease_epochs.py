"""A journal tells of a later epoch than the table's: fences rise all the same, and what is held is not disturbed."""

import json

import pytest
from lease_indices import LeaseTable
from pool_words import grant, idled, made_again, of, only, renewed, requested, returned, tenant_lost

from drlnb.planning.pool import PoolMachine
from drlnb.records.columns.leasing import EpochRaised, LeaseGranted, LeaseReleased, RequestRefused, SlotFreed
from drlnb.records.ids import Fence


@pytest.fixture
def raised(make_table):
    """Return a table of epoch 1, raised to 8 while a held a slot, and its grants before and after."""
    table = make_table(["n0/a", "n0/b"])
    before = grant(table, requested("a", t=0.0))
    assert table.handle(EpochRaised(t=1.0, epoch=8)) == ()
    return table, before, grant(table, requested("b", t=2.0))


def test_grants_after_it_are_above_and_those_before_keep_their_fences(raised):
    """Tokens go on over the change; both leases are renewed and returned by the fence that their holder has."""
    table, before, after = raised
    assert (before.fence, after.fence) == (Fence(epoch=1, token=1), Fence(epoch=8, token=2))
    for lease in (before, after):
        assert table.handle(renewed(lease.fence, t=4.0)) == ()
        assert only(LeaseReleased, table.handle(returned(lease.fence, t=4.0))).fence == lease.fence


@pytest.mark.parametrize(
    ("fence", "reason"),
    [
        (Fence(epoch=7, token=1), "is of epoch 7, this table of 8"),
        (Fence(epoch=8, token=1), "was never granted"),
        (Fence(epoch=1, token=2), "was never granted"),
        (Fence(epoch=8, token=3), "was never granted"),
    ],
)
def test_a_token_belongs_to_the_epoch_of_its_grant(raised, fence, reason):
    """Neither a later nor an earlier epoch with the same token is anybody's."""
    table, _, _ = raised
    assert table.handle(returned(fence, t=3.0)) == (RequestRefused(subject=str(fence), reason=reason),)


def test_what_is_over_is_told_apart_by_its_epoch(raised):
    """A second return under the former epoch's fence is a repeat, not a stranger's."""
    table, before, _ = raised
    table.handle(returned(before.fence, t=3.0))
    assert only(RequestRefused, table.handle(returned(before.fence, t=4.0))).reason == "is over"


def test_a_slot_that_drains_from_a_former_epoch_is_freed_by_its_fence(raised):
    """The later fence of the same token frees it not."""
    table, before, _ = raised
    table.handle(returned(before.fence, t=3.0, clean=False))
    assert of(SlotFreed, table.handle(idled("n0/a", t=4.0, fence=Fence(epoch=8, token=1)))) == []
    assert table.handle(tenant_lost("n0/a", "a", t=4.0, fence=before.fence)) == ()
    assert table.handle(idled("n0/a", t=5.0, fence=before.fence)) == (SlotFreed(slot="n0/a"),)


def test_an_epoch_that_is_not_later_is_refused(raised):
    """The state stays as it is."""
    table, _, _ = raised
    for epoch in (8, 7):
        said = RequestRefused(subject="epoch", reason=f"{epoch} is not above 8")
        assert table.handle(EpochRaised(t=3.0, epoch=epoch)) == (said,)
    assert table.state.epoch == 8


def test_a_snapshot_remembers_the_former_epochs(raised):
    """A copy of it knows the same fences."""
    table, before, after = raised
    copy = LeaseTable(table.state.settings, 8)
    copy.restore(json.loads(json.dumps(table.snapshot())))
    assert copy.snapshot() == table.snapshot()
    for event in (renewed(before.fence, t=3.0), returned(after.fence, t=4.0), requested("c", t=5.0)):
        assert copy.handle(event) == table.handle(event)


def test_a_pools_header_tells_the_epoch_as_it_is(raised):
    """So that a stream which begins later can be replayed by itself."""
    pool = PoolMachine(raised[0].state.settings, epoch=1)
    pool.handle(EpochRaised(t=0.0, epoch=8))
    assert (pool.epoch, pool.config["epoch"]) == (8, 8)
    copy = made_again(pool)
    copy.restore(pool.snapshot())
    assert copy.snapshot() == pool.snapshot()


def test_the_grant_that_is_repeated_has_its_own_epoch(raised):
    """A repeat of the request gets the fence that was granted, not a newer one."""
    table, before, _ = raised
    again = table.handle(requested("a", t=3.0))
    assert of(LeaseGranted, again) == []
    assert [record.fence for record in again] == [before.fence]
