"""Which processes live on."""

import contextlib
import time
from collections.abc import Iterable

import psutil

__all__ = ["survivors"]


def survivors(processes: Iterable[psutil.Process], within_s: float = 0.0) -> list[psutil.Process]:
    """Return which of some processes live, at the latest after a time: the same process, and not a zombie."""
    deadline = time.monotonic() + within_s
    alive = _living(processes)
    while alive and time.monotonic() < deadline:
        time.sleep(0.01)
        alive = _living(alive)
    return alive


def _living(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    alive = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                alive.append(process)
    return alive
