"""Start a cluster on this machine, or use the current Dask client, where a fleet was given none."""

import atexit
import contextlib
import shutil
import sys
import tempfile
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from drlnb.fleet.plain import count_problem
from drlnb.planning.placement.devices import devices_problem, is_device_name
from drlnb.planning.seats.rules import isolation_problem, n_seats_problem
from drlnb.records.errors import ConfigError

if TYPE_CHECKING:
    from drlnb.runtime.client.local_cluster import LocalHandle

__all__ = ["Client", "check_pool", "close_at_exit", "current_client", "start_cluster", "sweep"]

#: A Dask client or cluster, an address, or a scheduler file; None: none was named.  Dask's own types say nothing.
Client = Any


class Closable(Protocol):
    """Anything that holds what must be given back before the process ends."""

    def close(self) -> None:
        """Give it back."""


def check_pool(
    n_workers: object, slots: object, seats: object, isolation: object = "shared"
) -> tuple[int | None, tuple[str, ...]]:
    """Return the number of devices that is asked for, None for all, and their names, none if it is a number.

    Raises
    ------
    ConfigError
        If a number is wrong, or a list cannot be one of devices.
    """
    if problem := n_seats_problem(seats) or isolation_problem(isolation, seats):
        raise ConfigError(problem)
    if n_workers is not None and (problem := count_problem("n_workers", n_workers)):
        raise ConfigError(problem)
    if isinstance(slots, str) and slots == "auto":
        return None, ()
    if isinstance(slots, list | tuple):
        if problem := devices_problem(slots):
            raise ConfigError(problem)
        return None, tuple(slots)
    if not isinstance(slots, int) or count_problem("slots", slots):
        hint = f" (one device: [{slots!r}])" if isinstance(slots, str) and is_device_name(slots) else ""
        raise ConfigError(
            f"slots must be 'auto', a whole number >= 1 or a list of devices such as ['cuda:0'], got {slots!r}{hint}"
        )
    return slots, ()


def current_client() -> Client:
    """Return the Dask client of this process, None if there is none (or Dask is not even imported)."""
    if "distributed" not in sys.modules:
        return None
    from distributed import Client

    with contextlib.suppress(ValueError):
        return Client.current()
    return None


def start_cluster(n_workers: int) -> "tuple[LocalHandle, Path]":
    """Start a cluster of our own; return its handle and its scratch folder.

    A thread starts it, so that Ctrl-C meanwhile cannot lose the handle of a process that is there already.
    """
    from drlnb.runtime.client.local_cluster import start_local

    root = Path(tempfile.mkdtemp(prefix="drlnb-"))
    with ThreadPoolExecutor(1, thread_name_prefix="drlnb-start") as starter:
        started = starter.submit(start_local, n_workers=n_workers, root=root)
        try:
            return started.result(), root
        except KeyboardInterrupt:
            started.result().kill()
            shutil.rmtree(root, ignore_errors=True)
            raise


def sweep(handle: "LocalHandle | None", root: Path | None) -> None:
    """Stop an own cluster, if there is one, and remove its scratch folder."""
    if handle is not None:
        handle.stop()
    if root is not None:
        shutil.rmtree(root, ignore_errors=True)


def close_at_exit(fleet: Closable) -> Callable[[], None]:
    """Close a fleet that the script forgot, while Dask's threads still live (Dask's own exit hooks run later)."""
    watched = weakref.ref(fleet)

    def close() -> None:
        alive = watched()
        if alive is not None:
            with contextlib.suppress(Exception):
                alive.close()

    atexit.register(close)
    return close
