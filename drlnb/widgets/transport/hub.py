"""Keep the pictures moving, even while a cell blocks the kernel: one thread that drains, folds and sends.

It only ever *sends* messages: traitlets have no lock, so traits are written by the pump alone (``pump.py``).  It asks
Dask nothing: each run's own thread brings the rows.
"""

import threading
import time
import weakref
from typing import Protocol

__all__ = ["Hub", "Ticking"]

#: Seconds between two rounds over all panels: 4 Hz looks alive, and leaves the kernel alone.
_PERIOD_S = 0.25
#: A visit that took more of the processor than this is followed by a pause of one turn: a run of very many rounds may
#: cost a picture its smoothness, not the kernel its time.  Ten times what a visit should take; rows then wait for at
#: most two turns, half a second.
_BUDGET_S = 0.02
#: Longest wait for the thread when the last panel is closed, in seconds.
_JOIN_S = 2.0


class Ticking(Protocol):
    """What the hub visits."""

    def tick(self, now_s: float) -> None:
        """Drain, fold, send; must not raise, block or set a trait."""


class Hub:
    """The thread and whom it visits.  It runs only while there is somebody to visit.

    Parameters
    ----------
    period_s
        Seconds between two visits.
    """

    def __init__(self, period_s: float = _PERIOD_S) -> None:
        self._period_s = period_s
        self._panels: weakref.WeakSet[Ticking] = weakref.WeakSet()
        #: Whose last visit was beyond the budget.
        self._resting: weakref.WeakSet[Ticking] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def running(self) -> bool:
        """Whether the thread is there."""
        return self._thread is not None and self._thread.is_alive()

    def add(self, panel: Ticking) -> None:
        """Visit a panel from now on; starts the thread if there is none."""
        with self._lock:
            self._panels.add(panel)
            if not self.running:
                self._thread = threading.Thread(target=self._run, name="drlnb-hub", daemon=True)
                self._thread.start()

    def remove(self, panel: Ticking) -> None:
        """Visit it no more; the thread ends with the last one."""
        with self._lock:
            self._panels.discard(panel)
            thread = None if self._panels else self._thread
        if thread is not None and thread is not threading.current_thread():
            self.wake()
            thread.join(_JOIN_S)

    def stop(self) -> None:
        """End the thread, whoever is left."""
        for panel in list(self._panels):
            self.remove(panel)

    def wake(self) -> None:
        """Visit everybody now instead of at the next turn."""
        self._wake.set()

    def visit(self, *, everybody: bool = True) -> None:
        """Visit every panel once, or those whose last visit was within the budget."""
        for panel in list(self._panels):
            if panel in self._resting and not everybody:
                self._resting.discard(panel)
                continue
            began = time.thread_time()
            panel.tick(time.monotonic())
            (self._resting.add if time.thread_time() - began > _BUDGET_S else self._resting.discard)(panel)

    def _run(self) -> None:
        while self._is_wanted():
            woken = self._wake.wait(self._period_s)
            self._wake.clear()
            self.visit(everybody=woken)

    def _is_wanted(self) -> bool:
        """Whether there is somebody to visit; if not the thread is over, and who comes next starts another one."""
        with self._lock:
            if not self._panels:
                self._thread = None
            return self._thread is not None
