"""Reach a cluster through a Dask client; the module loads Dask."""

import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Concatenate, ParamSpec, TypeVar

from distributed import Client

from drlnb.fleet.plain import Plain, Row
from drlnb.records.errors import PeerError
from drlnb.runtime.client import install
from drlnb.runtime.client.install import Pool
from drlnb.runtime.files.run_directory import Lock

__all__ = ["Link", "dask_client"]

P = ParamSpec("P")
T = TypeVar("T")


def dask_client(where: Mapping[str, object], timeout_s: float) -> Client:
    """Return a client with a loop of its own, which is not Dask's current one."""
    return Client(**where, timeout=timeout_s, set_as_default=False, asynchronous=False, name="drlnb")


class Link:
    """All that a fleet needs of its cluster, so that a test can put another one in its place.

    Parameters
    ----------
    client
        A client with its own loop thread.
    owned
        Whether it is closed with the link.
    pid
        Process of the scheduler if it is ours, else 0.
    """

    def __init__(self, client: Client, *, owned: bool, pid: int = 0) -> None:
        self.client = client
        self.address = str(client.scheduler.address)
        self._owned = owned
        self._pid = pid
        self._epoch = 0

    def open_pool(
        self,
        n_slots: int | None,
        *,
        seats: int | str = 1,
        names: Sequence[str] = (),
        isolation: str = "shared",
        own_workers: int | None = None,
    ) -> Pool:
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
        """
        pool = install.install(
            self.client,
            n_slots=n_slots,
            seats=seats,
            names=names,
            isolation=isolation,
            n_nodes=own_workers or max(1, len(self.client.ncores())),
            own_cluster=own_workers is not None,
        )
        self._epoch = pool.epoch
        return pool

    def same_devices(self, names: Sequence[str]) -> bool:
        """Return whether the pool's devices are those of some names; raise ConfigError for names that mean none."""
        return self._ask(install.same_devices, names)

    def probe_env(self, env: str | Plain) -> Plain:
        """Return the spaces of an environment, as a node of the cluster sees them."""
        return install.probe_env(self.client, env)

    def create_run(self, run: Plain) -> None:
        """Register a run."""
        install.create_run(self.client, run)

    def submit_anchors(self, run_id: str, tasks: Sequence[str]) -> None:
        """Start the masters of a run's tasks."""
        install.submit_anchors(self.client, run_id, tasks)

    def control(self, run_id: str, action: str, *, task: str | None = None, reason: str = "") -> None:
        """Stop, kill, pause, resume or checkpoint."""
        self._ask(install.control, run_id, action, task=task, reason=reason)

    def restart(self, run_id: str, task: str) -> int:
        """Start a task again that failed or was stopped; return the number of its new attempt."""
        return self._ask(install.restart, run_id, task)

    def set(self, run_id: str, key: str, value: object, *, task: str | None = None) -> None:
        """Change a setting of a run's tasks."""
        self._ask(install.control, run_id, "set", task=task, key=key, value=value)

    def check(self, run_id: str, key: str, value: object, *, task: str | None = None) -> None:
        """Raise what :meth:`set` would, and change nothing."""
        self._ask(install.control, run_id, "check", task=task, key=key, value=value)

    def set_pool(self, key: str, value: object) -> None:
        """Change a setting of the pool."""
        self._ask(install.set_pool, key, value)

    def rows(self, run_id: str, since: int, wait_s: float) -> tuple[int, list[Row], bool]:
        """Return (next number, journal rows, whether some were missed)."""
        return self._ask(install.rows, run_id, since, wait_s)

    def runs(self) -> list[Row]:
        """Return the runs of the cluster."""
        return self._ask(install.runs)

    def pool_rows(self) -> list[Row]:
        """Return the rows of the pool's own stream that the scheduler still has."""
        return self._ask(install.pool_rows)

    def _ask(self, question: Callable[Concatenate[Client, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Raise one kind of error where the scheduler is gone: Dask's client loses its parts one by one then."""
        if self.client.status == "running":
            try:
                return question(self.client, *args, **kwargs)
            except AttributeError:
                if self.client.scheduler is not None:
                    raise
        raise PeerError("scheduler", "no connection")

    def lock(self, run_id: str) -> Lock:
        """Return the lock of a run directory whose run this cluster runs."""
        host = socket.gethostname() if self._pid else ""
        return Lock(run=run_id, epoch=self._epoch, address=self.address, pid=self._pid, host=host)

    def close(self) -> None:
        """Hang up; the cluster goes on."""
        if self._owned:
            self.client.close()
