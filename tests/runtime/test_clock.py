"""The offset between two clocks from round trips: by hand, and from a real cluster against what messages bound."""

import asyncio
from types import SimpleNamespace

import pytest

from drlnb.records.columns.leasing import LeaseGranted, SlotRequested
from drlnb.records.common import ClockRelated
from drlnb.records.round import LeaseReceived, RequestSlot
from drlnb.runtime.clock import relate
from drlnb.runtime.master.master import Master
from tests.runtime.laws import check_laws


class Wire:
    """A broker 100 s ahead; each hello takes so many seconds there and so many back, or fails; 9 back: no broker."""

    def __init__(self, *trips):
        self.t, self.trips = 10.0, list(trips)

    async def hello(self):
        there, back = self.trips.pop(0) if self.trips else (9.0, 9.0)
        if isinstance(there, Exception):
            raise there
        self.t += there + back
        if back == 9.0:
            raise ConnectionError("the scheduler does not know drlnb_hello")
        return {"epoch": 7, "t": self.t - back + 100.0}

    def relate(self):
        return asyncio.run(relate(self.hello, lambda: self.t))


def test_the_middle_of_the_shortest_round_trip_counts():
    """0.5 s there and 0.25 back: off by .125, within half of .75; longer trips and failures change nothing."""
    wire = Wire((2.0, 2.0), (0.5, 0.25), (OSError("gone"), 0.0), (1.0, 3.0))
    clock, offset_s, error_s = wire.relate()
    assert (clock, offset_s, error_s) == ("broker-e7", pytest.approx(100.125), pytest.approx(0.375))
    assert abs(offset_s - 100.0) <= error_s


def test_without_an_answer_nothing_is_said():
    """Nobody there, or nobody who knows the question."""
    assert Wire(*[(TimeoutError(), 0.0)] * 5).relate() is None
    assert Wire().relate() is None


@pytest.mark.cluster
def test_a_tasks_clock_is_journalled_as_it_was_measured(make_bench):
    """Each attempt says how its clock stands to the pool's; that agrees with what its messages bound."""
    bench = make_bench(n_workers=1)
    run = bench.start([bench.spec("a"), bench.spec("b")])
    assert {row["state"] for row in run.end().values()} == {"done"}
    journal = check_laws(run.out)
    for task in ("a", "b"):
        (said,) = journal.streams[f"task-{task}-a1"].of(ClockRelated)
        assert said.clock in journal.streams
        assert 0.0 < said.error_s < 0.5
        _check_messages(journal, f"task-{task}-a1", said)


def _check_messages(journal, stream, said):
    """Nothing is received before it was sent, within the error: grants by the task, requests by the pool."""
    sides = {True: journal.streams[said.clock], False: journal.streams[stream]}
    granted, requested = {}, {}
    for event, answer in sides[True].answers():
        granted |= {row.fence: event.t for row in answer if isinstance(row, LeaseGranted)}
        if isinstance(event, SlotRequested):
            requested.setdefault("/".join(event.request_id.split("/")[-3:]), event.t)
    received = {row.fence: row.t for row in sides[False].of(LeaseReceived)}
    asked = {
        r.request_id: event.t for event, rows in sides[False].answers() for r in rows if isinstance(r, RequestSlot)
    }
    assert received
    assert asked
    for fence, t in received.items():
        assert granted[fence] <= t + said.offset_s + said.error_s + 1e-3
    for request, t in asked.items():
        assert requested[request] >= t + said.offset_s - said.error_s - 1e-3


def test_a_broker_that_does_not_answer_is_asked_until_it_does(monkeypatch):
    """Pictures know a task's clock by nothing else: the relation comes as soon as there is an answer."""
    wire, rested, fed = Wire(*[(TimeoutError(), 0.0)] * 7, (0.5, 0.25)), [], []

    async def rest(seconds):
        rested.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", rest)
    link = SimpleNamespace(ask_broker=lambda name: wire.hello())
    host = SimpleNamespace(now=10.0, feed=lambda kind, **fields: fed.append((kind, fields["clock"])))
    asyncio.run(Master._relate_clock(SimpleNamespace(link=link, host=host)))
    assert (len(rested), fed) == (1, [(ClockRelated, "broker-e7")])
