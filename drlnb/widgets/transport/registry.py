"""Keep panels under what was asked for, so that a cell that is run twice makes one."""

import threading
from collections.abc import Callable, Hashable
from typing import Protocol, TypeVar

__all__ = ["Closable", "Registry"]


class Closable(Protocol):
    """What is kept."""

    @property
    def closed(self) -> bool:
        """Whether it is of no use any more."""

    def close(self) -> None:
        """Leave nothing behind; twice is harmless."""


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

    def moved(self, panel: Closable, key: Hashable) -> None:
        """Keep a panel under another key, since its settings have changed."""
        with self._lock:
            self.forget(panel)
            self._panels.setdefault(key, panel)

    def forget(self, panel: Closable) -> None:
        """Keep a panel no longer."""
        with self._lock:
            self._panels = {key: other for key, other in self._panels.items() if other is not panel}

    def close_all(self) -> None:
        """Close every panel."""
        for panel in list(self._panels.values()):
            panel.close()
