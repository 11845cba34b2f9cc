"""Open the slots behind a fleet, on a cluster that is there or on one of its own."""

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING

from drlnb.fleet.cluster.cluster import Client, check_pool, current_client, start_cluster, sweep
from drlnb.fleet.cluster.link import connect
from drlnb.fleet.tasks.live_settings import plain
from drlnb.records.errors import ConfigError

if TYPE_CHECKING:
    from drlnb.runtime.client.local_cluster import LocalHandle

__all__ = ["Pool"]


class Pool:
    """Devices and slots of a cluster, and the way to it.

    Parameters
    ----------
    client, n_workers, slots, seats, isolation
        As of :class:`drlnb.fleet.fleet.Fleet`.

    Attributes
    ----------
    link
        The way to the cluster, whose scheduler is at ``address``.
    notices
        What a user should know of the pool, such as that it has no CUDA device.
    nodes, slots
        The node agents that were up, and the slots that the pool had, when it was opened.
    n_devices
        How many devices carry the slots: as many as these, if each has one seat.
    seats, names, isolation
        What was chosen: slots of each device, devices by name, and whether the tasks of a slot share a process.
    """

    def __init__(
        self,
        client: Client = None,
        *,
        n_workers: int | None = None,
        slots: int | str | Sequence[str] = "auto",
        seats: int | str = 1,
        isolation: str = "shared",
    ) -> None:
        n_slots, names = check_pool(n_workers, slots, seats, isolation)
        if client is None:
            client = current_client()
        if client is not None and n_workers is not None:
            raise ConfigError("n_workers is for a cluster of our own, not for one that is there already")
        self.n_workers = (n_workers or 1) if client is None else None
        #: Process of a cluster of our own; None on another one.
        self.handle: LocalHandle | None = None
        root = None
        if self.n_workers is not None:
            self.handle, root = start_cluster(self.n_workers)
        self._sweep = weakref.finalize(self, sweep, self.handle, root)
        try:
            if self.handle is None:
                self.link = connect(client)
            else:
                self.link = connect(self.handle.address, pid=self.handle.pid)
            opened = self.link.open_pool(
                n_slots, seats=seats, names=names, isolation=isolation, own_workers=self.n_workers
            )
        except BaseException:
            if (link := getattr(self, "link", None)) is not None:
                link.close()  # its client, if it is ours, would go on
            self._sweep()
            raise
        self.address, self.notices = self.link.address, opened.notices
        self.nodes, self.slots, self.n_devices = opened.nodes, opened.slots, opened.n_devices
        self.seats, self.names, self.isolation = opened.seats, opened.names, opened.isolation

    @property
    def shape(self) -> dict[str, object]:
        """What a run remembers of its pool: ``n_slots`` devices, ``n_workers``, and what was chosen of the rest."""
        more: dict[str, object] = {} if self.seats == 1 else {"seats": self.seats}
        more |= {"slots": list(self.names)} if self.names else {}
        more |= {} if self.isolation == "shared" else {"isolation": self.isolation}
        return {"n_slots": self.n_devices, "n_workers": len(self.nodes), **more}

    def serves(self, n_workers: int | None, slots: int | str | Sequence[str], seats: int | str, isolation: str) -> bool:
        """Whether this pool is what was asked for; raise ConfigError for names that mean no device."""
        same = slots in ("auto", self.n_devices) if isinstance(slots, int | str) else self.link.same_devices(slots)
        others = seats in (1, self.seats) and isolation in ("shared", self.isolation)
        return same and others and n_workers in (None, self.n_workers)

    def set(self, key: str, value: object) -> None:
        """Change a setting of the pool, for all who share it.

        Raises
        ------
        ConfigError
            If the value is wrong beside those in force.
        """
        self.link.set_pool(key, plain(key, value))

    def close(self) -> None:
        """Stop a cluster of our own."""
        self._sweep()

    def kill(self) -> None:
        """End a cluster of our own at once."""
        if self.handle is not None:
            self.handle.kill()
        self._sweep()
