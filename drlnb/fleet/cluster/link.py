"""How does the door speak to a cluster?  A thin face of the runtime; a test can put another one in its place."""

import contextlib
import logging
import socket
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from drlnb.records.errors import ConfigError, InputError, PeerError
from drlnb.runtime.files.run_directory import Lock

__all__ = ["ClientLink", "Link", "SchedulerUnreachable", "connect"]

#: Seconds for a first answer of a scheduler; the promise is a message within 15 s.
_CONNECT_S = 10.0


class SchedulerUnreachable(InputError, PeerError):
    """No scheduler answers at the address that was given."""


class Link(Protocol):
    """What a training needs of its cluster."""

    #: Address of the scheduler.
    address: str

    def probe_env(self, env: str | Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the spaces of an environment, as a node of the cluster sees them."""

    def create_run(self, run: Mapping[str, Any]) -> None:
        """Register a run."""

    def submit_anchors(self, run_id: str, tasks: Sequence[str]) -> None:
        """Start the masters of a run's tasks."""

    def control(self, run_id: str, action: str, *, task: str | None = None, reason: str = "") -> None:
        """Stop, kill, pause, resume or checkpoint."""

    def restart(self, run_id: str, task: str) -> int:
        """Start a task again that failed or was stopped; return the number of its new attempt."""

    def set(self, run_id: str, key: str, value: Any, *, task: str | None = None) -> None:
        """Change a setting of a run's tasks."""

    def check(self, run_id: str, key: str, value: Any, *, task: str | None = None) -> None:
        """Raise what :meth:`set` would, and change nothing."""

    def set_pool(self, key: str, value: Any) -> None:
        """Change a setting of the pool."""

    def rows(self, run_id: str, since: int, wait_s: float) -> tuple[int, list[dict[str, Any]], bool]:
        """Return (next number, journal rows, whether some were missed), waiting at most so long for a first one."""

    def runs(self) -> list[dict[str, Any]]:
        """Return the runs of the cluster."""

    def lock(self, run_id: str) -> Lock:
        """Return what the lock of a run directory shall say."""

    def close(self) -> None:
        """Hang up; the cluster goes on."""


class ClientLink:
    """The link through a Dask client.

    Parameters
    ----------
    client
        A client with its own loop thread.
    owned
        Whether it is closed with the link.
    pid
        Process of the scheduler if it is ours, else 0.
    """

    def __init__(self, client: Any, *, owned: bool, pid: int = 0) -> None:
        from drlnb.runtime.client import install

        self.client = client
        self.address = str(client.scheduler.address)
        self._owned = owned
        self._pid = pid
        self._install = install
        self._epoch = 0

    def open_pool(
        self,
        n_slots: int | None,
        *,
        seats: int | str = 1,
        names: Sequence[str] = (),
        isolation: str = "shared",
        own_workers: int | None = None,
    ) -> Any:
        """Install drlnb on the cluster and open its slots.

        Parameters
        ----------
        n_slots
            How many devices; None: every CUDA device, or 2 virtual ones.
        seats
            Slots of each device; ``"auto"``: as many as pay.
        names
            The devices by name, instead of `n_slots`.
        isolation
            ``shared`` or ``process``.
        own_workers
            Workers of a cluster of our own, None on another one.

        Returns
        -------
        Pool
            The runtime's word for what there is.
        """
        n_nodes = own_workers or max(1, len(self.client.ncores()))
        pool = self._install.install(
            self.client,
            n_slots=n_slots,
            seats=seats,
            names=names,
            isolation=isolation,
            n_nodes=n_nodes,
            own_cluster=own_workers is not None,
        )
        self._epoch = int(pool.epoch)
        return pool

    def same_devices(self, names: Sequence[str]) -> bool:
        """Return whether the pool's devices are those of some names; raise ConfigError for names that mean none."""
        with self._connected():
            return bool(self._install.same_devices(self.client, names))

    def probe_env(self, env: str | Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the spaces of an environment, as a node of the cluster sees them."""
        found: Mapping[str, Any] = self._install.probe_env(self.client, env)
        return found

    def create_run(self, run: Mapping[str, Any]) -> None:
        """Register a run."""
        self._install.create_run(self.client, run)

    def submit_anchors(self, run_id: str, tasks: Sequence[str]) -> None:
        """Start the masters of a run's tasks."""
        self._install.submit_anchors(self.client, run_id, tasks)

    def control(self, run_id: str, action: str, *, task: str | None = None, reason: str = "") -> None:
        """Stop, kill, pause, resume or checkpoint."""
        with self._connected():
            self._install.control(self.client, run_id, action, task=task, reason=reason)

    def restart(self, run_id: str, task: str) -> int:
        """Start a task again that failed or was stopped; return the number of its new attempt."""
        with self._connected():
            return int(self._install.restart(self.client, run_id, task))

    def set(self, run_id: str, key: str, value: Any, *, task: str | None = None) -> None:
        """Change a setting of a run's tasks."""
        with self._connected():
            self._install.control(self.client, run_id, "set", task=task, key=key, value=value)

    def check(self, run_id: str, key: str, value: Any, *, task: str | None = None) -> None:
        """Raise what :meth:`set` would, and change nothing."""
        with self._connected():
            self._install.control(self.client, run_id, "check", task=task, key=key, value=value)

    def set_pool(self, key: str, value: Any) -> None:
        """Change a setting of the pool."""
        with self._connected():
            self._install.set_pool(self.client, key, value)

    def rows(self, run_id: str, since: int, wait_s: float) -> tuple[int, list[dict[str, Any]], bool]:
        """Return (next number, journal rows, whether some were missed)."""
        with self._connected():
            found: tuple[int, list[dict[str, Any]], bool] = self._install.rows(self.client, run_id, since, wait_s)
        return found

    def runs(self) -> list[dict[str, Any]]:
        """Return the runs of the cluster."""
        with self._connected():
            found: list[dict[str, Any]] = self._install.runs(self.client)
        return found

    def pool_rows(self) -> list[dict[str, Any]]:
        """Return the rows of the pool's own stream that the scheduler still has."""
        with self._connected():
            found: list[dict[str, Any]] = self._install.pool_rows(self.client)
        return found

    @contextlib.contextmanager
    def _connected(self) -> Iterator[None]:
        """Say in one way that the scheduler is gone: Dask's client loses its parts one by one then."""
        if self.client.status != "running":
            raise PeerError("scheduler", "no connection")
        try:
            yield
        except AttributeError:
            if self.client.scheduler is None:
                raise PeerError("scheduler", "no connection") from None
            raise

    def lock(self, run_id: str) -> Lock:
        """Return what the lock of a run directory shall say."""
        host = socket.gethostname() if self._pid else ""
        return Lock(run=run_id, epoch=self._epoch, address=self.address, pid=self._pid, host=host)

    def close(self) -> None:
        """Hang up; the cluster goes on."""
        if self._owned:
            self.client.close()


def connect(client: Any, *, pid: int = 0, timeout_s: float = _CONNECT_S) -> ClientLink:
    """Link to a cluster.

    Parameters
    ----------
    client
        Client, Cluster, address, or path of a scheduler file.  An asynchronous client is not used itself: a second
        one with a loop of its own is made beside it.
    pid
        Process of the scheduler if it is ours, else 0.
    timeout_s
        Longest wait for the scheduler.

    Raises
    ------
    ConfigError
        If it is something else, or the scheduler file cannot be read.
    SchedulerUnreachable
        If nothing answers in time.
    """
    if isinstance(client, str | Path):
        where = str(client)
        wanted: dict[str, Any] = _address_or_file(where)
    elif hasattr(client, "scheduler") and hasattr(client, "asynchronous") and hasattr(client, "submit"):
        if not client.asynchronous:
            return ClientLink(client, owned=False, pid=pid)
        where = str(client.scheduler.address)
        wanted = {"address": where, "security": client.security}
    elif hasattr(client, "scheduler_address"):
        where = str(client.scheduler_address)
        wanted = {"address": where, "security": getattr(client, "security", None)}
    else:
        raise ConfigError(f"client must be a Client, a Cluster, an address or a scheduler file, got {client!r}")

    from distributed import Client

    try:
        with _Quiet():
            made = Client(**wanted, timeout=timeout_s, set_as_default=False, asynchronous=False, name="drlnb")
    except (OSError, TimeoutError) as error:
        raise SchedulerUnreachable(
            where, f"no scheduler answers there within {timeout_s:g} s ({_first(error)})"
        ) from None
    except ValueError as error:
        raise ConfigError(f"{where!r} is no scheduler's address: {_first(error)}") from None
    return ClientLink(made, owned=True, pid=pid)


def _address_or_file(text: str) -> dict[str, str]:
    if "://" not in text and (Path(text).is_file() or text.endswith(".json")):
        if not Path(text).is_file():
            raise ConfigError(f"there is no scheduler file {text}")
        return {"scheduler_file": text}
    if ":" not in text.removeprefix("tcp://").removeprefix("tls://"):
        raise ConfigError(f"{text!r} is no scheduler's address (host:port, tcp://host:port) and no scheduler file")
    return {"address": text}


def _first(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


class _Quiet:
    """Keep Dask's client from logging what is told by an exception a moment later."""

    #: Dask gives its client's logger a level of its own.
    _NAMES = ("distributed", "distributed.client")

    def __enter__(self) -> None:
        self._levels = {name: logging.getLogger(name).level for name in self._NAMES}
        for name in self._NAMES:
            logging.getLogger(name).setLevel(logging.CRITICAL)

    def __exit__(self, *error: object) -> None:
        for name, level in self._levels.items():
            logging.getLogger(name).setLevel(level)
