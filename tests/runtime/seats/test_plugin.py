"""The plugin of the seats between a real pool and a played node: probes, closing, opening again, and faults."""

import asyncio
from types import SimpleNamespace

import pytest

from drlnb.planning.leasing.settings import LeasingSettings
from drlnb.planning.pool import PoolMachine
from drlnb.planning.replay import replay
from drlnb.records import seats
from drlnb.records.columns import leasing, placement
from drlnb.records.journal import read_stream
from drlnb.runtime.protocol import BROKER, SEATS
from drlnb.runtime.scheduler.grants import Grants
from drlnb.runtime.scheduler.nodes import Nodes
from drlnb.runtime.scheduler.run import LiveRun
from drlnb.runtime.seats.plugin import SeatsPlugin
from tests.runtime.checked_host import CheckedHost

GIB = 2**30


class World:
    """A broker with a real pool and register of slots, and a node of one virtual device that does as it is told."""

    def __init__(self, out, rates=(1.0, 1.9, 1.95, 1.9), n_cpus=4, **settings):
        self.rates = rates
        self.executors = {}
        self.failing = {}
        self.defects = []
        self.records = []
        self.epoch = 1
        self.run = LiveRun("r", {"out": str(out), "tasks": [{"name": "a"}]})
        self.runs = SimpleNamespace(live={"r": self.run}, defect=self.defects.append)
        self.plugin = SeatsPlugin(settings)
        self.scheduler = SimpleNamespace(plugins={BROKER: self, SEATS: self.plugin})
        self.pool = PoolMachine(LeasingSettings(), 1)
        self.nodes = Nodes(self)
        row = {"host": "h", "n_cpus": n_cpus, "devices": [], "why_no_cuda": "none", "address": "tcp://0"}
        self.nodes.rows["0"] = row
        self.n = 0

    async def __aenter__(self):
        self.grants = Grants(self)
        self.host = CheckedHost(self.pool, self._effect, [self.records.append, self.grants.on_record])
        self.run.open_stream("pool", "broker-e1", self.pool)
        await self.plugin.start(self.scheduler)
        self.host.feed(placement.NodeAdded, node="0", host="h", n_collector_slots=4)
        await self.nodes.open_slots(1, "auto")
        return self

    async def __aexit__(self, *error):
        await self.plugin.close()
        await self.host.close()
        await self.run.closing()

    def _effect(self, command):
        if isinstance(command, leasing.RevokeLease):
            self.host.feed(leasing.ExecutorIdled, slot=command.slot)
        elif isinstance(command, leasing.SendGrant):
            self.grants.send(command)

    # -------------------------------------------------------------- the node
    async def ask_node(self, node, op, timeout_s, /, **message):
        if op in self.failing:
            return self.failing[op](message)
        return await getattr(self, f"_{op}")(**message)

    async def _drlnb_slots(self, slots):
        for row in slots:
            await self._up(row["slot"])

    async def _up(self, slot):
        self.executors[slot] = self.executors.get(slot, 0) + 1
        await self.nodes.slot_up("0", slot, "cpu:0", "cpu", 1)

    async def _drlnb_seats_raise(self, slots):
        for row in slots:
            self.executors.setdefault(row["slot"], 1)
        return {"seat_bytes": GIB // 4, "used_bytes": GIB, "total_bytes": 16 * GIB}

    async def _drlnb_seats_record(self, slots):
        return {"tasks": ["r/a", "r/b", "r/c", "r/d"]}

    async def _drlnb_seats_measure(self, lent, slots, fences, measure_s):
        assert set(fences) == set(lent) == {row["name"] for row in self._slots() if row["state"] == "granted"}
        n = len(slots)
        each_s = n / self.rates[n - 1]
        times = dict.fromkeys(("r/a", "r/b", "r/c", "r/d"), each_s)
        return {
            "elapsed_s": [4 * each_s] * n,
            "n_rounds": [dict.fromkeys(times, 1)] * n,
            "compute_p50_s": times,
            "compute_p95_s": times,
        }

    async def _drlnb_seats_end(self, lent, adopt, ends, fences):
        for slot in ends:
            self.executors.pop(slot, None)
        for slot in adopt:
            await self.nodes.slot_up("0", slot, "cpu:0", "cpu", 1)
        return {"ok": True}

    # -------------------------------------------------------------- tasks
    def _slots(self):
        return self.pool.snapshot()["slots"].values()

    def lent(self):
        """Return the slots that can be leased."""
        return sorted(row["name"] for row in self._slots() if row["state"] != "failed")

    async def compute(self, task, computed_s=1.0, *, yielded_s=0.0):
        """Let a task compute a round under a lease, or under two if it yields."""
        self.n += 1
        name, number = f"r/{task}", self.n
        if yielded_s:
            await self._lease(name, number, yielded_s, yielded=True)
        await self._lease(name, number, computed_s, yielded=False)

    async def _lease(self, task, number, computed_s, *, yielded):
        request = f"{task}/{number}/{yielded}"
        self.host.feed(leasing.SlotRequested, request_id=request, task=task, attempt=1, round=number, node="0")
        fence = None
        while fence is None:
            await asyncio.sleep(0)
            granted = (one for one in self.records if isinstance(one, leasing.LeaseGranted))
            fence = next((one.fence for one in granted if one.request_id == request), None)
        self.host.feed(leasing.LeaseReturned, fence=fence, clean=True, computed_s=(computed_s,), yielded=yielded)

    def end(self, task):
        """End a task."""
        self.host.feed(placement.TaskStopped, task=f"r/{task}", attempt=1, reason="done")

    async def rounds(self, tasks, n=3, computed_s=1.0):
        """Let tasks compute some rounds each."""
        for _ in range(n):
            for task in tasks:
                await self.compute(task, computed_s)

    async def settled(self, n):
        """Wait until the seats have been set so many times."""
        while len(self.said(seats.SeatsSet)) < n:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0)

    def said(self, kind):
        """Return the rows of a kind in the run's stream of the seats."""
        return [row for row in self.run.ring if row["r"] == kind.__name__]


def _play(story, tmp_path, **how):
    """Play a story and return the world; whatever happened, the seats' stream replays and the pool kept its laws."""

    async def go():
        async with World(tmp_path, **how) as world:
            await asyncio.wait_for(story(world), 20.0)
        return world

    world = asyncio.run(go())
    (path,) = (tmp_path / "journal").glob("seats-e1*.jsonl")
    assert replay(read_stream(path)).difference is None
    return world


def test_a_probe_opens_the_seats_that_pay(tmp_path):
    """Four tasks, two seats do 1.9 x the work: the pool has two slots then, and the two other executors are gone."""

    async def story(world):
        assert world.lent() == ["0/cpu0/0"]
        await world.rounds("abcd")
        await world.settled(1)
        assert world.lent() == ["0/cpu0/0", "0/cpu0/1"]
        assert sorted(world.executors) == ["0/cpu0/0", "0/cpu0/1"]
        assert all(row["state"] == "free" for row in world._slots())

    world = _play(story, tmp_path)
    assert world.defects == []
    (plan,) = world.said(seats.SeatsPlanned)
    assert plan["n_seats"] == 2
    held = [one for one in world.records if isinstance(one, leasing.LeaseReleased) and one.task == "seats/0/cpu0"]
    assert [one.reason for one in held] == ["returned"]


def test_a_round_under_two_leases_is_one_round(tmp_path):
    """Seconds before a yield count to the round that they belong to; the round that makes the parameters does not."""

    async def story(world):
        world.host.feed(leasing.SlotRequested, request_id="r/a/first", task="r/a", attempt=1, round=0, node="0")
        (first,) = [one for one in world.records if isinstance(one, leasing.LeaseGranted)]
        world.host.feed(leasing.LeaseReturned, fence=first.fence, clean=True, computed_s=(9.0,))
        await world.compute("a", 0.75, yielded_s=0.5)

    world = _play(story, tmp_path)
    assert [row["compute_s"] for row in world.said(seats.ComputeMeasured)] == [1.25]


def test_a_seat_is_closed_while_the_probe_holds_it_and_opened_again(tmp_path):
    """One task left: the second slot leaves the pool, nobody loses a lease; two tasks again: it comes back."""

    async def story(world):
        await world.rounds("ab")
        await world.settled(1)
        assert len(world.lent()) == 2
        world.end("b")
        await world.compute("a")
        await world.settled(2)
        assert world.lent() == ["0/cpu0/0"]
        assert list(world.executors) == ["0/cpu0/0"]
        assert list(world.nodes.given["0"]) == ["0/cpu0/0"]
        await world.rounds("ac")
        await world.settled(3)
        assert world.lent() == ["0/cpu0/0", "0/cpu0/1"]
        assert {row["state"] for row in world._slots()} == {"free"}

    world = _play(story, tmp_path, again_s=1e-9)
    assert world.defects == []
    assert [row["n_seats"] for row in world.said(seats.SeatsPlanned)][:3] == [2, 1, 2]
    closed = [one.slot for one in world.records if isinstance(one, leasing.SlotClosed)]
    assert closed == ["0/cpu0/1"]
    epochs = [
        one.executor_epoch for one in world.records if isinstance(one, leasing.SlotAdded) and one.slot == "0/cpu0/1"
    ]
    assert epochs == sorted(set(epochs))
    assert len(epochs) == 2
    ends = {one.reason for one in world.records if isinstance(one, leasing.LeaseReleased)}
    assert ends == {"returned"}


@pytest.mark.parametrize(
    ("op", "reply", "reason"),
    [
        ("drlnb_seats_raise", {"refused": "no memory"}, "no memory"),
        ("drlnb_seats_record", {"refused": "executor gone"}, "executor gone"),
        ("drlnb_seats_measure", {"refused": "executor 0/cpu0/1 ended"}, "executor 0/cpu0/1 ended"),
        ("drlnb_seats_measure", None, "node 0 does not answer"),
    ],
)
def test_a_probe_that_fails_leaves_one_seat_and_no_lease(tmp_path, op, reply, reason):
    """Whatever part fails: the plan says why, the slot is free again, the other executors are gone."""

    async def story(world):
        world.failing[op] = lambda message: reply
        await world.rounds("ab")
        await world.settled(1)
        assert world.lent() == ["0/cpu0/0"]
        assert list(world.executors) == ["0/cpu0/0"]
        await world.compute("a")

    world = _play(story, tmp_path)
    (plan,) = world.said(seats.SeatsPlanned)
    assert plan["reason"] == f"as before: the probe failed ({reason})"
    assert world.defects == []


def test_a_defect_is_shown_and_ends_the_probe_only(tmp_path):
    """An exception of ours is told in the open; training goes on."""

    async def story(world):
        def broken(message):
            raise KeyError("oops")

        world.failing["drlnb_seats_measure"] = broken
        await world.rounds("ab")
        await world.settled(1)
        await world.compute("b")

    world = _play(story, tmp_path)
    assert "KeyError" in world.defects[0]
    assert world.said(seats.SeatsPlanned)[0]["reason"] == "as before: the probe failed (KeyError: 'oops')"


def test_a_probe_whose_lease_was_taken_away_counts_nothing(tmp_path):
    """A measurement under a lease that is lost is thrown away."""

    async def story(world):
        def lost(message):
            world.failing.clear()
            (held,) = [row for row in world._slots() if row["state"] == "granted"]
            world.host.feed(leasing.SlotFailed, slot=held["name"], reason="executor killed")
            world.host.feed(leasing.SlotAdded, slot=held["name"], node="0", device="cpu:0", executor_epoch=9)
            return {"elapsed_s": [1.0], "n_rounds": [{}], "compute_p50_s": {}, "compute_p95_s": {}}

        world.failing["drlnb_seats_measure"] = lost
        await world.rounds("ab")
        await world.settled(1)
        assert world.lent() == ["0/cpu0/0"]

    world = _play(story, tmp_path)
    assert "the pool took its leases away" in world.said(seats.SeatsPlanned)[0]["reason"]
    assert world.said(seats.SeatsMeasured) == []


def test_a_device_that_is_lost_while_the_probe_waits_for_it_ends_the_probe(tmp_path):
    """Nobody will ever return that slot: the probe fails, and other devices can be probed."""

    async def story(world):
        def taken(message):
            request = {"request_id": "x", "task": "r/a", "attempt": 1, "round": 99, "node": "0"}
            world.host.feed(leasing.SlotRequested, **request)
            return {"tasks": ["r/a", "r/b"]}

        world.failing["drlnb_seats_record"] = taken
        await world.rounds("ab")
        while not world.plugin.leases._losses:
            await asyncio.sleep(0)
        world.host.feed(placement.NodeLost, node="0", reason="gone")
        await world.settled(1)
        assert not world.plugin.leases._losses

    world = _play(story, tmp_path)
    assert (
        world.said(seats.SeatsPlanned)[0]["reason"] == "as before: the probe failed (ConnectionError: node 0 is gone)"
    )
    assert [one.request_id for one in world.records if isinstance(one, leasing.RequestCancelled)] == ["seats/0/cpu0/1"]


def test_peoples_own_loops_are_no_measure(tmp_path):
    """What a loop of somebody's own computes is not counted, whatever it takes."""

    async def story(world):
        await world._lease("own-1/mine", 1, 7.0, yielded=False)
        await world.compute("a", 2.0)

    world = _play(story, tmp_path)
    assert [(row["task"], row["compute_s"]) for row in world.said(seats.ComputeMeasured)] == [("r/a", 2.0)]


def test_a_lease_that_is_lost_counts_nothing(tmp_path):
    """Seconds of a round whose lease failed are forgotten: the round is computed once more."""

    async def story(world):
        await world._lease("r/a", 1, 5.0, yielded=True)
        world.host.feed(leasing.SlotRequested, request_id="x", task="r/a", attempt=1, round=1, node="0")
        world.host.feed(leasing.SlotFailed, slot="0/cpu0/0", reason="killed")
        world.host.feed(leasing.SlotAdded, slot="0/cpu0/0", node="0", device="cpu:0", executor_epoch=9)
        await world.compute("a", 2.0)

    world = _play(story, tmp_path)
    assert [row["compute_s"] for row in world.said(seats.ComputeMeasured)] == [2.0]


def test_one_core_carries_one_seat(tmp_path):
    """No probe, no second executor; the reason was said when the pool was opened."""

    async def story(world):
        await world.rounds("abc", 5)

    world = _play(story, tmp_path, n_cpus=1)
    assert world.lent() == ["0/cpu0/0"]
    assert world.said(seats.ProbePlanned) == []
