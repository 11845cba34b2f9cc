"""When does drlnb leave a cluster of somebody else's?  A broker and a played scheduler, without a wire."""

import asyncio
from types import SimpleNamespace

import pytest

from drlnb.runtime.protocol import AGENT, BROKER
from drlnb.runtime.scheduler import plugin as module
from drlnb.runtime.scheduler.plugin import BrokerPlugin


class Scheduler(SimpleNamespace):
    """What the broker sees of a scheduler with two clients."""

    def __init__(self):
        super().__init__(handlers={"identity": None}, clients={"c1": None, "c2": None}, plugins={}, left=[])
        self.answers = asyncio.Event()
        self.answers.set()

    async def unregister_worker_plugin(self, comm, name):
        assert comm is None
        self.left.append(name)
        await self.answers.wait()

    def remove_plugin(self, name):
        del self.plugins[name]
        self.left.append(name)


def play(scene):
    async def within():
        scheduler = Scheduler()
        broker = scheduler.plugins[BROKER] = BrokerPlugin()
        await broker.start(scheduler)
        try:
            await asyncio.wait_for(scene(broker, scheduler), 5.0)
            if broker._leaving is not None:
                await broker._leaving
        finally:
            await broker.close()
        return scheduler

    return asyncio.run(within())


def test_with_the_last_fleet_agents_and_broker_go():
    """Not with the first; then no handler of ours is left, so that another fleet finds a cluster as it was."""

    async def scene(broker, scheduler):
        await broker.hello(fleet="f1", client="c1")
        await broker.hello(fleet="f2", client="c1")
        await broker.goodbye("f1")
        assert (broker._leaving, scheduler.left) == (None, [])
        await broker.goodbye("f2")

    scheduler = play(scene)
    assert scheduler.left == [AGENT, BROKER]
    assert (list(scheduler.handlers), scheduler.plugins) == (["identity"], {})


def test_the_last_fleet_is_closed_when_the_agents_have_ended():
    """Whoever closes the cluster next cuts nothing short."""

    async def scene(broker, scheduler):
        scheduler.answers.clear()
        await broker.hello(fleet="f", client="c1")
        closing = asyncio.create_task(broker.goodbye("f"))
        while AGENT not in scheduler.left:
            await asyncio.sleep(0)
        assert not closing.done()
        scheduler.answers.set()
        await closing
        assert scheduler.left == [AGENT, BROKER]

    play(scene)


def test_while_a_run_or_a_loop_goes_on_nobody_leaves(monkeypatch):
    """The look comes again when a run has ended, and finds that nothing is left to do."""
    busy = {"run": True}
    monkeypatch.setattr(module.Runs, "any_live", property(lambda self: busy["run"]))

    async def scene(broker, scheduler):
        await broker.hello(fleet="f", client="c1")
        await broker.goodbye("f")
        assert broker.valid_workers_downscaling(scheduler, ["w"]) == []
        assert broker._leaving is None
        monkeypatch.setattr(module, "KEEP_S", 0.0)
        busy["run"] = False
        broker.leave_later()
        while broker._leaving is None:
            await asyncio.sleep(0)

    assert play(scene).left == [AGENT, BROKER]


def test_a_client_that_goes_without_a_word_counts_no_more_after_a_while(monkeypatch):
    """One that is back by then does; the clients of others mean nothing."""
    monkeypatch.setattr(module, "KEEP_S", 0.0)

    async def scene(broker, scheduler):
        await broker.hello(fleet="f", client="c1")
        for client in ("c2", "c1"):
            broker.remove_client(scheduler, client)
            for _ in range(3):  # turns of the loop in which a timer of 0 s is due
                await asyncio.sleep(0)
            assert broker._leaving is None
        del scheduler.clients["c1"]
        broker.remove_client(scheduler, "c1")
        while broker._leaving is None:
            await asyncio.sleep(0)

    assert play(scene).left == [AGENT, BROKER]


def test_a_fleet_that_comes_while_drlnb_leaves_waits_and_is_told(monkeypatch):
    """It registers anew then; an agent that does not answer keeps nobody from leaving."""
    monkeypatch.setattr(module, "_LEAVE_S", 0.01)

    async def scene(broker, scheduler):
        scheduler.answers.clear()
        await broker.hello(fleet="f", client="c1")
        closing = asyncio.create_task(broker.goodbye("f"))
        while broker._leaving is None:
            await asyncio.sleep(0)
        late = await broker.hello(fleet="g", client="c1")
        await closing
        assert (late["leaving"], scheduler.left, broker._fleets) == (True, [AGENT, BROKER], {})

    play(scene)


def test_a_cluster_of_our_own_is_left_by_nobody():
    """It ends as a whole: no fleet there says that it comes or goes."""

    async def scene(broker, scheduler):
        await broker.hello()
        broker._leave_if_unused()
        assert broker._leaving is None

    assert play(scene).left == []


@pytest.mark.parametrize(("fleets", "closed"), [({}, ["a", "b"]), ({"f": "c1"}, ["b"]), ({"f": "gone"}, ["a", "b"])])
def test_workers_with_slots_stay_while_a_fleet_is_open(fleets, closed):
    """An adaptive cluster would close them, idle as they are, before the first run."""
    workers = [SimpleNamespace(address=name) for name in ("a", "b")]

    async def scene(broker, scheduler):
        broker._fleets |= fleets
        broker.nodes.rows["n"] = {"address": "a", "host": "h"}
        broker.nodes.given["n"] = {"n/cpu0": {}}
        kept = broker.valid_workers_downscaling(scheduler, workers)
        assert [worker.address for worker in kept] == closed

    play(scene)
