"""Keep panels alive where there is a kernel: the process's one hub and one pump, or neither."""

import atexit
from typing import Any

from drlnb.fleet.faces import faces
from drlnb.widgets.transport.hub import Hub
from drlnb.widgets.transport.pump import Pump, loop_of
from drlnb.widgets.transport.registry import Registry

__all__ = ["Live", "live"]


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

    def add(self, panel: Any) -> None:
        """Keep a panel moving, if there is a kernel."""
        kernel = faces.kernel()
        if kernel is not None:
            self.pump.add(panel, loop_of(kernel))
            self.hub.add(panel)

    def forget(self, panel: Any) -> None:
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
