"""Run users' own functions on a slot, for its holder: the executor's side of a lease.

A function runs in the executor's process, which other tasks use, too.  So what libraries keep once per process (random
generators, torch's threads and modes, the environment's variables) is put back after each function, and kept for the
same holder's next one; what a holder keeps on the slot is freed when its lease ends.
"""

import contextlib
import gc
import io
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TextIO

import numpy as np

from drlnb.records.ids import Fence
from drlnb.rl.pickled import culprit
from drlnb.runtime.children.ambient import ambient, put_back
from drlnb.runtime.children.device import Device
from drlnb.runtime.children.pulse import Pulse
from drlnb.runtime.ipc.frames import Reply
from drlnb.runtime.ipc.pickling import pack_error, pack_value, unpack
from drlnb.runtime.protocol import Plain

__all__ = ["Jobs", "Slot", "here"]

#: Printed text that travels back, in characters: the newest.
_PRINTED = 65_536


class Slot:
    """A lease as the function sees it that runs under it: which device, what is kept here, which of several slots.

    Attributes
    ----------
    device : str
        ``cuda`` (the one device that this process sees) or ``cpu``.
    state : dict
        What the holder keeps: it stays on the slot until the lease ends.
    rank, n_slots : int
        Which slot of the lease this is, counted from 0, and of how many.
    slot, name : str
        Name of the slot, and of the lease.
    """

    def __init__(self, row: Plain, device: str, say: Callable[[], None], asked: Callable[[], bool]) -> None:
        self.device = device
        self.slot, self.name = str(row["slot"]), str(row["name"])
        self.rank, self.n_slots = int(row["rank"]), int(row["n_slots"])
        self.state: dict[Any, Any] = {}
        self._say, self._asked = say, asked

    def __repr__(self) -> str:
        return f"<Slot {self.slot} ({self.device}) of lease {self.name!r}, {self.rank} of {self.n_slots}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a lease does not travel back from its slot: return what is in it")

    def progress(self) -> None:
        """Report that the function is at work: who does so now and then may compute for as long as the lease is held.

        Raises
        ------
        RuntimeError
            If it is called from another thread than the function's.
        """
        self._say()

    @property
    def asked_to_yield(self) -> bool:
        """Whether somebody waits for a slot like this one: a function may return what it has, and be called again.

        Other threads than the function's are told what that one saw last.
        """
        return self._asked()


#: The slot whose function runs now, in this process.
_now: list[Slot] = []


def here() -> Slot:
    """Return the slot whose function runs now: what a lease becomes when it travels to its slot.

    Raises
    ------
    RuntimeError
        If none runs here.
    """
    if not _now:
        raise RuntimeError("a lease can only be used where it was taken, and in functions that it runs")
    return _now[-1]


def _fresh_seeds() -> None:
    """Give a new holder random numbers of its own: torch begins each process with the same ones."""
    import torch

    random.seed()
    np.random.seed()  # noqa: NPY002 - as above
    torch.seed()


def _leave_process_groups() -> None:
    """End the process groups that functions have made; their peers learn of it once nothing here uses them."""
    import torch.distributed

    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


class _Printed(io.TextIOBase):
    """What a function prints: to the log as ever, and the newest of it back to the caller."""

    def __init__(self, log: TextIO) -> None:
        self._log = log
        self.text = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self._log.write(text)
        self.text = (self.text + text)[-_PRINTED:]
        return len(text)

    def flush(self) -> None:
        self._log.flush()


class Jobs:
    """Runs the functions of whoever holds the slot, one at a time.

    Parameters
    ----------
    device
        Where it computes.
    pulse
        Reports to the agent that a function is at work.
    look
        Reads what the agent has sent while a function runs; :meth:`asked` is told from there.
    """

    def __init__(self, device: Device, pulse: Pulse, look: Callable[[], None]) -> None:
        self._device, self._pulse, self._look = device, pulse, look
        #: The lease whose holder was asked to give way, latest word.
        self._asked: Fence | None = None
        self._slot: Slot | None = None
        self._fence: Fence | None = None
        self._ambient: list[object] | None = None
        #: A function runs, as far as a signal may interrupt it.
        self._running = False
        self._interrupted = False
        self._n_modules = len(sys.modules)
        #: Tasks' models were here when the collector was made to pass over what is here.
        self._passed_over = False

    def begin(self) -> None:
        """Make SIGINT interrupt a function, and nothing but a function; to be called once everything is imported."""
        signal.signal(signal.SIGINT, self._interrupt)
        self._settle()

    def _settle(self) -> None:
        """Have the collector pass over what is here now: the end of a lease need not look through all of torch."""
        self._n_modules = len(sys.modules)
        gc.freeze()

    def _interrupt(self, _number: int, _frame: object) -> None:
        self._interrupted = True
        if self._running:
            raise KeyboardInterrupt

    def only(self, fence: Fence) -> None:
        """Free what an earlier lease has left here."""
        if self._fence is not None and self._fence != fence:
            self.end(self._fence)

    def end(self, fence: Fence) -> Plain:
        """Free what a lease keeps here; harmless if it keeps nothing."""
        if self._fence == fence:
            self._slot = self._fence = self._ambient = None
            _leave_process_groups()
            gc.collect()  # models and their hooks are cycles
            if len(sys.modules) != self._n_modules:  # what a function has imported stays
                self._settle()
                self._passed_over = True
            self._device.free()
        return {"op": "freed"}

    def leave(self) -> Plain:
        """Leave the process groups that functions have made: one has raised, and others may wait for it there."""
        _leave_process_groups()
        gc.collect()
        return {"op": "freed"}

    def evicted(self) -> None:
        """Collect a task's model that is gone: the collector may have been made to pass over it."""
        if self._passed_over:
            gc.unfreeze()
            gc.collect()
            self._n_modules = 0  # the end of the next lease settles again: what one keeps here now must not stay

    def run(self, header: Plain, payload: memoryview) -> Reply:
        """Run a function under the header's fence; the answer holds its result, or its error."""
        fence = header["fence"]
        self.only(fence)
        if header.get("asked"):
            self.asked(fence)
        if self._slot is None:
            self._slot, self._fence = Slot(header, self._device.name, self._progress, self._is_asked), fence
        started = time.perf_counter()
        if header.get("fresh"):  # what interrupts us was meant for the one before, which had ended
            self._interrupted = False
        said = _Printed(sys.stdout)
        with self._holders(), contextlib.redirect_stdout(said):
            _now.append(self._slot)
            try:
                ok, data = self._call(payload)
            finally:
                _now.pop()
        answer = {"op": "ran", "ok": ok, "interrupted": self._interrupted, "said": said.text}
        self._interrupted = False
        return answer | {"elapsed_s": time.perf_counter() - started}, [data]

    def _call(self, payload: memoryview) -> tuple[bool, bytes]:
        try:
            self._running = True
            if self._interrupted:  # before it began
                raise KeyboardInterrupt
            fn, args, kwargs = _unpacked(payload)
            data = _packed(fn(*args, **kwargs))
            self._device.synchronise()  # what a kernel of it did wrong is its own error, not the next task's
            self._running = False
        except BaseException as error:  # noqa: BLE001 - also SystemExit: whatever ends the function ends only it
            self._running = False
            return False, pack_error(error)
        return True, data

    @contextlib.contextmanager
    def _holders(self) -> Iterator[None]:
        """Restore the process for the holder as it left it, and afterwards for others as it was."""
        ours = ambient()
        if self._ambient is None:
            _fresh_seeds()
        else:
            put_back(self._ambient)
        try:
            yield
        finally:
            try:
                self._ambient = ambient()
            finally:
                put_back(ours)

    def asked(self, fence: Fence) -> None:
        """Record that somebody waits for what the holder of `fence` has."""
        self._asked = fence

    @contextlib.contextmanager
    def _whole_frames(self) -> Iterator[None]:
        """Interrupt nothing while frames are read or sent: half a frame would be the end of the channel."""
        self._running = False
        yield
        self._running = True
        if self._interrupted:
            raise KeyboardInterrupt

    def _is_asked(self) -> bool:
        """Look whether we have been asked; only where a frame may be read, which is the function's thread."""
        if self._running and threading.current_thread() is threading.main_thread():
            with self._whole_frames():
                self._look()
        return self._fence is not None and self._asked == self._fence

    def _progress(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("progress() is for the thread that the function was started in")
        if self._running and self._pulse.due:
            with self._whole_frames():
                self._pulse.beat()


def _unpacked(payload: memoryview) -> Any:
    try:
        return unpack(payload)
    except ImportError as error:
        error.add_note(
            "what a notebook or a script defines travels as it is; modules must be installed on the nodes, too"
        )
        raise


def _packed(value: Any) -> bytes:
    try:
        return pack_value(value)
    except Exception as error:
        where = culprit(value)
        raise TypeError(f"what the function returned cannot travel back: {type(value).__name__}: {where}") from error
