import asyncio
import threading

from drlnb.widgets.transport.hub import Hub
from drlnb.widgets.transport.pump import Pump
from tests.widgets.conftest import until


class Visited:
    """A panel that counts."""

    def __init__(self):
        self.ticks = []
        self.n_writes = 0

    def tick(self, now_s):
        self.ticks.append(threading.current_thread().name)

    def write(self):
        self.n_writes += 1


def test_the_hub_runs_while_there_is_a_panel():
    """The first panel starts one thread, the last ends it."""
    hub, a, b = Hub(0.001), Visited(), Visited()
    assert not hub.running
    hub.add(a)
    hub.add(b)
    until(lambda: a.ticks and b.ticks)
    assert set(a.ticks) == {"drlnb-hub"}
    assert [t.name for t in threading.enumerate()].count("drlnb-hub") == 1
    hub.remove(a)
    assert hub.running
    hub.remove(b)
    assert not hub.running
    assert "drlnb-hub" not in [t.name for t in threading.enumerate()]


def test_the_hub_does_not_wait_for_its_turn_when_woken():
    """A hello is answered at once, not after a quarter of a second."""
    hub, a = Hub(60.0), Visited()
    hub.add(a)
    hub.wake()
    until(lambda: a.ticks)
    hub.stop()
    assert not hub.running


def test_the_hub_holds_its_panels_weakly():
    """A panel that nobody holds ends the thread by itself."""
    hub, a = Hub(0.001), Visited()
    hub.add(a)
    thread = hub._thread
    del a
    until(lambda: not thread.is_alive())
    hub.stop()


def test_a_dear_visit_is_followed_by_a_pause_of_one_turn(monkeypatch):
    """Beyond the budget every second turn is left out, of that panel alone, unless somebody woke the hub."""
    used = [0.0]
    monkeypatch.setattr("drlnb.widgets.transport.hub.time.thread_time", lambda: used[0])

    class Dear(Visited):
        def tick(self, now_s):
            super().tick(now_s)
            used[0] += 0.021

    hub, dear, cheap = Hub(60.0), Dear(), Visited()
    hub._panels.update({dear, cheap})
    for _ in range(3):
        hub.visit(everybody=False)
    assert (len(dear.ticks), len(cheap.ticks)) == (2, 3)
    hub.visit(everybody=True)
    assert len(dear.ticks) == 3


def test_a_panel_may_leave_from_within_the_hub():
    """The thread does not wait for itself."""
    hub = Hub(0.001)

    class Leaving(Visited):
        def tick(self, now_s):
            super().tick(now_s)
            hub.remove(self)

    a = Leaving()
    hub.add(a)
    thread = hub._thread
    until(lambda: not thread.is_alive())
    assert len(a.ticks) == 1


def test_a_second_hub_life_follows_the_first():
    """After its end the hub can begin anew."""
    hub, a = Hub(0.001), Visited()
    for _ in range(3):
        hub.add(a)
        n = len(a.ticks)
        until(lambda n=n: len(a.ticks) > n)
        hub.remove(a)
        assert not hub.running


def test_the_pump_writes_on_its_loop_and_ends_with_the_last_panel():
    """One task, however many panels; nothing is left of it."""

    async def cell():
        pump, a, b = Pump(0.001), Visited(), Visited()
        loop = asyncio.get_running_loop()
        threading.Thread(target=pump.add, args=(a, loop)).start()
        pump.add(b, loop)
        while not (a.n_writes and b.n_writes):
            await asyncio.sleep(0.001)
        names = [task.get_name() for task in asyncio.all_tasks()]
        assert names.count("drlnb-pump") == 1
        pump.remove(a)
        pump.remove(b)
        await asyncio.sleep(0.01)
        assert not pump.running
        return [task.get_name() for task in asyncio.all_tasks()]

    assert "drlnb-pump" not in asyncio.run(cell())


def test_the_pump_holds_its_panels_weakly():
    """A panel that nobody holds is not kept by the pump, and ends its task."""

    async def cell():
        pump, a = Pump(0.001), Visited()
        pump.add(a, asyncio.get_running_loop())
        await asyncio.sleep(0.005)
        assert pump.running
        del a
        await asyncio.sleep(0.02)
        assert not pump.running

    asyncio.run(cell())


def test_a_pump_whose_loop_is_closed_is_left_alone():
    """A kernel that has ended its loop hears no complaint."""
    pump, a = Pump(), Visited()
    loop = asyncio.new_event_loop()
    pump.add(a, loop)
    loop.close()
    pump.remove(a)
    assert not pump.running
