"""The pool's tape: what loops without a run leave behind, bounded, each part readable by itself."""

from drlnb.fleet.frames import journal_of
from drlnb.planning.leasing.settings import LeasingSettings
from drlnb.planning.pool import PoolMachine
from drlnb.planning.replay import replay
from drlnb.records.base import Event
from drlnb.records.leasing import LeaseGranted, LeaseReturned, SlotAdded, SlotRequested
from drlnb.runtime import loops
from drlnb.runtime.loops import PoolTape


class Recorded:
    """A pool whose records go onto a tape, as the plugin does it."""

    def __init__(self, epoch=7):
        self.pool = PoolMachine(LeasingSettings(), epoch)
        self.tape = PoolTape(epoch)
        self.tape.open(self.pool.config, self.pool.snapshot())
        self.t = 0.0

    def feed(self, kind, **fields):
        self.t += 0.01
        event = kind(t=self.t, **fields)
        assert isinstance(event, Event)
        if self.tape.full:
            self.tape.open(self.pool.config, self.pool.snapshot())
        answer = self.pool.handle(event)
        for record in (event, *answer):
            self.tape.add(record)
        return answer

    def lease(self, n):
        answer = self.feed(SlotRequested, request_id=f"own-1/a/{n}", task="own-1/a", attempt=1, round=n, node="")
        (granted,) = [record for record in answer if isinstance(record, LeaseGranted)]
        self.feed(LeaseReturned, fence=granted.fence, clean=True, computed_s=0.0)

    def rows(self, since=0):
        found = []
        while True:
            since, page = self.tape.rows(since)
            if not page:
                return found
            found += page


def test_a_tape_replays_exactly():
    """What was recorded is read back page by page, and fresh machines decide the same."""
    recorded = Recorded()
    recorded.feed(SlotAdded, slot="n0/cpu0", node="n0", device="cpu", executor_epoch=1)
    for n in range(3):
        recorded.lease(n)
    journal = journal_of(recorded.rows())
    assert list(journal.streams) == ["broker-e7-own1"]
    assert len(journal.of(LeaseGranted)) == 3
    assert [replay(stream).difference for stream in journal.streams.values()] == [None]


def test_a_tape_keeps_the_newest_two_parts(monkeypatch):
    """It never grows beyond two parts; each begins with the pool as it was and replays by itself; pages are bounded."""
    monkeypatch.setattr(loops, "_PART", 20)
    monkeypatch.setattr(loops, "_PAGE", 7)
    recorded = Recorded()
    recorded.feed(SlotAdded, slot="n0/cpu0", node="n0", device="cpu", executor_epoch=1)
    for n in range(40):
        recorded.lease(n)
    rows = recorded.rows()
    journal = journal_of(rows)
    assert len(journal.streams) == 2
    assert len(rows) <= 2 * (20 + 4)
    assert [replay(stream).difference for stream in journal.streams.values()] == [None, None]
    assert max(record.round for record in journal.of(LeaseGranted)) == 39
    assert len(recorded.tape.rows(0)[1]) == 7


def test_a_reader_goes_on_where_it_stopped():
    """Rows that come later are read from the number that the last page said."""
    recorded = Recorded()
    recorded.feed(SlotAdded, slot="n0/cpu0", node="n0", device="cpu", executor_epoch=1)
    after, first = recorded.tape.rows(0)
    assert recorded.tape.rows(after) == (after, [])
    recorded.lease(0)
    _, more = recorded.tape.rows(after)
    assert [row["r"] for row in first] == ["StreamOpened", "SlotAdded"]
    assert more[0]["r"] == "SlotRequested"
