"""Order the requests that wait.

A step is O(log n) and the move of a list's end, the first that fits O(kinds): the table answers inside a hook that must
not block.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

__all__ = ["RequestKind", "Waiting"]


class RequestKind(NamedTuple):
    """What a request wants."""

    #: The slots that may serve it; empty: any.
    allowed: tuple[str, ...]
    #: How many of them it wants, and how many do where no more are up.
    n_slots: int
    n_least: int


class Waiting:
    """The requests that wait, by rank, equal ones by arrival.

    Requests of one kind (the same allowed slots, the same number) fit or do not fit together, so that the first that
    fits is found among the firsts of the kinds.
    """

    def __init__(self) -> None:
        #: RequestKind -> rank, number of the arrival and request, in their order.
        self._lines: dict[RequestKind, list[tuple[float, int, str]]] = {}
        self._at: dict[str, tuple[RequestKind, tuple[float, int, str]]] = {}

    def __iter__(self) -> Iterator[str]:
        return (request_id for _, _, request_id in sorted(place for _, place in self._at.values()))

    def __len__(self) -> int:
        return len(self._at)

    @property
    def kinds(self) -> Sequence[RequestKind]:
        """The kinds of the requests that wait."""
        return tuple(self._lines)

    def n(self, kind: RequestKind) -> int:
        """Return how many requests of a kind wait."""
        return len(self._lines.get(kind, ()))

    def put(self, request_id: str, kind: RequestKind, rank: float, number: int) -> None:
        """Enter a request, or move it to another rank; `number` is that of its arrival."""
        self.drop(request_id)
        self._at[request_id] = kind, (rank, number, request_id)
        insort(self._lines.setdefault(kind, []), (rank, number, request_id))

    def drop(self, request_id: str) -> None:
        """Remove a request, if it is there."""
        if request_id in self._at:
            kind, place = self._at.pop(request_id)
            line = self._lines[kind]
            del line[bisect_left(line, place)]
            if not line:
                del self._lines[kind]

    def heads(self, wanted: Callable[[RequestKind], bool]) -> list[str]:
        """Return the first request of each kind that is wanted, in their order."""
        return [
            request_id for _, _, request_id in sorted(line[0] for kind, line in self._lines.items() if wanted(kind))
        ]

    def first(self, fits: Callable[[RequestKind], bool]) -> str | None:
        """Return the first request whose kind fits, or None if there is none."""
        return next(iter(self.heads(fits)), None)
