"""Which processes live on."""

import contextlib
from collections.abc import Sequence

import psutil

__all__ = ["survivors"]


def survivors(processes: Sequence[psutil.Process]) -> list[psutil.Process]:
    """Return which of some processes live: the same process under its number, and not a zombie."""
    alive = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                alive.append(process)
    return alive
