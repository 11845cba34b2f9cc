"""Keep panels alive where there is a kernel: the process's one hub and one pump, or neither."""

import atexit
import threading
from collections.abc import Callable, Hashable
from typing import Protocol, TypeVar

from drlnb.fleet import faces
from drlnb.widgets.transport.hub import Hub, Ticking
from drlnb.widgets.transport.pump import Pump, Writing

__all__ = ["Closable", "Live", "Moving", "Registry", "live"]


class Closable(Protocol):
    """What is kept."""

    @property
    def closed(self) -> bool:
        """Whether it is of no use any more."""

    def close(self) -> None:
        """Leave nothing behind; twice is harmless."""


class Moving(Ticking, Writing, Closable, Protocol):
    """A panel that follows a run."""


T = TypeVar("T", bound=Closable)


class Registry:
    """Panels that live, by (owner, name, settings)."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._panels: dict[Hashable, Closable] = {}

    def __len__(self) -> int:
        return len(self._panels)

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the panel under `key`, made now if there is none that lives."""
        with self._lock:
            panel = self._panels.get(key)
            if panel is None or panel.closed:
                panel = self._panels[key] = make()
            return panel  # type: ignore[return-value]  # the key says which kind it is

    def forget(self, panel: Closable) -> None:
        """Keep a panel no longer."""
        with self._lock:
            self._panels = {key: other for key, other in self._panels.items() if other is not panel}

    def close_all(self) -> None:
        """Close every panel."""
        for panel in list(self._panels.values()):
            panel.close()


class Live:
    """Hub, pump and registry together."""

    def __init__(self) -> None:
        self.hub = Hub()
        self.pump = Pump()
        self.registry = Registry()

    @property
    def running(self) -> bool:
        """Whether panels move by themselves."""
        return self.hub.running

    def add(self, panel: Moving) -> None:
        """Keep a panel moving, if there is a kernel."""
        kernel = faces.kernel()
        if kernel is not None:
            # The kernel's main loop, from the kernel: the thread that asks may have another one, or none.
            self.pump.add(panel, kernel.io_loop.asyncio_loop)
            self.hub.add(panel)

    def forget(self, panel: Moving) -> None:
        """Keep a panel no longer; the hub itself may call this."""
        self.registry.forget(panel)
        self.pump.remove(panel)
        self.hub.remove(panel)

    def stop(self) -> None:
        """End hub and pump."""
        self.hub.stop()


#: The one of this process.
live = Live()
atexit.register(live.stop)
