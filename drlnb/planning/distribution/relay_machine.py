"""Forward a range of bytes that arrives at a host, then keep it.

The next host does not wait for this one's memory (the distribution patent's relays).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Chunk", "RelayAssembly", "Taken"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Bytes [start, stop) of a version, as they arrive (the bytes themselves stay with the driver)."""

    attempt: int
    version: int
    start: int
    stop: int
    #: Bytes of the whole version.
    total: int
    #: Numbers of the hosts to forward to, in order.
    children: tuple[int, ...] = ()
    #: They miss it: it is forwarded even if it is here already.
    again: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What follows from a chunk: forward to these, then write if `new`, then commit if `whole`."""

    #: Hosts in the order of sending; empty if the chunk is refused or a duplicate.
    forward: tuple[int, ...] = ()
    #: The chunk has bytes that were missing.
    new: bool = False
    #: With this chunk the version is whole; true once per version.
    whole: bool = False
    #: Why the chunk was refused and nothing changed; None if it was not.
    refused: str | None = None


class RelayAssembly:
    """The ranges of the newest version at one host; a newer version abandons a partial older one."""

    def __init__(self) -> None:
        self._newest: tuple[int, int] = (0, 0)
        self._total = 0
        #: Disjoint ranges [start, stop) that are here, ascending, neighbours merged.
        self._held: list[tuple[int, int]] = []

    @property
    def newest(self) -> tuple[int, int]:
        """(attempt, version) of the newest version that is here in whole or in part; (0, 0) before the first."""
        return self._newest

    @property
    def whole(self) -> bool:
        """Whether the newest version is here in whole."""
        return self._held == [(0, self._total)]

    def holds(self, ranges: Iterable[tuple[int, int]]) -> bool:
        """Return whether all of some ranges of the newest version are here."""
        return all(any(low <= start and stop <= high for low, high in self._held) for start, stop in ranges)

    def missing(self, version: int, total: int) -> tuple[tuple[int, int], ...]:
        """Return the ranges of a version of `total` bytes that are not here, ascending."""
        held = self._held if self._newest[1] == version else []
        ends = [0, *(end for pair in held for end in pair), total]
        return tuple([(start, stop) for start, stop in zip(ends[::2], ends[1::2], strict=True) if start < stop])

    def forget(self) -> None:
        """Count no byte of the newest version as here."""
        self._held = []

    def take(self, chunk: Chunk) -> Taken:
        """Accept a chunk and return what follows; a refused or repeated chunk changes nothing."""
        key = (chunk.attempt, chunk.version)
        refused = self._refusal(chunk, key)
        if refused is not None:
            return Taken(refused=refused)
        if key > self._newest:
            self._newest, self._total, self._held = key, chunk.total, []
        new = self._hold(chunk.start, chunk.stop)
        forward = chunk.children if new or chunk.again else ()
        return Taken(forward=forward, new=new, whole=new and self.whole)

    def _refusal(self, chunk: Chunk, key: tuple[int, int]) -> str | None:
        """Return why a chunk cannot be taken, if so."""
        if key < self._newest:
            attempt, version = self._newest
            return f"attempt {chunk.attempt}, version {chunk.version} is older than {attempt}, {version}"
        if not 0 <= chunk.start < chunk.stop <= chunk.total:
            return f"range must be inside [0, {chunk.total}) and not empty, got [{chunk.start}, {chunk.stop})"
        if key == self._newest and chunk.total != self._total:
            return f"total must be {self._total} bytes as before, got {chunk.total}"
        return None

    def _hold(self, start: int, stop: int) -> bool:
        """Add a range to those that are here; return whether any of it was missing."""
        first = bisect_left(self._held, start, key=lambda held: held[1])
        last = bisect_right(self._held, stop, key=lambda held: held[0])
        touched = self._held[first:last]
        if touched and touched[0][0] <= start and stop <= touched[0][1]:
            return False
        low = min([start, *[held[0] for held in touched]])
        high = max([stop, *[held[1] for held in touched]])
        self._held[first:last] = [(low, high)]
        return True
