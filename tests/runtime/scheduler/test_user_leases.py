"""The pool's tape: what loops without a run leave behind, bounded, each part readable by itself."""

import asyncio
from types import SimpleNamespace

from drlnb.planning.leasing.settings import LeasingSettings
from drlnb.planning.pool import PoolMachine
from drlnb.planning.replay import replay
from drlnb.records.base import Event
from drlnb.records.columns.leasing import LeaseGranted, LeaseReturned, SendGrant, SlotAdded, SlotRequested
from drlnb.records.columns.placement import TaskStopped
from drlnb.records.ids import Fence
from drlnb.runtime.scheduler import user_leases
from drlnb.runtime.scheduler.grants import Grants
from drlnb.runtime.scheduler.user_leases import Loops, PoolTape
from drlnb.views.folds.entries import decoded, journal_of
from tests.runtime.checked_host import CheckedHost


class Recorded:
    """A pool whose records go onto a tape, as the plugin does it."""

    def __init__(self, epoch=7):
        self.pool = PoolMachine(LeasingSettings(), epoch)
        self.tape = PoolTape(epoch)
        self.tape.open(self.pool)
        self.t = 0.0

    def feed(self, kind, **fields):
        self.t += 0.01
        event = kind(t=self.t, **fields)
        assert isinstance(event, Event)
        if self.tape.full:
            self.tape.open(self.pool)
        answer = self.pool.handle(event)
        for record in (event, *answer):
            self.tape.add(record)
        return answer

    def lease(self, n):
        answer = self.feed(SlotRequested, request_id=f"own-1/a/{n}", task="own-1/a", attempt=1, round=n, node="")
        (granted,) = [record for record in answer if isinstance(record, LeaseGranted)]
        self.feed(LeaseReturned, fence=granted.fence, clean=True, computed_s=(0.0,))

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
    journal = journal_of(decoded(recorded.rows()))
    assert list(journal.streams) == ["broker-e7-own1"]
    assert len(journal.of(LeaseGranted)) == 3
    assert [replay(stream).difference for stream in journal.streams.values()] == [None]


def test_a_tape_keeps_the_newest_two_parts(monkeypatch):
    """It never grows beyond two parts; each begins with the pool as it was and replays by itself; pages are bounded."""
    monkeypatch.setattr(user_leases, "_PART", 20)
    monkeypatch.setattr(user_leases, "_PAGE", 7)
    recorded = Recorded()
    recorded.feed(SlotAdded, slot="n0/cpu0", node="n0", device="cpu", executor_epoch=1)
    for n in range(40):
        recorded.lease(n)
    rows = recorded.rows()
    journal = journal_of(decoded(rows))
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


class Pool:
    """A broker with a real pool of some slots on one node, which hears what it is told."""

    def __init__(self, n_slots=1):
        self.epoch = 7
        self.pool = PoolMachine(LeasingSettings(poll_s=0.01), 7)
        self.told = []
        self.names = [f"n0/cpu{k}" for k in range(n_slots)]
        given = {"n0": {name: {"slot": name, "device": "cpu", "up": True} for name in self.names}}
        self.nodes = SimpleNamespace(
            given=given, pool=SimpleNamespace(slot_names=self.names), slot_row=lambda slot: {"slot": slot, "node": "n0"}
        )

    async def __aenter__(self):
        self.grants = Grants(self)
        self.loops = Loops(self)
        sinks = [self.grants.on_record, self.loops.on_record]
        self.host = CheckedHost(self.pool, self._effect, sinks)
        for name in self.names:
            self.host.feed(SlotAdded, slot=name, node="n0", device="cpu", executor_epoch=1)
        return self

    def _effect(self, command):
        if isinstance(command, SendGrant):
            self.grants.send(command)

    async def __aexit__(self, *error):
        await self.host.close()

    async def ask_node(self, node, op, timeout_s, /, **message):
        self.told.append((node, op, message["slot"], message["fence"]))

    async def lease(self, name, **more):
        return await self.loops.loop_acquire(f"own-1/{name}/1", f"own-1/{name}", 1, **more)

    def release(self, fence):
        self.host.feed(LeaseReturned, fence=fence, clean=True, computed_s=(0.0,))


def _play(work, n_slots=1):
    async def main():
        async with Pool(n_slots) as pool:
            return await asyncio.wait_for(work(pool), 5.0)

    return asyncio.run(main())


def test_a_holder_is_told_once_that_somebody_waits():
    """Its client's question is answered and each of its slots' nodes is told, when a request finds no slot."""

    async def work(pool):
        grant = await pool.lease("a", n_slots=2)
        assert grant["demand"] is False
        assert await pool.loops.loop_asked(grant["fence"]) == {"pending": True}
        question = asyncio.ensure_future(pool.loops.loop_asked(grant["fence"]))
        assert "pending" in await pool.lease("b")
        assert await question == {"asked": True}
        assert "pending" in await pool.lease("c")
        assert pool.told == [("n0", "drlnb_asked", slot, grant["fence"]) for slot in pool.names]
        assert await pool.loops.loop_asked(grant["fence"]) == {"asked": True}

    _play(work, n_slots=2)


def test_a_question_ends_with_its_lease():
    """A lease that is returned answers it at once; one that never was is over, too."""

    async def work(pool):
        grant = await pool.lease("a")
        question = asyncio.ensure_future(pool.loops.loop_asked(grant["fence"]))
        await asyncio.sleep(0)
        pool.release(grant["fence"])
        assert await question == {"over": True}
        assert await pool.loops.loop_asked(grant["fence"]) == await pool.loops.loop_asked(Fence(1, 1)) == {"over": True}

    _play(work)


def test_who_is_granted_while_others_wait_is_asked_at_once():
    """The grant says that a third one waits, and so does the answer to the question."""

    async def work(pool):
        first = await pool.lease("a")
        waiting = [asyncio.ensure_future(pool.lease(name)) for name in ("b", "c")]
        await asyncio.sleep(0)
        pool.release(first["fence"])
        grant = await waiting[0]
        assert grant["demand"] is True
        assert await pool.loops.loop_asked(grant["fence"]) == {"asked": True}
        assert pool.told == [("n0", "drlnb_asked", "n0/cpu0", first["fence"])]
        await waiting[1]

    _play(work)


async def _turns(pool, *rounds):
    """Take and return leases of one loop, one after the other, with some work under each."""
    for n in rounds:
        grant = await pool.loops.loop_acquire(f"own-1/a/{n}", "own-1/a", n)
        assert "fence" in grant, grant
        pool.host.feed(LeaseReturned, fence=grant["fence"], clean=True, computed_s=(1e-6,))


def _duties(pool):
    """Return who counts in what queueing theory expects."""
    return set(pool.pool.snapshot()["leases"]["load"]["duty"])


def test_a_loop_that_rests_for_long_counts_no_longer(monkeypatch):
    """Between two leases it is there; after a long pause the pool hears that it stopped, until it comes back."""

    async def work(pool):
        stopped = asyncio.get_running_loop().create_future()

        def hear(record):
            if isinstance(record, TaskStopped):
                stopped.set_result(record)

        pool.host.sinks.append(hear)
        await _turns(pool, 1, 2, 3)
        assert _duties(pool) == {"own-1/a"}
        assert not stopped.done(), "it may come back any moment"
        monkeypatch.setattr(user_leases, "_AWAY_S", 0.0)
        monkeypatch.setattr(user_leases, "_PAUSES", 0.0)
        await _turns(pool, 4)
        assert (await stopped).task == "own-1/a"
        assert _duties(pool) == set()
        monkeypatch.undo()
        await _turns(pool, 5, 6)
        assert _duties(pool) == {"own-1/a"}
        assert pool.loops._loops["own-1/a"].attempt == 2
        assert pool.loops._loops["own-1/a"].pause_s > 0.0
        pool.loops.close()

    _play(work)


def test_a_loop_that_waits_or_holds_is_there():
    """No timer runs while it holds a lease or wants one; who gives up waiting rests, too."""

    async def work(pool):
        grant = await pool.lease("a")
        assert "pending" in await pool.lease("b")
        assert {name: one.timer for name, one in pool.loops._loops.items()} == {"own-1/a": None, "own-1/b": None}
        await pool.loops.loop_cancel("own-1/b/1", "given up")
        assert pool.loops._loops["own-1/b"].timer is not None
        assert (await pool.loops.loop_acquire("own-1/b/1", "own-1/b", 1))["refused"] == "is over"
        pool.release(grant["fence"])
        assert pool.loops._loops["own-1/a"].timer is not None
        pool.loops.close()
        assert all(one.timer.cancelled() for one in pool.loops._loops.values())

    _play(work)
