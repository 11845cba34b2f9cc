"""Short words for the events of the pool, and for picking records out of an answer."""

import json

from drlnb.planning.replay import fresh_machine
from drlnb.records.columns.leasing import (
    ExecutorIdled,
    LeaseGranted,
    LeaseRenewed,
    LeaseReturned,
    RequestCancelled,
    RequestPolled,
    SlotAdded,
    SlotFailed,
    SlotRequested,
    TenantLost,
)
from drlnb.records.columns.placement import NodeAdded, NodeLost, PlacementAsked, TaskStopped
from drlnb.records.common import DeadlinePassed, SettingChanged
from drlnb.records.journal import StreamOpened


def made_again(pool):
    """Return the machine that a journal's header makes of a pool's configuration."""
    config = json.loads(json.dumps(pool.config))
    return fresh_machine(
        StreamOpened(stream="broker-e1", machine="pool", config=config, origin="simulated", version="0")
    )


def requested(task, *, t, attempt=1, round=1, node="m", request_id=None, **more):
    """Ask for a slot; the request id is ``a-1`` for round 1 of task ``a`` unless it is given."""
    return SlotRequested(
        t=t, request_id=request_id or f"{task}-{round}", task=task, attempt=attempt, round=round, node=node, **more
    )


def queue_of(table):
    """Return the requests that wait, by rank, equal ones by arrival, as a table's snapshot has them."""
    leases = table.snapshot()["open"].items()
    waiting = [(lease["rank"], lease["number"], name) for name, lease in leases if lease["state"] == "pending"]
    return [name for _, _, name in sorted(waiting)]


def polled(request_id, *, t):
    return RequestPolled(t=t, request_id=request_id)


def setting(key, value, *, t, task=None):
    return SettingChanged(t=t, key=key, value=value, task=task)


def cancelled(request_id, *, t):
    return RequestCancelled(t=t, request_id=request_id, reason="test")


def returned(fence, *, t, clean=True, computed_s=(0.5,), yielded=False):
    return LeaseReturned(t=t, fence=fence, clean=clean, computed_s=computed_s, yielded=yielded)


def renewed(fence, *, t):
    return LeaseRenewed(t=t, fence=fence)


def slot_added(slot, *, t=0.0, epoch=0, node=None):
    return SlotAdded(t=t, slot=slot, node=node or slot.split("/")[0], device="cpu", executor_epoch=epoch)


def slot_failed(slot, *, t):
    return SlotFailed(t=t, slot=slot, reason="test")


def idled(slot, *, t, fence=None):
    return ExecutorIdled(t=t, slot=slot, fence=fence)


def tenant_lost(slot, task, *, t, fence=None):
    return TenantLost(t=t, slot=slot, task=task, fence=fence, reason="test")


def reap(*, t):
    return DeadlinePassed(t=t, name="reap")


def node_added(node, *, t=0.0, n=4):
    return NodeAdded(t=t, node=node, host=node, n_collector_slots=n)


def node_lost(node, *, t):
    return NodeLost(t=t, node=node, reason="test")


def stopped(task, *, t, attempt=1):
    return TaskStopped(t=t, task=task, attempt=attempt, reason="test")


def asked(task, *, t, attempt=1, node="n0", n=2, **more):
    return PlacementAsked(t=t, task=task, attempt=attempt, node=node, n_collectors=n, **more)


def of(kind, records):
    """Return the records of one kind."""
    return [record for record in records if type(record) is kind]


def only(kind, records):
    """Return the one record of a kind."""
    (record,) = of(kind, records)
    return record


def grant(table, event):
    """Handle a request that must be granted at once; return the grant."""
    return only(LeaseGranted, table.handle(event))
