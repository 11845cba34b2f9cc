"""Host a pure machine in an event loop; broker, masters and tests use this one class.

An event is stamped, *journalled*, handled; its answer is journalled; then each command's effect starts.  The order is
what makes replay exact: a crash between journal and effect loses an effect, never a decision.
"""

import asyncio
import os
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any, TypeVar

import drlnb.learned  # noqa: F401  # its planners have names, too
from drlnb.planning.machine import AnyMachine
from drlnb.planning.pool import PoolMachine
from drlnb.planning.round.machine import RoundMachine
from drlnb.records.base import Command, Event, Record
from drlnb.records.common import DeadlinePassed, SetDeadline
from drlnb.records.journal import StreamOpened, closed_parts
from drlnb.records.packed import Packer
from drlnb.runtime.background import Background
from drlnb.runtime.protocol import Plain, drlnb_version

__all__ = ["EffectTable", "JournalWriter", "MachineHost", "by_class", "stream_header"]

#: What carries out a command: at once, or as a coroutine that is returned.
_Effect = Callable[[Any], Coroutine[object, object, object] | None]
#: What carries out the commands of each class.
EffectTable = Mapping[type[Command], _Effect]

_R = TypeVar("_R", bound=Record)

#: Longest time that a journalled record stays in memory, in seconds.
_FLUSH_S = 0.25
#: Records kept in memory while the disk refuses them.
_MAX_PENDING = 200_000
#: Bytes after which a stream goes on in another file, and of closed files that are kept: about half a million rounds.
_PART_BYTES, _KEPT_BYTES = 64_000_000, 1_000_000_000
#: Decimals of an event's second and of durations in the journal: microseconds.
_DIGITS = 6


def _in_us(name: str, value: object) -> object:
    """Round a field that is a duration."""
    return round(value, _DIGITS) if isinstance(value, float) and name.endswith("_s") else value


def by_class(table: EffectTable) -> _Effect:
    """Return what carries out each command by a table; a class that is not in it is a defect."""
    return lambda command: table[type(command)](command)


def stream_header(stream: str, name: str, machine: PoolMachine | RoundMachine) -> StreamOpened:
    """Return the first record of a stream of a machine's that begins between two of its events."""
    return StreamOpened(
        stream=stream,
        machine=name,
        config=machine.config,
        snapshot=machine.snapshot(),
        origin="measured",
        version=drlnb_version(),
    )


class JournalWriter:
    """Appends records to one file from a thread; a full disk is noted, never fatal.

    A stream that is long goes on in another file, which begins with the machine as it is between two events and so can
    be replayed alone; the full one is closed (``NAME~1.jsonl``).  The oldest closed files go when there are too many.

    Parameters
    ----------
    path
        The stream's file; its folder is made.
    on_note
        Called from the writer's thread with what to say, as ``JournalFailed`` (once) when the disk refuses, as
        ``Defect`` when a file was dropped.
    header
        Returns what a file begins with; asked before an event is handled.  None: one file has it all.
    """

    def __init__(
        self,
        path: Path,
        on_note: Callable[[str, str], None] = lambda kind, text: None,
        header: Callable[[], StreamOpened] | None = None,
    ) -> None:
        self.path = path
        self.failure = ""
        #: Size of the file after what was written last.
        self.n_bytes = 0
        self._on_note, self._header = on_note, header
        self._records: deque[Record] = deque()
        self._pending: deque[Record] = deque(maxlen=_MAX_PENDING)
        self._packer = Packer()
        self._n_closed = 0
        #: The newest file is full, and no header has been queued for the next one yet.
        self._is_full = False
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"drlnb-journal-{path.stem}", daemon=True)
        self._thread.start()

    def write(self, record: Record) -> None:
        """Queue a record.  It wakes nobody: the thread looks by itself, so that the loop does not share its time."""
        if self._is_full and isinstance(record, Event) and self._header is not None:
            self._is_full = False
            self._records.append(self._header())
        self._records.append(record)

    def close(self) -> None:
        """Write what is queued and end the thread."""
        self._closing.set()
        self._thread.join(timeout=10.0)

    def _run(self) -> None:
        last = False
        while not last:
            last = self._closing.wait(_FLUSH_S)
            while self._records:
                self._pending.append(self._records.popleft())
            try:
                while self._pending:
                    self._write_part()
            except OSError as error:
                self._packer = Packer()  # nobody has read what it has said
                if not self.failure:
                    self._on_note("JournalFailed", f"{self.path}: {error.strerror}")
                self.failure = str(error)

    def _write_part(self) -> None:
        """Write what waits, up to the header of another file."""
        first, *rest = self._pending
        if isinstance(first, StreamOpened) and self.n_bytes:
            self._next_file()
        here = [first, *takewhile(lambda record: not isinstance(record, StreamOpened), rest)]
        n_before = self.n_bytes
        self._append("".join(map(self._packer.line, here)).encode())
        if n_before < _PART_BYTES <= self.n_bytes:
            self._is_full = True
        for _ in here:
            self._pending.popleft()

    def _next_file(self) -> None:
        """Close the file, and drop the oldest ones if there are too many."""
        self._n_closed += 1
        self.path.replace(self.path.with_name(f"{self.path.stem}~{self._n_closed}.jsonl"))
        self._packer, self.n_bytes = Packer(), 0
        closed = [path for _, path in closed_parts(self.path)]
        while sum(path.stat().st_size for path in closed) > _KEPT_BYTES:
            oldest = closed.pop(0)
            self._on_note("Defect", f"{oldest} was dropped: of {self.path.stem} {_KEPT_BYTES / 1e6:,.0f} MB are kept")
            oldest.unlink()

    def _append(self, data: bytes) -> None:
        """Append all of `data` or nothing of it: what is half written is cut off, to be tried again in one piece."""
        if not self.n_bytes:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        # A file that somebody has removed is not made anew: it would lack its beginning.
        with open(self.path, "ab", buffering=0, opener=_existing if self.n_bytes else None) as file:
            size = os.fstat(file.fileno()).st_size
            try:
                view = memoryview(data)
                while view:
                    view = view[file.write(view) :]
            except OSError:
                file.truncate(size)
                raise
        self.n_bytes = size + len(data)


def _existing(path: str, flags: int) -> int:
    return os.open(path, flags & ~os.O_CREAT)


class MachineHost:
    """Feeds one machine; owner's event loop only.

    Parameters
    ----------
    machine
        The machine.
    effects
        Returns the coroutine that carries out a command, or ``None`` if it was done at once.
    sinks
        Each is called with every record, in order (journal writer, live rows).
    t0
        ``time.monotonic()`` at the stream's zero.
    """

    def __init__(
        self, machine: AnyMachine, effects: _Effect, sinks: list[Callable[[Record], None]], *, t0: float | None = None
    ) -> None:
        self.machine = machine
        self.sinks = sinks
        self._effects = effects
        self._t0 = time.monotonic() if t0 is None else t0
        self._last_t = 0.0
        self._queue: deque[tuple[type[Event], Plain]] = deque()
        self._feeding = False
        self._tasks = Background()
        self._deadlines: dict[str, asyncio.TimerHandle] = {}
        self._closed = False
        #: Called with a traceback when an effect raises: a defect of ours that the owner must make visible.
        self.on_defect: Callable[[str], None] | None = None

    @property
    def now(self) -> float:
        """Seconds since the stream's zero."""
        return time.monotonic() - self._t0

    def open(self, header: StreamOpened) -> None:
        """Write the header to every sink."""
        for sink in self.sinks:
            sink(header)

    def feed(self, kind: type[Event], **fields: object) -> None:
        """Stamp an event, let the machine handle it, start the effects; a nested call waits its turn."""
        if self._closed:
            return
        self._queue.append((kind, fields))
        if self._feeding:
            return
        self._feeding = True
        try:
            while self._queue:
                self._one(*self._queue.popleft())
        finally:
            self._feeding = False

    def feed_for(self, wanted: type[_R], kind: type[Event], /, **fields: object) -> list[_R]:
        """Feed an event and return the answer's records of one class (the loop is ours alone meanwhile)."""
        heard: list[Record] = []
        listen = heard.append
        self.sinks.append(listen)
        try:
            self.feed(kind, **fields)
        finally:
            self.sinks.remove(listen)
        return [record for record in heard if isinstance(record, wanted)]

    def _one(self, kind: type[Event], fields: Plain) -> None:
        self._last_t = max(self._last_t, round(self.now, _DIGITS))
        event = kind(t=self._last_t, **{name: _in_us(name, value) for name, value in fields.items()})
        for sink in self.sinks:
            sink(event)
        answer = self.machine.handle(event)
        for record in answer:
            for sink in self.sinks:
                sink(record)
        for record in answer:
            if isinstance(record, SetDeadline):
                self._set_deadline(record)
            elif isinstance(record, Command):
                effect = self._effects(record)
                if effect is not None:
                    self.spawn(effect)

    def _set_deadline(self, command: SetDeadline) -> None:
        former = self._deadlines.pop(command.name, None)
        if former is not None:
            former.cancel()
        loop = asyncio.get_running_loop()
        self._deadlines[command.name] = loop.call_later(command.after_s, self._passed, command.name)

    def _passed(self, name: str) -> None:
        self._deadlines.pop(name, None)
        self.feed(DeadlinePassed, name=name)

    def spawn(self, effect: Coroutine[object, object, object]) -> asyncio.Task[None]:
        """Run something in the background until it is done or this host closes; what it raises is a defect."""
        task = self._tasks.keep(self._guard(effect))
        task.add_done_callback(lambda _: effect.close())  # of one that is cancelled before it begins
        return task

    async def _guard(self, effect: Coroutine[object, object, object]) -> None:
        try:
            await effect
        except Exception:
            if self.on_defect is None:
                raise
            self.on_defect(traceback.format_exc())

    def shut(self) -> None:
        """Refuse further events."""
        self._closed = True

    async def close(self) -> None:
        """Refuse further events; cancel what still runs."""
        self.shut()
        for handle in self._deadlines.values():
            handle.cancel()
        self._deadlines.clear()
        await self._tasks.cancel()
