"""The pool event by event: by hand, and against the machine that was there."""

from pathlib import Path

import pytest

from drlnb.fleet.rows.tables import pool_rows, table_rows
from drlnb.planning.replay import fresh_machine
from drlnb.records.columns import leasing
from drlnb.records.columns.placement import NodeLost
from drlnb.records.ids import Fence
from drlnb.records.journal import Journal, Stream, StreamOpened

JOURNALS = Path(__file__).parents[2] / "journals"


def pool(*records, snapshot=None):
    header = StreamOpened(
        stream="broker-e1", machine="pool", config={}, snapshot=snapshot, origin="measured", version="0"
    )
    return Stream(header=header, records=records, torn=False, source="broker-e1")


def added(slot, node, t=0.0):
    return leasing.SlotAdded(t=t, slot=slot, node=node, device="cpu", executor_epoch=1)


def asked(t, name):
    return leasing.SlotRequested(t=t, request_id=name, task=f"r/{name}", attempt=1, round=1, node="n0")


def granted(token, name):
    fence, task = Fence(epoch=1, token=token), f"r/{name}"
    return (
        leasing.LeaseGranted(
            fence=fence, request_id=name, task=task, attempt=1, round=1, slots=("s0",), waited_s=0.0
        ),
        leasing.SendGrant(request_id=name, task=task, fence=fence, slots=("s0",), waited_s=0.0),
    )  # fmt: skip


def back(t, token):
    return leasing.LeaseReturned(t=t, fence=Fence(epoch=1, token=token), clean=True, computed_s=(0.0,))


def released(token, computed_s):
    return leasing.LeaseReleased(
        fence=Fence(epoch=1, token=token),
        task="r/a",
        slots=("s0",),
        held_s=1.0,
        computed_s=(computed_s,),
        reason="returned",
    )


def test_a_pool_by_hand():
    """Two slots from 0; the first grant at 2; at 6 3 s of 8 slot-seconds were computed; then a slot and a lease go."""
    rows = list(
        pool_rows(
            pool(
                added("s0", "n0"), added("s1", "n1"),
                asked(2.0, "a"), *granted(1, "a"),
                asked(3.0, "b"),
                asked(4.0, "b"),
                back(6.0, 1), released(1, 3.0), *granted(2, "b"),
                NodeLost(t=7.0, node="n1", reason="killed"),
                leasing.LeaseRenewed(t=8.0, fence=Fence(epoch=1, token=2)),
                back(9.0, 2),
                leasing.LeaseExpired(
                    fence=Fence(epoch=1, token=2), task="r/b", slots=("s0",), held_s=3.0, silent_s=2.0
                ),
            )
        )
    )  # fmt: skip
    keys = ("t_s", "queue_len", "lent", "slots", "utilisation", "expired")
    assert [tuple(row[key] for key in keys) for row in rows] == [
        (0.0, 0, 0, 1, None, 0),
        (0.0, 0, 0, 2, None, 0),
        (2.0, 0, 1, 2, None, 0),
        (3.0, 1, 1, 2, 0.0, 0),
        (6.0, 0, 1, 2, 3 / 8, 0),
        (7.0, 0, 1, 1, 3 / 10, 0),
        (9.0, 0, 0, 1, 3 / 12, 1),
    ]
    assert {type(row[key]) for row in rows for key in ("queue_len", "lent", "slots", "expired")} == {int}


def test_who_gives_up_waits_no_more():
    """A request that is withdrawn, and one that is refused; a slot that fails."""
    rows = list(
        pool_rows(
            pool(
                added("s0", "n0"),
                asked(1.0, "a"),
                asked(2.0, "b"),
                leasing.RequestCancelled(t=3.0, request_id="a", reason="stopped polling"),
                leasing.RequestPolled(t=4.0, request_id="b"),
                leasing.RequestRefused(subject="b", reason="task-stopped"),
                leasing.SlotFailed(t=5.0, slot="s0", reason="lost"),
            )
        )
    )
    assert [(row["t_s"], row["queue_len"], row["slots"]) for row in rows] == [
        (0.0, 0, 1), (1.0, 1, 1), (2.0, 2, 1), (3.0, 1, 1), (4.0, 0, 1), (5.0, 0, 0),
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["faults", "three-tasks-last", "two-tasks-one-slot"])
def test_it_is_the_machines_own_state(name):
    """After every row, as many requests wait, slots exist and are lent as the machine itself says."""
    for stream in Journal.read(JOURNALS / name).streams.values():
        if stream.header.machine != "pool":
            continue
        machine, states = fresh_machine(stream.header), {}
        for event, _ in stream.answers():
            machine.handle(event)
            table = machine.snapshot()["leases"]
            there = [slot for slot in table["slots"].values() if slot["state"] != "failed"]
            leases = table["open"].values()
            lent = [slot for lease in leases if lease["state"] == "granted" for slot in lease["slots"]]
            states[event.t] = (sum(lease["state"] == "pending" for lease in leases), len(lent), len(there))
        rows = {row["t_s"]: row for row in pool_rows(stream)}  # of several at one time, the last
        assert len(rows) > 20
        for t, row in rows.items():
            assert (row["queue_len"], row["lent"], row["slots"]) == states[t], t


def test_a_stream_that_begins_in_the_middle_knows_what_was_there():
    """A snapshot's waiting requests, leases and slots; a slot that had failed is not there."""
    (stream,) = (
        one for one in Journal.read(JOURNALS / "two-tasks-one-slot").streams.values() if one.header.machine == "pool"
    )
    machine, answers = fresh_machine(stream.header), list(stream.answers())
    for event, _ in answers[:40]:
        machine.handle(event)
    later = [record for event, answer in answers[40:] for record in (event, *answer)]
    rest = list(pool_rows(pool(*later, snapshot=machine.snapshot())))
    whole = {row["t_s"]: (row["queue_len"], row["lent"], row["slots"]) for row in pool_rows(stream)}
    assert len(rest) > 10
    assert [(row["queue_len"], row["lent"], row["slots"]) for row in rest[1:]] == [
        whole[row["t_s"]] for row in rest[1:]
    ]


def test_slot_seconds_of_a_later_beginning_count_from_there():
    """A lease that was open at 90 s and is back at 100 s has computed 5 of 10 s."""
    slot = {"name": "s0", "node": "n0", "state": "held", "device": "cpu"}
    lease = {"token": 1, "state": "granted", "slots": ["s0"], "task": "r/a", "request_id": "a"}
    leases = {"t": 90.0, "epoch": 1, "slots": {"s0": slot}, "open": {"1": lease}}
    (row,) = pool_rows(pool(back(100.0, 1), released(1, 5.0), snapshot={"leases": leases}))
    assert (row["lent"], row["utilisation"]) == (0, 0.5)


def test_it_is_a_table_of_a_run():
    """As `run.frame("pool")`."""
    stream = pool(added("s0", "n0"))
    (row,) = table_rows(Journal(streams={"broker-e1": stream}), "pool")
    assert row == {"t_s": 0.0, "queue_len": 0, "lent": 0, "slots": 1, "utilisation": None, "expired": 0}
