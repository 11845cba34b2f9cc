"""Write traits, in one asyncio task on the kernel's main loop.

A trait that a thread writes races with the front end's own changes; a trait written in a callback may be swallowed
(ipywidgets #3635).  So panels only note what shall be written, and this task writes it: within 150 ms on a free
kernel, at the end of the cell on a busy one.
"""

import asyncio
import weakref
from typing import Protocol

__all__ = ["Pump", "Writing"]

#: Seconds between two rounds over all panels.
_PERIOD_S = 0.15


class Writing(Protocol):
    """What the pump serves."""

    def write(self) -> None:
        """Write the traits that were noted; must not raise or block."""


class Pump:
    """The task and whom it serves.  It runs only while there is somebody to serve."""

    def __init__(self, period_s: float = _PERIOD_S) -> None:
        self._period_s = period_s
        self._panels: weakref.WeakSet[Writing] = weakref.WeakSet()
        #: asyncio holds its tasks weakly: this reference keeps it.
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def running(self) -> bool:
        """Whether the task is there."""
        return self._task is not None and not self._task.done()

    def add(self, panel: Writing, loop: asyncio.AbstractEventLoop) -> None:
        """Serve a panel from now on; may be called from any thread."""
        self._panels.add(panel)
        self._loop = loop
        loop.call_soon_threadsafe(self._start)

    def remove(self, panel: Writing) -> None:
        """Serve it no more; the task ends with the last one."""
        self._panels.discard(panel)
        if not len(self._panels) and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._end)

    def visit(self) -> None:
        """Serve every panel once."""
        for panel in list(self._panels):
            panel.write()

    def _start(self) -> None:
        if not self.running and len(self._panels):
            self._task = asyncio.get_running_loop().create_task(self._run(), name="drlnb-pump")

    def _end(self) -> None:
        if self._task is not None and not len(self._panels):
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        while len(self._panels):
            self.visit()
            await asyncio.sleep(self._period_s)
