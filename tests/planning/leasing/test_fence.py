"""Gates of executors and stores refuse work under a fence that is no longer the newest."""

import json

import pytest

from drlnb.planning.codec import from_plain, to_plain
from drlnb.planning.leasing.fence import FenceGate, StoreGate
from drlnb.records.ids import Fence


def fence(token, epoch=1):
    return Fence(epoch=epoch, token=token)


def test_an_executor_takes_no_work_below_the_highest_fence():
    """Many submissions under one fence, and a gap, are fine; what is below the highest is not."""
    gate = FenceGate()
    assert [gate.admit(fence(token)) for token in (2, 2, 5)] == [None, None, None]
    assert gate.admit(fence(4)) == "fence #4 of epoch 1 is below the highest seen, #5 of epoch 1"
    assert gate.admit(fence(5)) is None


def test_a_later_epoch_is_above_every_token_of_an_earlier_one():
    """Fences of a table that was started anew win, though its tokens start at 1."""
    gate = FenceGate()
    gate.admit(fence(900, epoch=1))
    assert gate.admit(fence(1, epoch=2)) is None
    assert gate.admit(fence(901, epoch=1)) == "fence #901 of epoch 1 is below the highest seen, #1 of epoch 2"


def test_a_store_commits_versions_in_order():
    """Only committed + 1 is admitted: no repeat, no gap."""
    gate = StoreGate(version=3)
    assert gate.admit(fence(1), 1, 5) == "version 5 does not follow the committed version 3"
    assert gate.admit(fence(1), 1, 4) is None
    assert gate.admit(fence(1), 1, 4) == "version 4 does not follow the committed version 4"
    assert gate.version == 4


def test_a_store_refuses_lower_attempts_and_fences():
    """A master or a holder that was replaced cannot commit, even the right version."""
    gate = StoreGate()
    assert gate.admit(fence(5), 2, 1) is None
    assert gate.admit(fence(6), 1, 2) == "attempt 1 is older than attempt 2"
    assert gate.admit(fence(4), 2, 2) == "fence #4 of epoch 1 is below the highest seen, #5 of epoch 1"
    assert gate.admit(fence(5), 2, 2) is None


def test_a_store_that_knows_of_a_newer_grant_refuses_the_former_holder():
    """The fence counts from the grant, not from its first commit."""
    gate = StoreGate()
    gate.admit(fence(5), 1, 1)
    assert gate.learn(fence(7), 1) is None
    assert gate.admit(fence(5), 1, 2) == "fence #5 of epoch 1 is below the highest seen, #7 of epoch 1"
    assert gate.learn(fence(6), 1) == "fence #6 of epoch 1 is below the highest seen, #7 of epoch 1"
    assert gate.version == 1


def test_parameters_are_carried_in_order_and_by_the_newest_attempt():
    """A version without a lease follows the committed one; a replaced master is refused; fences go on as before."""
    gate = StoreGate()
    gate.admit(fence(5), 2, 1)
    assert gate.carry(2, 3) == "version 3 does not follow the committed version 1"
    assert gate.carry(1, 2) == "attempt 1 is older than attempt 2"
    assert gate.carry(2, 2) is None
    assert gate.version == 2
    assert gate.admit(fence(4), 2, 3) == "fence #4 of epoch 1 is below the highest seen, #5 of epoch 1"
    assert gate.admit(fence(5), 2, 3) is None


@pytest.mark.parametrize("make", [FenceGate, StoreGate])
def test_fresh_gates_survive_json(make):
    """A gate that saw nothing still admits everything after a restore."""
    assert from_plain(make, json.loads(json.dumps(to_plain(make())))) == make()


def test_restored_gates_refuse_what_the_old_ones_refused():
    """The highest fence, the attempt and the version are all kept."""
    executor, store = FenceGate(), StoreGate()
    executor.admit(fence(3))
    store.admit(fence(3), 2, 1)
    new_executor = from_plain(FenceGate, json.loads(json.dumps(to_plain(executor))))
    new_store = from_plain(StoreGate, json.loads(json.dumps(to_plain(store))))
    assert new_executor.admit(fence(2)) is not None
    assert new_store.admit(fence(3), 1, 2) == "attempt 1 is older than attempt 2"
    assert new_store.admit(fence(2), 2, 2) is not None
    assert new_store.admit(fence(3), 2, 2) is None
