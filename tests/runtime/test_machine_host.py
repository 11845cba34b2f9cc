"""The host of a pure machine, and the journal's writer."""

import asyncio
import inspect
from functools import partial
from pathlib import Path

import pytest

from drlnb.planning.replay import fresh_machine, replay
from drlnb.records.base import Command, Event
from drlnb.records.common import DeadlinePassed, SetDeadline
from drlnb.records.journal import Journal, StreamOpened, line_of, read_stream, stream_files
from drlnb.records.packed import Unpacker
from drlnb.runtime.machine_host import JournalWriter, MachineHost, stream_header


class Poked(Event):
    """Something for the machine below."""

    n: int


class Timed(Poked):
    """The same with a duration and a number that is none."""

    took_s: float
    rate: float


class Shout(Command):
    """What the machine below answers."""

    n: int


def numbers(path):
    unpacker = Unpacker()
    return [unpacker.record(line).n for line in path.read_text().splitlines()]


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


def test_durations_are_journalled_in_whole_microseconds():
    """A difference of two readings of a clock has seven digits more than it knows; other numbers stay as they are."""
    machine = Echo()

    async def go():
        host = MachineHost(machine, lambda c: None, [])
        host.feed(Timed, n=1, took_s=0.0008878470000013294, rate=0.0008878470000013294)
        await host.close()

    asyncio.run(go())
    assert (machine.heard[0].took_s, machine.heard[0].rate) == (0.000888, 0.0008878470000013294)


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
    assert numbers(tmp_path / "deep" / "a.jsonl") == list(range(1000))


def test_a_disk_that_refuses_is_told_once_and_nothing_is_doubled(tmp_path, monkeypatch):
    """While the disk refuses, lines wait; a half-written piece is cut off; when there is room all are there once."""
    told = []
    monkeypatch.setattr("drlnb.runtime.machine_host._FLUSH_S", 0.01)
    writer = JournalWriter(tmp_path / "a.jsonl", lambda *note: told.append(note))
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
    ns = numbers(tmp_path / "a.jsonl")
    assert [n for n in ns if n != 99] == list(range(10))
    assert len(told) == 1
    assert told[0][0] == "JournalFailed"
    assert "No space left on device" in told[0][1]


GOLDEN = Path(__file__).parents[1] / "journals"


class Flushed(JournalWriter):
    """Writes when it is told to, in the calling thread."""

    def _run(self):
        pass

    def flush(self):
        self._pending.extend(self._records)
        self._records.clear()
        while self._pending:
            self._write_part()


@pytest.fixture
def write_parts(tmp_path, monkeypatch):
    """Return what writes a golden stream as its owner would, beside a machine of its own, in files of 4.5 kB."""
    monkeypatch.setattr("drlnb.runtime.machine_host._PART_BYTES", 4_500)

    def write(name):
        golden = Journal.read(GOLDEN / "faults").streams[name]
        machine, notes = fresh_machine(golden.header), []
        header = partial(stream_header, name, golden.header.machine, machine)
        writer = Flushed(tmp_path / "journal" / f"{name}.jsonl", lambda *note: notes.append(note), header)
        writer.write(golden.header)
        for event, answer in golden.answers():
            writer.write(event)
            machine.handle(event)
            for record in answer:
                writer.write(record)
            writer.flush()
        return golden, notes

    return write


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["broker-e1", "task-sim0-a1", "task-sim1-a1"])
def test_a_long_stream_goes_on_in_other_files(tmp_path, write_parts, name):
    """Together they are the stream, record by record; each file alone replays, for it begins with the machine."""
    golden, notes = write_parts(name)
    files = stream_files(tmp_path / "journal")[name]
    assert [path.stem for path in files] == [*(f"{name}~{n}" for n in range(1, len(files))), name]
    assert len(files) >= 3
    assert notes == []
    stream = Journal.read(tmp_path).streams[name]
    assert list(map(line_of, stream.records)) == list(map(line_of, golden.records))
    assert replay(stream).difference is None
    for path in files:
        again = replay(read_stream(path))
        assert again.difference is None
        assert again.n_events > 0


def test_the_oldest_files_of_a_stream_go(tmp_path, write_parts, monkeypatch):
    """What is kept is the end of the stream, which replays; what was dropped is told by name."""
    monkeypatch.setattr("drlnb.runtime.machine_host._KEPT_BYTES", 10_000)
    golden, notes = write_parts("broker-e1")
    files = stream_files(tmp_path / "journal")["broker-e1"]
    assert sum(path.stat().st_size for path in files[:-1]) <= 10_000
    assert files[0].stem == f"broker-e1~{len(notes) + 1}"
    assert {kind for kind, _ in notes} == {"Defect"}
    assert "broker-e1~1.jsonl was dropped: of broker-e1 0 MB are kept" in notes[0][1]
    stream = Journal.read(tmp_path).streams["broker-e1"]
    kept = list(map(line_of, stream.records))
    assert kept == list(map(line_of, golden.records))[-len(kept) :]
    assert replay(stream).difference is None


def test_a_file_that_is_full_waits_for_an_event(tmp_path, monkeypatch):
    """Between an event and its answer the machine is no state to begin with; without a header nothing is cut."""
    monkeypatch.setattr("drlnb.runtime.machine_host._PART_BYTES", 1)
    begun = StreamOpened(stream="a", machine="pool", config={}, origin="measured", version="0")
    for header in (None, lambda: begun):
        writer = Flushed(tmp_path / f"{header is None}" / "a.jsonl", header=header)
        writer.write(begun)
        for n in range(3):
            writer.write(Shout(n=n))
            writer.flush()
        writer.write(Poked(t=0.0, n=9))
        writer.flush()
        files = stream_files(writer.path.parent)["a"]
        assert len(files) == (1 if header is None else 2)
        assert [type(record) for record in read_stream(files[-1]).records][-1] == Poked


@pytest.mark.slow
def test_a_real_full_device(tmp_path):
    """Writing to a device that is always full is told and does not hang."""
    told = []
    (tmp_path / "full.jsonl").symlink_to("/dev/full")
    writer = JournalWriter(tmp_path / "full.jsonl", lambda *note: told.append(note))
    writer.write(Poked(t=0.0, n=1))
    writer.close()
    assert told
