"""A slot whose tasks have a process each: who gets which, who dies, who is ended for want of room."""

import asyncio
from types import SimpleNamespace

import pytest

from drlnb.records.ids import Fence
from drlnb.runtime.node import executor_host, isolated_executors
from drlnb.runtime.node.executor_host import WorkGate
from drlnb.runtime.node.isolated_executors import Tenants
from tests.runtime.played import Child


class Heard:
    """What a slot says of itself."""

    def __init__(self):
        self.ups, self.lost = [], []


@pytest.fixture
def act(monkeypatch, tmp_path):
    """Run a coroutine with a slot whose processes are played."""
    monkeypatch.setattr(executor_host, "ChildProcess", Child)
    monkeypatch.setattr(executor_host, "_RESTART_S", 0.0)
    monkeypatch.setattr(Child, "made", [])
    plenty = SimpleNamespace(available=100)
    monkeypatch.setattr(isolated_executors, "MEMORY_LIMIT", 100)
    monkeypatch.setattr(isolated_executors.psutil, "virtual_memory", lambda: plenty)
    rss = SimpleNamespace(memory_info=lambda: SimpleNamespace(rss=1))
    monkeypatch.setattr(isolated_executors.psutil, "Process", lambda pid: rss)

    def run(work, device="cpu"):
        async def main():
            heard = Heard()
            slot = Tenants(
                "0/cpu0",
                device,
                tmp_path / "executor.log",
                WorkGate("0/cpu0"),
                lambda one: heard.ups.append((one.epoch, one.device_name)),
                lambda one, task, fence, why: heard.lost.append((task, fence and fence.token, why)),
            )
            slot.start()
            while not heard.ups:
                await asyncio.sleep(0)
            try:
                await asyncio.wait_for(work(slot, heard), 5.0)
            finally:
                await slot.end()
            assert all(child.closed for child in Child.made), "nothing is left"
            return heard

        return asyncio.run(main())

    return run


async def ask(slot, task, token, op="stage"):
    answer, _ = await slot.ask({"op": op, "task": task, "fence": Fence(1, token)}, timeout_s=5.0)
    return answer


async def settled():
    """Let what has been started in the background go as far as it can."""
    for _ in range(50):
        await asyncio.sleep(0)
    await asyncio.sleep(0.02)


def test_each_task_has_a_process_and_keeps_it(act):
    """The first one is there when the slot is up and is the first task's; the next one comes with a first lease."""

    async def work(slot, heard):
        assert len(Child.made) == 1
        for token, task in enumerate(["r/a", "r/b", "r/a", "r/b"], 1):
            assert await ask(slot, task, token) == {"op": "done"}
        a, b = Child.made
        assert (a.frames, b.frames) == (["own", "stage", "stage"], ["own", "stage", "stage"])
        assert slot.pids == [a.pid, b.pid]

    heard = act(work)
    assert (heard.ups, heard.lost) == ([(1, "cpu")], [])


def test_one_gate_is_before_all_processes(act):
    """A task whose lease is over is refused, though its own process never saw the higher fence."""

    async def work(slot, heard):
        await ask(slot, "r/a", 1)
        await ask(slot, "r/b", 2)
        assert (await ask(slot, "r/a", 1))["reason"] == "fence #1 of epoch 1 is below the highest seen, #2 of epoch 1"
        assert Child.made[0].frames == ["own", "stage"]

    act(work)


def test_one_piece_of_work_at_a_time(act):
    """Also when a former lease's work still runs: no two processes of a slot compute at once."""

    async def work(slot, heard):
        await ask(slot, "r/a", 1)
        await ask(slot, "r/b", 2)
        a, b = Child.made
        a.working = asyncio.get_running_loop().create_future()
        first = asyncio.ensure_future(ask(slot, "r/a", 3))
        await settled()
        second = asyncio.ensure_future(ask(slot, "r/b", 4))
        await settled()
        assert (a.frames.count("stage"), b.frames.count("stage")) == (2, 1)
        a.working.set_result(None)
        assert [await first, await second] == [{"op": "done"}] * 2

    act(work)


def test_a_process_that_dies_costs_its_own_task_alone(act):
    """The pool hears whose it was and under which lease; the others live; the task's next lease gets a new process."""

    async def work(slot, heard):
        await ask(slot, "r/a", 1)
        await ask(slot, "r/b", 2)
        a, b = Child.made
        a.working = asyncio.get_running_loop().create_future()
        asking = asyncio.ensure_future(ask(slot, "r/a", 3))
        await settled()
        a.kill()
        with pytest.raises(ConnectionError, match="signal 9"):
            await asking
        with pytest.raises(ConnectionError, match="in the midst of this lease"):
            await ask(slot, "r/a", 3)
        assert not b.closed
        assert await ask(slot, "r/b", 4) == {"op": "done"}
        assert await ask(slot, "r/a", 5) == {"op": "done"}
        assert len(Child.made) == 3
        assert b.frames.count("stage") == 2

    heard = act(work)
    assert heard.lost == [("r/a", 3, "executor killed by signal 9")]
    assert heard.ups == [(1, "cpu")]


def test_an_idle_process_that_dies_costs_no_lease(act):
    """Its task worked under a lease that is over: whoever holds the slot goes on."""

    async def work(slot, heard):
        await ask(slot, "r/a", 1)
        await ask(slot, "r/b", 2)
        Child.made[0].kill()
        await settled()
        assert await ask(slot, "r/b", 2) == {"op": "done"}
        assert heard.lost == [("r/a", 1, "executor killed by signal 9")]

    act(work)


def test_a_process_that_cannot_be_started_ends_the_lease(act, monkeypatch):
    """The pool hears of it, so that the slot is lent to others."""

    async def work(slot, heard):
        await ask(slot, "r/a", 1)
        monkeypatch.setattr(Child, "stuck", True)
        asking = asyncio.ensure_future(ask(slot, "r/b", 2))
        await settled()
        Child.made[1].kill()
        with pytest.raises(ConnectionError):
            await asking
        await settled()
        assert ("r/b", 2) in [(task, token) for task, token, _ in heard.lost]
        assert await ask(slot, "r/a", 3) == {"op": "done"}

    act(work)


def test_a_lease_that_is_taken_away_while_its_process_starts_is_not_begun(act, monkeypatch):
    """Nothing of it runs, so the slot is idle at once; its late frame is not computed when the process is up."""

    async def work(slot, heard):
        await ask(slot, "r/a", 1)
        monkeypatch.setattr(Child, "stuck", True)
        asking = asyncio.ensure_future(ask(slot, "r/b", 2))
        await settled()
        assert await slot.quiet(Fence(1, 2), 60.0) is True
        slot._tenants["r/b"]._frame({"op": "up", "device_name": "cpu"}, b"")
        with pytest.raises(ConnectionError, match="the lease is over"):
            await asking
        assert "stage" not in Child.made[1].frames
        assert not Child.made[1].closed, "the process stays, for the task's next lease"

    act(work)


def test_work_that_does_not_end_is_killed_with_its_process_alone(act):
    """After the grace the slot is idle: the next holder need not wait for a new executor."""

    async def work(slot, heard):
        await ask(slot, "r/a", 1)
        await ask(slot, "r/b", 2)
        a, b = Child.made
        a.working = asyncio.get_running_loop().create_future()
        asking = asyncio.ensure_future(ask(slot, "r/a", 3))
        await settled()
        assert await slot.quiet(Fence(1, 3), 0.0) is True
        with pytest.raises(ConnectionError):
            await asking
        assert (a.closed, b.closed) == (True, False)
        assert b.frames[-1] == "job-end", "what a holder keeps is freed wherever it is"
        assert await ask(slot, "r/b", 4) == {"op": "done"}
        assert [(task, token) for task, token, _ in heard.lost] == [("r/a", 3)]

    act(work)


def test_a_task_that_ends_takes_its_process_along(act):
    """And a loop's word of its end needs none."""

    async def work(slot, heard):
        await ask(slot, "r/a", 1)
        await ask(slot, "r/b", 2)
        slot.forget("r/a")
        slot.forget("r/none")
        await settled()
        assert [child.closed for child in Child.made] == [True, False]
        assert await ask(slot, "r/a", 2, "job-end") == {"op": "freed"}
        assert await ask(slot, "r/b", 2, "job-end") == {"op": "done"}
        assert heard.lost == []

    act(work)


@pytest.mark.thorough
def test_a_loop_that_takes_no_other_lease_leaves_no_process_behind(act, monkeypatch):
    """Its process stays for a while after a lease, returned or taken away; a new lease keeps it; a task's stays."""
    monkeypatch.setattr(isolated_executors, "_LOOP_S", 0.15)

    async def work(slot, heard):
        for token, task in enumerate(["own-1/a", "own-1/b", "r/c"], 1):
            await ask(slot, task, token)
            await ask(slot, task, token, "job-end")
        assert await ask(slot, "own-1/b", 4) == {"op": "done"}, "in a new lease, for as long as it takes"
        while not Child.made[0].closed:
            await asyncio.sleep(0.001)
        assert await slot.quiet(Fence(1, 9), 0.0) is True
        await asyncio.sleep(0.2)
        assert [child.closed for child in Child.made] == [True, False, False]
        assert await slot.quiet(Fence(1, 4), 0.0) is True
        while not Child.made[1].closed:
            await asyncio.sleep(0.001)
        assert not Child.made[2].closed

    assert act(work).lost == []


def test_the_one_that_rested_longest_makes_room(act, monkeypatch):
    """No more than so many processes: the pool hears that it holds nothing any more, and no lease ends."""
    monkeypatch.setattr(isolated_executors, "_MOST", 2)

    async def work(slot, heard):
        for token, task in enumerate(["r/a", "r/b", "r/a", "r/c"], 1):
            await ask(slot, task, token)
        await settled()
        assert [child.closed for child in Child.made] == [False, True, False]
        assert heard.lost == [("r/b", None, "ended: 2 processes are on the slot")]

    act(work)


@pytest.mark.parametrize(
    ("device", "used", "available", "room"),
    [
        ("cpu", (0, 0), 12, True),  # one more takes 1: 11 of 100 would be left, at least 10 must be
        ("cpu", (0, 0), 10, False),
        ("cuda:GPU-1", (44, 100), 50, True),  # 44 + 44 <= 90
        ("cuda:GPU-1", (46, 100), 50, False),
        ("cuda:GPU-1", (0, 0), 50, True),  # nobody says
        ("cuda:GPU-1", (1, 100), 5, False),  # there is room on the device, and none in RAM
    ],
)
def test_who_rested_longest_makes_room_where_memory_is_short(act, monkeypatch, device, used, available, room):
    """One more process would take the device, or RAM, above 90 % of what there is."""
    monkeypatch.setattr(Child, "used", used)
    memory = SimpleNamespace(available=available)

    async def work(slot, heard):
        await ask(slot, "r/a", 1)
        monkeypatch.setattr(isolated_executors.psutil, "virtual_memory", lambda: memory)
        assert await ask(slot, "r/b", 2) == {"op": "done"}
        await settled()
        assert heard.lost == ([] if room else [("r/a", None, "ended: memory is short")])
        assert Child.made[0].closed is not room

    act(work, device)


def test_words_for_a_holder_reach_its_process(act):
    """Interrupted is who runs a function under the fence; that somebody waits is told to all, by fence."""

    async def work(slot, heard):
        await ask(slot, "own-1/a", 1)
        await ask(slot, "r/b", 2)
        assert slot.interrupt(Fence(1, 2)) is False
        slot.send({"op": "asked", "fence": Fence(1, 2)})
        assert [child.frames[-1] for child in Child.made] == ["asked", "asked"]

    act(work)
