"""The host of a pure machine, and the journal's writer."""

import asyncio
import inspect
import json

import pytest

from drlnb.records.base import Command, Event
from drlnb.records.common import DeadlinePassed, SetDeadline
from drlnb.runtime.machine_host import JournalWriter, MachineHost


class Poked(Event):
    """Something for the machine below."""

    n: int


class Shout(Command):
    """What the machine below answers."""

    n: int


class Echo:
    """Answers each poke with a command, and 7 with a deadline."""

    def __init__(self):
        self.heard = []

    def handle(self, event):
        self.heard.append(event)
        if isinstance(event, DeadlinePassed):
            return ()
        return (SetDeadline(name="d", after_s=0.0),) if event.n == 7 else (Shout(n=event.n),)

    def check(self):
        pass

    def restore(self, state):
        pass


def test_journal_before_effect_and_nested_feeds_wait():
    """Records reach the sinks before the effect starts; an event fed by an effect is handled after its cause."""
    order = []

    async def go():
        def effect(command):
            order.append(("effect", command.n))
            if command.n < 2:
                host.feed(Poked, n=command.n + 1)

        host = MachineHost(Echo(), effect, [lambda r: order.append((type(r).__name__, getattr(r, "n", None)))])
        host.feed(Poked, n=1)
        await host.close()

    asyncio.run(go())
    assert order == [
        ("Poked", 1), ("Shout", 1), ("effect", 1),
        ("Poked", 2), ("Shout", 2), ("effect", 2),
    ]  # fmt: skip


def test_a_deadline_comes_back_as_an_event():
    """SetDeadline is answered by DeadlinePassed; after close nothing comes any more."""
    machine = Echo()

    async def go():
        passed = asyncio.Event()
        host = MachineHost(machine, lambda c: None, [lambda r: isinstance(r, DeadlinePassed) and passed.set()])
        host.feed(Poked, n=7)
        await asyncio.wait_for(passed.wait(), 5)
        await host.close()
        host.feed(Poked, n=1)

    asyncio.run(go())
    assert [type(event).__name__ for event in machine.heard] == ["Poked", "DeadlinePassed"]


def test_time_never_runs_backwards():
    """Events carry times that never decrease, whatever the clock says."""
    machine = Echo()

    async def go():
        host = MachineHost(machine, lambda c: None, [])
        host.feed(Poked, n=1)
        host._t0 += 100.0  # the clock is set back
        host.feed(Poked, n=2)
        await host.close()

    asyncio.run(go())
    assert machine.heard[0].t <= machine.heard[1].t


def test_an_effect_that_raises_is_told():
    """A defect in an effect reaches `on_defect` with its traceback instead of being lost in a task."""
    told = []

    async def boom():
        raise ZeroDivisionError("planted")

    async def go():
        host = MachineHost(Echo(), lambda c: boom(), [])
        told_event = asyncio.Event()
        host.on_defect = lambda text: (told.append(text), told_event.set())
        host.feed(Poked, n=1)
        await asyncio.wait_for(told_event.wait(), 5)
        await host.close()

    asyncio.run(go())
    assert "ZeroDivisionError: planted" in told[0]


def test_an_effect_that_is_cancelled_before_it_begins_is_closed():
    """The host ends in the same turn of the loop: nothing is left that was never awaited."""

    async def nothing():
        """Do nothing."""

    effect = nothing()

    async def go():
        host = MachineHost(Echo(), lambda c: effect, [])
        host.feed(Poked, n=1)
        await host.close()

    asyncio.run(go())
    assert inspect.getcoroutinestate(effect) == inspect.CORO_CLOSED


def test_the_writer_writes_every_line_in_order(tmp_path):
    """Lines come out whole and in order; close waits for them."""
    writer = JournalWriter(tmp_path / "deep" / "a.jsonl")
    for n in range(1000):
        writer.write(Poked(t=0.0, n=n))
    writer.close()
    lines = (tmp_path / "deep" / "a.jsonl").read_text().splitlines()
    assert [json.loads(line)["n"] for line in lines] == list(range(1000))


def test_a_disk_that_refuses_is_told_once_and_nothing_is_doubled(tmp_path, monkeypatch):
    """While the disk refuses, lines wait; a half-written piece is cut off; when there is room all are there once."""
    told = []
    monkeypatch.setattr("drlnb.runtime.machine_host._FLUSH_S", 0.01)
    writer = JournalWriter(tmp_path / "a.jsonl", told.append)
    real = JournalWriter._append
    refusals = [True, True]

    def full(self, data):
        if refusals:
            refusals.pop()
            real(self, data[: len(data) // 2])
            with self.path.open("r+b") as file:
                file.truncate(0)
            raise OSError(28, "No space left on device")
        real(self, data)

    monkeypatch.setattr(JournalWriter, "_append", full)
    for n in range(10):
        writer.write(Poked(t=0.0, n=n))
    while refusals:
        writer.write(Poked(t=0.0, n=99))
        writer._thread.join(0.01)
    writer.close()
    ns = [json.loads(line)["n"] for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [n for n in ns if n != 99] == list(range(10))
    assert len(told) == 1
    assert "No space left on device" in told[0]


@pytest.mark.slow
def test_a_real_full_device(tmp_path):
    """Writing to a device that is always full is told and does not hang."""
    told = []
    (tmp_path / "full.jsonl").symlink_to("/dev/full")
    writer = JournalWriter(tmp_path / "full.jsonl", told.append)
    writer.write(Poked(t=0.0, n=1))
    writer.close()
    assert told
