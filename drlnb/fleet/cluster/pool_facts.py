"""What does a person see of the pool behind a fleet?  Its devices and slots, in words and as facts."""

from collections.abc import Sequence
from typing import Any

from drlnb.fleet.cluster.link import ClientLink

__all__ = ["Pooled"]


class Pooled:
    """The part of a fleet that tells of its pool."""

    #: The runtime's word for what the cluster offers.
    pool: Any
    _link: ClientLink

    @property
    def address(self) -> str:
        """Address of the scheduler."""
        return self._link.address

    @property
    def notices(self) -> tuple[str, ...]:
        """What a person should know of the pool, such as that it found no CUDA device."""
        return tuple(self.pool.notices)

    @property
    def slots(self) -> tuple[Any, ...]:
        """The slots that the pool has had since this fleet opened it."""
        return tuple(self.pool.slots)

    @property
    def nodes(self) -> tuple[Any, ...]:
        """The node agents that were up when this fleet opened the pool."""
        return tuple(self.pool.nodes)

    @property
    def shape(self) -> dict[str, Any]:
        """What a run remembers of its pool: ``n_slots`` devices, ``n_workers``, and what was chosen of the rest."""
        more = {} if self.pool.seats == 1 else {"seats": self.pool.seats}
        more |= {"slots": list(self.pool.names)} if self.pool.names else {}
        more |= {} if self.pool.isolation == "shared" else {"isolation": self.pool.isolation}
        return {"n_slots": self.pool.n_devices, "n_workers": len(self.pool.nodes), **more}

    @property
    def n_devices(self) -> int:
        """How many devices carry the slots: as many as these, if each has one seat."""
        return int(self.pool.n_devices)

    @property
    def isolation(self) -> str:
        """Whether the tasks of a slot share a process (``shared``) or have one each (``process``)."""
        return str(self.pool.isolation)

    def _has(self, slots: int | str | Sequence[str]) -> bool:
        """Whether the pool's devices are these; raise ConfigError for names that mean none."""
        if isinstance(slots, list | tuple):
            return self._link.same_devices(slots)
        return slots in ("auto", self.pool.n_devices)
