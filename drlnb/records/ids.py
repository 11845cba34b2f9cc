"""Name things: fences, and the ids that separate tasks, slots and requests."""

from dataclasses import dataclass

__all__ = ["Fence"]


@dataclass(frozen=True, slots=True, order=True)
class Fence:
    """A monotone token of one lease, compared as the pair (epoch, token).

    `epoch` is the start of the lease table that granted it, in nanoseconds; `token` grows by one per grant over the
    whole pool.  A resource refuses every fence below the highest that it has seen.  People are shown `token` alone:
    nanoseconds do not survive JavaScript's numbers.
    """

    epoch: int
    token: int

    def __str__(self) -> str:
        return f"#{self.token}"
