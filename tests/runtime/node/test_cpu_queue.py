"""Waiting for a CPU slot of a node, and whose number of them it is; without processes."""

import asyncio
from pathlib import Path
from types import SimpleNamespace

import pytest

from drlnb.planning.leasing.settings import LeasingSettings
from drlnb.planning.pool import PoolMachine
from drlnb.planning.warmup.cpu_slots import CPU_SLOTS_KEY
from drlnb.records.columns.placement import NodeAdded
from drlnb.records.common import SettingChanged
from drlnb.runtime.ipc.start_modes import Zygote
from drlnb.runtime.node.collector_host import CollectorHost, LiveCollector
from drlnb.runtime.node.cpu_queue import CpuQueue, n_cpus
from drlnb.runtime.scheduler.nodes import Nodes


def who(i, task="a"):
    return ("r", task, i)


async def turns(n=5):
    """Let everything that is ready run."""
    for _ in range(n):
        await asyncio.sleep(0)


# ------------------------------------------------------------------ the queue
def test_a_free_slot_costs_no_turn_of_the_loop():
    """Nothing is awaited: 0 s, exactly."""

    async def go():
        queue = CpuQueue(1)
        acting = queue.act(who(0), 1, 1)
        with pytest.raises(StopIteration) as done:
            acting.send(None)
        return done.value.value

    place, queued_s = asyncio.run(go())
    assert (place.acts, queued_s) == (True, 0.0)


def test_who_waits_is_told_in_its_order():
    """And how long it has waited."""

    async def go():
        queue = CpuQueue(1)
        first, _ = await queue.act(who(0), 1, 1)
        told = []

        async def wait(i):
            place, queued_s = await queue.act(who(i), 1, 1)
            told.append((i, queued_s > 0.0))
            await asyncio.sleep(0)
            queue.sent(place)

        tasks = [asyncio.ensure_future(wait(i)) for i in (1, 2, 3)]
        await turns()
        assert told == []
        queue.sent(first)
        await asyncio.gather(*tasks)
        return told

    assert asyncio.run(go()) == [(1, True), (2, True), (3, True)]


def test_who_waits_ahead_hears_of_its_slot_and_its_wake_goes_on_waiting():
    """A slot ahead answers the one; only one that may act answers the other."""

    async def go():
        queue = CpuQueue(1)
        first, _ = await queue.act(who(0), 1, 1)
        ahead = asyncio.ensure_future(queue.ahead(who(1), 1, 2))
        await turns()
        queue.sent(first)
        await turns()
        assert ahead.done()
        # Somebody who can act takes the slot; its wake waits at its old place.
        second, _ = await queue.act(who(2), 1, 1)
        later = asyncio.ensure_future(queue.act(who(3), 1, 1))
        woken = asyncio.ensure_future(queue.act(who(1), 1, 2))
        await turns()
        assert not woken.done()
        queue.sent(second)
        await turns()
        assert (woken.done(), later.done()) == (True, False)
        queue.sent(woken.result()[0])
        await later

    asyncio.run(go())


def test_a_wake_answers_who_waits_ahead_too():
    """Both hear when it may act."""

    async def go():
        queue = CpuQueue(1)
        first, _ = await queue.act(who(0), 1, 1)
        ahead = asyncio.ensure_future(queue.ahead(who(1), 1, 2))
        woken = asyncio.ensure_future(queue.act(who(1), 1, 2))
        await turns()
        assert not ahead.done()
        assert not woken.done()
        queue.sent(first)
        _, (place, waited_s) = await asyncio.gather(ahead, woken)
        assert place.acts
        assert waited_s > 0

    asyncio.run(go())


def test_whose_process_ends_waits_no_longer():
    """Nor does it hold anything."""

    async def go():
        queue = CpuQueue(1)
        await queue.act(who(0), 1, 1)
        waits = [asyncio.ensure_future(queue.act(who(i), 1, 1)) for i in (1, 2)]
        await turns()
        queue.leave(who(1))
        queue.leave_all(lambda name, attempt: name == who(2) and attempt == 1)
        told = await asyncio.gather(*waits, return_exceptions=True)
        assert [str(one) for one in told] == ["its process ended while it waited for a CPU slot"] * 2
        assert queue.slots.n_waiting == 0

    asyncio.run(go())


def test_a_former_attempt_waits_no_longer():
    """Nor is it let in any more."""

    async def go():
        queue = CpuQueue(1)
        await queue.act(who(0), 1, 1)
        former = asyncio.ensure_future(queue.act(who(1), 1, 1))
        await turns()
        present = asyncio.ensure_future(queue.act(who(1), 2, 1))
        await turns()
        assert former.done()
        with pytest.raises(ConnectionError, match="while it waited"):
            former.result()
        with pytest.raises(ConnectionError, match="a#1 asks too late for round 1"):
            await queue.act(who(1), 1, 1)
        present.cancel()
        await asyncio.gather(present, return_exceptions=True)

    asyncio.run(go())


@pytest.mark.parametrize("acts", [True, False])
def test_whose_master_ends_leaves_the_queue(acts):
    """Its wait is cancelled: nobody would give the slot back."""

    async def go():
        queue = CpuQueue(1)
        place, _ = await queue.act(who(0), 1, 1)
        waits = asyncio.ensure_future(queue.act(who(1), 1, 1) if acts else queue.ahead(who(1), 1, 1))
        await turns()
        waits.cancel()
        await asyncio.gather(waits, return_exceptions=True)
        queue.sent(place)
        assert (queue.slots.n_held, queue.slots.n_waiting) == (0, 0)

    asyncio.run(go())


def test_a_wait_that_is_cancelled_as_its_slot_comes_gives_it_back():
    """Between the grant and the waiter's turn."""

    async def go():
        queue = CpuQueue(1)
        place, _ = await queue.act(who(0), 1, 1)
        waits = asyncio.ensure_future(queue.act(who(1), 1, 1))
        await turns()
        queue.sent(place)
        waits.cancel()
        await asyncio.gather(waits, return_exceptions=True)
        assert queue.slots.n_held == 0

    asyncio.run(go())


def test_more_slots_let_the_queue_move_up():
    """At once."""

    async def go():
        queue = CpuQueue(1)
        await queue.act(who(0), 1, 1)
        waits = asyncio.ensure_future(queue.act(who(1), 1, 1))
        await turns()
        assert not waits.done()
        queue.resize(2)
        place, _ = await waits
        assert place.acts
        assert queue.slots.n_held == 2

    asyncio.run(go())


# ------------------------------------------------------------------ collectors
class Lost:
    """Hears of losses."""

    def __init__(self):
        self.keys = []

    def __call__(self, live, reason, detail):
        del reason, detail
        self.keys.append(live.key)


class Pretended(CollectorHost):
    """Collectors that answer when they are told to."""

    def __init__(self, n_slots):
        super().__init__(None)
        self.cpu = CpuQueue(n_slots)
        self.acting = {}

    def add(self, key, attempt=1):
        live = LiveCollector(key=key, attempt=attempt, pid=0, mode="zygote", log=None)
        live.channel = SimpleNamespace(close=lambda: None)
        self.live[key] = live
        return live

    async def _last_words(self, live):
        del live
        return "killed", ""

    async def _patient(self, live, header, payloads, quiet_s):
        del payloads, quiet_s
        future = self.acting[live.key] = asyncio.get_running_loop().create_future()
        try:
            return {"op": await future, "round": header.get("round"), "detail": "", "message": ""}, b""
        finally:
            del self.acting[live.key]


def wake(host, i, *, round=1, keeps_cpu=False, task="a"):
    header = {"op": "wake", "round": round, "version": round, "keeps_cpu": keeps_cpu}
    return asyncio.ensure_future(host.ask(who(i, task), header))


async def train(host, task, *, keeps_cpu):
    """Make ten rounds of a task of four collectors; return the most of all tasks that acted at once."""
    most = 0
    for round_ in range(1, 11):
        waits = [wake(host, i, round=round_, keeps_cpu=keeps_cpu, task=task) for i in range(4)]
        while not all(one.done() for one in waits):
            await turns()
            most = max(most, len(host.acting))
            for future in [future for key, future in host.acting.items() if key[1] == task]:
                future.set_result("experience")
    return most


@pytest.mark.parametrize("n_slots", [1, 2, 3])
@pytest.mark.parametrize("keeps_cpu", [False, True])
def test_few_slots_serve_all_collectors_in_every_mode(n_slots, keeps_cpu):
    """Two tasks of four collectors: never more at once than slots, and nobody waits for ever."""

    async def go():
        host = Pretended(n_slots)
        for key in [who(i, task) for task in "ab" for i in range(4)]:
            host.add(key)
        trained = (train(host, task, keeps_cpu=keeps_cpu) for task in "ab")
        return await asyncio.wait_for(asyncio.gather(*trained), 10.0)

    assert max(asyncio.run(go())) == n_slots


def test_the_answer_tells_of_the_slot():
    """What was waited, what the node lends, who shares it, and whether it is kept."""

    async def go():
        host = Pretended(2)
        for i in range(3):
            host.add(who(i))
        host.kept["r", "b", 0] = (1, b"")
        host.add(("probe", "x", 0)), host.add(("r", "a", -1))
        waits = [wake(host, i, keeps_cpu=i == 0) for i in range(3)]
        await turns()
        assert len(host.acting) == 2
        for i in range(3):
            host.acting[who(i)].set_result("experience")
            await turns()
        return [one.result()[0]["slot"] for one in waits]

    first, second, third = asyncio.run(go())
    assert (first["queued_s"], first["keeps_cpu"]) == (0.0, True)
    assert (second["queued_s"], second["keeps_cpu"]) == (0.0, False)
    assert third["queued_s"] > 0.0
    assert {(one["n_cpu_slots"], one["n_sharing"]) for one in (first, second, third)} == {(2, 4)}


@pytest.mark.parametrize("op", ["error", "evaluated", "experience"])
def test_a_slot_comes_back_with_the_answer(op):
    """Whoever keeps one keeps it over an evaluation; an environment that raised keeps none."""

    async def go():
        host = Pretended(2)
        host.add(who(0))
        asked = wake(host, 0, keeps_cpu=True)
        await turns()
        host.acting[who(0)].set_result(op)
        answer, _ = await asked
        return answer["slot"]["keeps_cpu"], host.cpu.slots.n_held

    assert asyncio.run(go()) == ((False, 0) if op == "error" else (True, 1))


def test_a_collector_that_is_lost_in_the_queue_is_gone():
    """Its wake ends with an error, its place is another's."""

    async def go():
        host = Pretended(1)
        lost = host.on_lost = Lost()
        for i in range(3):
            host.add(who(i))
        waits = [wake(host, i) for i in range(3)]
        await turns()
        host._closed(host.live[who(1)])
        host.acting[who(0)].set_result("experience")
        await turns()
        host.acting[who(2)].set_result("experience")
        answers = await asyncio.gather(*waits, return_exceptions=True)
        await turns()
        assert lost.keys == [who(1)]
        return answers

    first, second, third = asyncio.run(go())
    assert isinstance(second, ConnectionError)
    assert (first[0]["op"], third[0]["op"]) == ("experience", "experience")


def test_without_a_number_there_are_as_many_as_cpus():
    """Until the broker has said how many agents share them."""
    assert CollectorHost(Zygote(Path("zygote.log"))).cpu.slots.n_slots == n_cpus() >= 1


# ------------------------------------------------------------------ shares
class PretendedBroker:
    """What the shares see of a broker."""

    def __init__(self):
        self.pool = PoolMachine(LeasingSettings(), 1)
        self.tasks = []
        self.host = SimpleNamespace(feed=self.feed, spawn=lambda work: self.tasks.append(asyncio.ensure_future(work)))
        self.told = []

    def feed(self, kind, **values):
        self.pool.handle(kind(t=0.0, **values))

    async def ask_node(self, node, op, timeout_s, **message):
        del timeout_s
        self.told.append((node, op, message["n_slots"]))


def test_agents_of_a_host_share_its_cpus():
    """8 CPUs: 8, then 4 each, then 2 for each of three; another host has its own."""

    async def go():
        broker = PretendedBroker()
        nodes = Nodes(broker)
        for node, host, n in (("0", "h", 8), ("1", "h", 8), ("x", "g", 3), ("2", "h", 8)):
            nodes.rows[node] = {"host": host, "n_cpus": n}
            nodes._share_cpus(host, added=node)
        await asyncio.gather(*broker.tasks)
        del nodes.rows["2"]
        nodes._share_cpus("h")
        await asyncio.gather(*broker.tasks)
        return broker, nodes

    broker, nodes = asyncio.run(go())
    assert broker.told == [
        ("0", "drlnb_cpu_slots", 2), ("0", "drlnb_cpu_slots", 2), ("1", "drlnb_cpu_slots", 2),
        ("0", "drlnb_cpu_slots", 4), ("1", "drlnb_cpu_slots", 4),
    ]  # fmt: skip
    assert nodes.cpu_slots("x")["n_slots"] == 3
    assert broker.pool.snapshot()["nodes"] == {"0": 4, "1": 4, "x": 3, "2": 2}
    assert nodes.cpu_slots("0")["number"] < nodes.cpu_slots("0")["number"], "a later word has a larger number"


def test_a_person_chooses_another_number():
    """For each node, for placement too; `auto` is the share again, a wrong value is refused and changes nothing."""
    pool = PoolMachine(LeasingSettings(), 1)
    pool.handle(NodeAdded(t=0.0, node="0", host="h", n_collector_slots=8))
    assert pool.handle(SettingChanged(t=0.0, key=CPU_SLOTS_KEY, value=3, task=None)) == ()
    assert (pool.state.cpu_slots, pool.n_slots) == (3, 0)
    (refused,) = pool.handle(SettingChanged(t=0.0, key=CPU_SLOTS_KEY, value=0, task=None))
    assert refused.reason.endswith("got 0")
    assert pool.state.cpu_slots == 3
    copy = PoolMachine(LeasingSettings(), 1)
    copy.restore(pool.snapshot())
    assert copy.state.cpu_slots == 3
    pool.handle(SettingChanged(t=0.0, key=CPU_SLOTS_KEY, value="auto", task=None))
    assert pool.state.cpu_slots == 0


def test_a_process_that_is_up_lends_its_slot_to_who_can_act():
    """Mode respawn: from ready to the wake; and one that is shed again before it was heard of is told nothing."""

    async def go():
        queue = CpuQueue(1)
        started, _ = await queue.act(who(0), 1, 2)
        waits = asyncio.ensure_future(queue.act(who(1), 1, 1))
        ahead = asyncio.ensure_future(queue.ahead(who(2), 1, 2))
        await turns()
        queue.rest(started)
        place, _ = await waits
        woken = asyncio.ensure_future(queue.act(who(0), 1, 2))
        await turns()
        queue.resize(2)
        await woken
        queue.sent(place)
        await ahead
        assert queue.slots.places[who(2)].state == "ahead"

    asyncio.run(go())


def test_a_start_that_was_asked_for_twice_is_one_place():
    """Whoever ends one of the two messages takes the place back: the other one ends in words."""

    async def go():
        queue = CpuQueue(1)
        first, _ = await queue.act(who(0), 1, 1)
        ahead = [asyncio.ensure_future(queue.ahead(who(1), 1, 2)) for _ in range(2)]
        await turns()
        assert not ahead[0].done()
        ahead[1].cancel()
        await asyncio.gather(ahead[1], return_exceptions=True)
        with pytest.raises(ConnectionError):
            await ahead[0]
        queue.sent(first)
        assert queue.slots.n_held == 0

    asyncio.run(go())
