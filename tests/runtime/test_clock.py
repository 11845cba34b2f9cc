"""The offset between two clocks from round trips: by hand, and from a real cluster against what messages bound."""

import asyncio

import pytest

from drlnb.records.common import ClockRelated
from drlnb.records.journal import Journal
from drlnb.runtime.clock import relate
from drlnb.views.folds.entries import entries_of
from drlnb.views.folds.fold import Fold
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
    bounds = Fold()
    bounds.feed(entry for entry in entries_of(Journal.read(run.out)) if not isinstance(entry[1], ClockRelated))
    told = Fold()
    told.feed(entries_of(Journal.read(run.out)))
    for name, clock in told.clock_of().items():
        if name.startswith("task-"):
            known = bounds.clock_of()[name]
            assert abs(clock.offset_s - known.offset_s) <= clock.error_s + known.error_s
