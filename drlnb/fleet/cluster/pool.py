"""Open the slots behind a fleet, on a cluster that is there or on one of its own; Dask is loaded when it is needed."""

import atexit
import contextlib
import json
import logging
import shutil
import sys
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drlnb.fleet.faces import say
from drlnb.fleet.plain import checked_plain, first_line
from drlnb.planning.placement.devices import devices_problem, is_device_name
from drlnb.planning.placement.seats import ISOLATION, SEATS
from drlnb.records.errors import ConfigError, InputError, PeerError
from drlnb.records.settings import count, is_whole

if TYPE_CHECKING:
    from drlnb.runtime.client.link import Link
    from drlnb.runtime.client.local_cluster import LocalHandle

__all__ = [
    "Client",
    "Pool",
    "SchedulerUnreachable",
    "Wanted",
    "close_at_exit",
    "connect",
    "current_client",
    "start_cluster",
]

#: A Dask client or cluster, an address, or a scheduler file; None: none was named.  Dask's own types say nothing.
Client = Any

#: Dask workers of a cluster of our own, and devices of a pool: above, it is a slip of the finger.
_WORKERS, _MOST_DEVICES = count(1, 256), 1000
#: Seconds for a first answer of a scheduler; the promise is a message within 15 s.
_CONNECT_S = 10.0


class SchedulerUnreachable(InputError, PeerError):
    """No scheduler answers at the address that was given."""


def current_client() -> Client:
    """Return the Dask client of this process, None if there is none (or Dask is not even imported)."""
    if "distributed" not in sys.modules:
        return None
    from distributed import Client

    with contextlib.suppress(ValueError):
        return Client.current()
    return None


def connect(client: Client, *, timeout_s: float = _CONNECT_S) -> "Link":
    """Link to a cluster.

    Parameters
    ----------
    client
        Client, Cluster, address, or path of a scheduler file.  An asynchronous client is not used itself: a second
        one with a loop of its own is made beside it.
    timeout_s
        Longest wait for the scheduler.

    Raises
    ------
    ConfigError
        If it is something else, or the scheduler file cannot be read.
    SchedulerUnreachable
        If nothing answers in time.
    """
    wanted: dict[str, object] | None = None
    if isinstance(client, str | Path):
        wanted = _address_or_file(str(client))
    elif hasattr(client, "scheduler") and hasattr(client, "asynchronous") and hasattr(client, "submit"):
        if client.asynchronous:
            wanted = {"address": str(client.scheduler.address), "security": client.security}
    elif hasattr(client, "scheduler_address"):
        wanted = {"address": str(client.scheduler_address), "security": getattr(client, "security", None)}
    else:
        raise ConfigError(f"client must be a Client, a Cluster, an address or a scheduler file, got {client!r}")

    from distributed import Client

    from drlnb.runtime.client.link import Link

    if wanted is None:
        return Link(client, say=say)
    where = str(client if isinstance(client, str | Path) else wanted["address"])
    try:
        with _quiet():
            # A client with a loop of its own, which is not Dask's current one.
            made = Client(**wanted, timeout=timeout_s, set_as_default=False, asynchronous=False, name="drlnb")
        return Link(made, owned=True, say=say)
    except (OSError, TimeoutError) as error:
        raise SchedulerUnreachable(
            where, f"no scheduler answers there within {timeout_s:g} s ({first_line(error)})"
        ) from None
    except TypeError:
        raise ConfigError(
            f"{where} speaks TLS, and no certificates are named: pass a Client or a Cluster with its security, or set "
            "distributed.comm.tls in Dask's configuration (DASK_DISTRIBUTED__COMM__TLS__CA_FILE and so on)"
        ) from None
    except ValueError as error:
        raise ConfigError(f"{where!r} is no scheduler's address: {first_line(error)}") from None


def _address_or_file(text: str) -> dict[str, object]:
    if "://" not in text and (Path(text).is_file() or text.endswith(".json")):
        if not Path(text).is_file():
            raise ConfigError(f"there is no scheduler file {text}")
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            if isinstance(json.loads(Path(text).read_text(encoding="utf-8"))["address"], str):
                return {"scheduler_file": text}
        raise ConfigError(
            f"{text} is no scheduler file: it must be JSON with the scheduler's address, as Dask writes it"
        )
    if ":" not in text.removeprefix("tcp://").removeprefix("tls://"):
        raise ConfigError(f"{text!r} is no scheduler's address (host:port, tcp://host:port) and no scheduler file")
    return {"address": text}


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep Dask's client from logging what an exception reports a moment later; its logger has a level of its own."""
    with contextlib.ExitStack() as after:
        for logger in map(logging.getLogger, ("distributed", "distributed.client")):
            after.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.CRITICAL)
        yield


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A pool as it is asked for, with the arguments of :class:`drlnb.fleet.fleet.Fleet`.

    Raises
    ------
    ConfigError
        If a number is wrong, or a list cannot be one of devices.
    """

    n_workers: int | None = None
    slots: int | str | Sequence[str] = "auto"
    seats: int = 1
    isolation: str = "shared"

    def __post_init__(self) -> None:
        workers = "" if self.n_workers is None else _WORKERS.problem("n_workers", self.n_workers)
        others = SEATS.problem("seats", self.seats) or ISOLATION.problem("isolation", self.isolation) or workers
        if problem := others or self._slots_problem():
            raise ConfigError(problem)

    def _slots_problem(self) -> str:
        slots = self.slots
        if isinstance(slots, list | tuple):
            return devices_problem(slots)
        if (isinstance(slots, str) and slots == "auto") or is_whole(slots, 1, _MOST_DEVICES):
            return ""
        hint = f" (one device: [{slots!r}])" if isinstance(slots, str) and is_device_name(slots) else ""
        known = f"'auto', a whole number in 1..{_MOST_DEVICES} or a list of devices such as ['cuda:0']"
        return f"slots must be {known}, got {slots!r}{hint}"

    @property
    def n_devices(self) -> int | None:
        """How many devices; None: all, or those of :attr:`names`."""
        return self.slots if isinstance(self.slots, int) else None

    @property
    def names(self) -> tuple[str, ...]:
        """Which devices; none where they are not named."""
        return () if isinstance(self.slots, int | str) else tuple(self.slots)


def start_cluster(n_workers: int) -> "tuple[LocalHandle, Path]":
    """Start a cluster of our own; return its handle and its scratch folder.

    A thread starts it, so that Ctrl-C meanwhile cannot lose the handle of a process that is there already.
    """
    from drlnb.runtime.client.local_cluster import PREFIX, start_local, sweep

    sweep(Path(tempfile.gettempdir()))
    root = Path(tempfile.mkdtemp(prefix=PREFIX))
    with ThreadPoolExecutor(1, thread_name_prefix="drlnb-start") as starter:
        started = starter.submit(start_local, n_workers=n_workers, root=root)
        import drlnb.runtime.client.link  # noqa: F401 - loads Dask while the child does

        try:
            return started.result(), root
        except KeyboardInterrupt:
            started.result().kill()
            shutil.rmtree(root, ignore_errors=True)
            raise


def _sweep(handle: "LocalHandle | None", root: Path | None) -> None:
    """Stop an own cluster, if there is one, and remove its scratch folder."""
    if handle is not None:
        handle.stop()
    if root is not None:
        shutil.rmtree(root, ignore_errors=True)


def close_at_exit(close: Callable[[], object]) -> Callable[[], None]:
    """Close a fleet that the script forgot, while Dask's threads still live (Dask's own exit hooks run later)."""
    watched = weakref.WeakMethod(close)

    def close_now() -> None:
        if (alive := watched()) is not None:
            with contextlib.suppress(Exception):
                alive()

    atexit.register(close_now)
    return close_now


class Pool:
    """Devices and slots of a cluster, and the way to it.

    Parameters
    ----------
    client
        As of :class:`drlnb.fleet.fleet.Fleet`.
    wanted
        What the pool shall have.

    Attributes
    ----------
    link
        The way to the cluster, whose scheduler is at ``address``.
    said
        What a user should have known of the pool when it was last asked, such as that it has no CUDA device.
    n_nodes, slots
        How many node agents were up, and the slots that the pool had, when it was opened.
    n_devices
        How many devices carry the slots: as many as these, if each has one seat.
    seats, names, isolation
        What was chosen: slots of each device, devices by name, and whether the tasks of a slot share a process.
    """

    def __init__(self, client: Client, wanted: Wanted) -> None:
        if client is None:
            client = current_client()
        if client is not None and wanted.n_workers is not None:
            raise ConfigError("n_workers is for a cluster of our own, not for one that is there already")
        #: Dask workers and process of a cluster of our own; None on another one.
        self.n_workers: int | None = None
        self.handle: LocalHandle | None = None
        root = None
        if client is None:
            self.n_workers = wanted.n_workers or 1
            self.handle, root = start_cluster(self.n_workers)
        self._sweep = weakref.finalize(self, _sweep, self.handle, root)
        with contextlib.ExitStack() as undo:
            undo.callback(self._sweep)
            self.link = connect(client if self.handle is None else self.handle.address)
            undo.callback(self.link.close)  # its client, if it is ours, would go on
            opened = self.link.open_pool(
                wanted.n_devices,
                seats=wanted.seats,
                names=wanted.names,
                isolation=wanted.isolation,
                own_workers=self.n_workers,
            )
            undo.pop_all()
        self.address, self.said = self.link.address, opened.notices
        self.n_nodes, self.slots, self.n_devices = opened.n_nodes, opened.slots, opened.n_devices
        self.seats, self.names, self.isolation = opened.seats, opened.names, opened.isolation

    @property
    def shape(self) -> dict[str, object]:
        """What a run remembers of its pool: ``n_slots`` devices, ``n_workers``, and what was chosen of the rest."""
        more: dict[str, object] = {} if self.seats == 1 else {"seats": self.seats}
        more |= {"slots": list(self.names)} if self.names else {}
        more |= {} if self.isolation == "shared" else {"isolation": self.isolation}
        return {"n_slots": self.n_devices, "n_workers": self.n_nodes, **more}

    @property
    def notices(self) -> tuple[str, ...]:
        """What a user should know of the pool now; of a cluster that others use it is asked."""
        if self.handle is None:
            with contextlib.suppress(PeerError):
                self.said = (*self.said, *(text for text in self.link.notices() if text not in self.said))
        return self.said

    def serves(self, wanted: Wanted) -> bool:
        """Whether this pool is what was asked for; raise ConfigError for names that mean no device."""
        same = self.link.same_devices(wanted.names) if wanted.names else wanted.slots in ("auto", self.n_devices)
        others = wanted.seats in (1, self.seats) and wanted.isolation in ("shared", self.isolation)
        return same and others and wanted.n_workers in (None, self.n_workers)

    def set(self, key: str, value: object) -> None:
        """Change a setting of the pool, for all who share it.

        Raises
        ------
        ConfigError
            If the value is wrong beside those in force.
        """
        self.link.set_pool(key, checked_plain(key, value))

    def close(self) -> None:
        """Stop a cluster of our own."""
        self._sweep()

    def kill(self) -> None:
        """End a cluster of our own at once."""
        if self.handle is not None:
            self.handle.kill()
        self._sweep()
