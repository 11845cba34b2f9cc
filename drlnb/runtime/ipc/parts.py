"""Say between an executor and its agent, and between agents, where parts of a minibatch are."""

from collections.abc import Mapping
from typing import NamedTuple, Self

from drlnb.records.ids import Fence

__all__ = ["Part", "Place"]

#: Path of memory that all processes of a host reach, the first byte in it, and how many there are.
Place = tuple[str, int, int]


class Part(NamedTuple):
    """What one member of a gang has computed of a minibatch."""

    fence: Fence
    round: int
    #: Of the minibatch in its round, from 1.
    number: int
    #: The member's.
    slot: str
    #: Slot of each member, and its node's address.
    gang: list[tuple[str, str]]
    place: Place

    @classmethod
    def read(cls, header: Mapping[str, object]) -> Self:
        """Return the part that a frame tells of."""
        return cls(*(header[name] for name in cls._fields))  # type: ignore[arg-type]  # as it was sent
